//! Keeps one worker process running.

use std::{
    fs, io,
    sync::Arc,
    time::{Duration, SystemTime},
};

use kernel::process::{Limits, c_path, c_string};
use tokio::{
    net::{TcpStream, UnixStream},
    sync::watch,
    time::{Instant, sleep, timeout},
};

use super::{
    address::WorkerAddress,
    command::{executable, shown},
    place::{ProcessPlace, WorkerState},
};
use crate::{
    config::{Priority, WorkersConfig},
    lines::log_lines,
    program::{Program, Running, path_variable, receiver},
    spawner::on_spawner,
};

/// Shortest and longest pause before an ended process is restarted.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// A process that has served for this long has started successfully.
const SETTLED: Duration = Duration::from_secs(30);

/// Time between two attempts to connect to a starting process.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Longest processor time in a real-time class without waiting once. It is far longer than for a CGI program,
/// because a busy server may never have to wait.
const REAL_TIME_LIMIT: Duration = Duration::from_secs(60);

/// Keeps one process running.
pub(super) struct Keeper {
    pub(super) name: String,
    pub(super) place: Arc<ProcessPlace>,
    pub(super) config: WorkersConfig,
    pub(super) class: String,
    pub(super) priority: Priority,
    pub(super) stopped: watch::Receiver<()>,
}

/// Why a process does not run any more.
enum RunEnd {
    /// It is restarted.
    Again { served: Duration },
    /// It was stopped.
    Stopped,
}

impl Keeper {
    pub(super) async fn keep(mut self) {
        let mut pause = FIRST_PAUSE;
        loop {
            self.place.state.send_replace(WorkerState::Starting);
            let end = self.run().await;
            self.place.status.lock().ended();
            let RunEnd::Again { served } = end else { break };
            if served >= SETTLED {
                pause = FIRST_PAUSE;
            }
            self.place.state.send_replace(WorkerState::Waiting);
            tracing::warn!(worker = %self.name, ?pause, "a worker is started again after a pause");
            tokio::select! {
                () = sleep(pause) => {}
                _ = self.stopped.changed() => break,
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
            self.place.status.lock().restarts += 1;
        }
        if let WorkerAddress::Unix(path) = &self.place.address {
            let _ = fs::remove_file(path);
        }
        self.place.state.send_replace(WorkerState::Stopped);
    }

    /// Runs one process from its start to its end.
    async fn run(&mut self) -> RunEnd {
        let started = Instant::now();
        let again = |since: Instant| RunEnd::Again { served: since.elapsed() };
        let program = match self.program() {
            Ok(program) => program,
            Err(error) => {
                tracing::error!(worker = %self.name, %error, "a worker cannot be started");
                return again(started);
            }
        };
        let (class, priority) = (self.class.clone(), self.priority);
        let address = self.place.address.clone();
        let start = move || {
            // A socket left by an earlier process would prevent listening.
            if let WorkerAddress::Unix(path) = &address {
                let _ = fs::remove_file(path);
            }
            program.start(&class, priority)
        };
        let begun = on_spawner(self.priority, start).await.and_then(|started| started).and_then(|started| {
            Ok((Running::new(started.process)?, receiver(started.output)?, receiver(started.errors)?))
        });
        let (mut process, output, errors) = match begun {
            Ok(begun) => begun,
            Err(error) => {
                tracing::error!(worker = %self.name, program = shown(&self.config), %error, "a worker cannot be started");
                return again(started);
            }
        };
        let pid = process.id();
        self.place.status.lock().pid = Some(pid);
        // These tasks end when the last writer has closed the pipe.
        let name = self.name.clone();
        tokio::spawn(log_lines(output, move |line| tracing::info!(worker = %name, pid, "{line}")));
        let name = self.name.clone();
        tokio::spawn(log_lines(errors, move |line| tracing::warn!(worker = %name, pid, "{line}")));

        let ended = tokio::select! {
            // The end is polled first: if the process has ended, another program is accepting on its port.
            biased;
            ended = process.ended() => Some(ended),
            ready = timeout(self.config.start_timeout, ready(&self.place.address)) => {
                if ready.is_err() {
                    tracing::error!(
                        worker = %self.name, pid, timeout = ?self.config.start_timeout,
                        "a worker takes no connections within its time to start, and is stopped"
                    );
                    process.stop(self.config.stop_timeout).await;
                    return again(Instant::now());
                }
                None
            }
            _ = self.stopped.changed() => {
                self.place.state.send_replace(WorkerState::Stopping);
                process.stop(self.config.stop_timeout).await;
                return RunEnd::Stopped;
            }
        };
        if let Some(ended) = ended {
            tracing::error!(worker = %self.name, pid, "a worker {ended} before it took a connection");
            return again(Instant::now());
        }
        let ready = Instant::now();
        tracing::info!(worker = %self.name, pid, after = ?started.elapsed(), "a worker is ready");
        self.place.status.lock().since = Some(SystemTime::now());
        self.place.state.send_replace(WorkerState::Ready);
        tokio::select! {
            ended = process.ended() => {
                tracing::error!(worker = %self.name, pid, "a worker {ended}");
                again(ready)
            }
            _ = self.stopped.changed() => {
                self.place.state.send_replace(WorkerState::Stopping);
                process.stop(self.config.stop_timeout).await;
                RunEnd::Stopped
            }
        }
    }

    fn program(&self) -> io::Result<Program> {
        let replaced = |word: &String| {
            let word = word.replace("{class}", &self.class);
            let word = match &self.place.address {
                WorkerAddress::Unix(path) => word.replace("{socket}", &path.to_string_lossy()),
                WorkerAddress::Socket(address) => word.replace("{port}", &address.port().to_string()),
            };
            c_string(word)
        };
        let mut variables: Vec<(String, Vec<u8>)> = vec![
            ("PATH".to_owned(), path_variable().into_encoded_bytes()),
            ("SERPENT_CLASS".to_owned(), self.class.clone().into_bytes()),
        ];
        variables.retain(|(name, _)| !self.config.environment.iter().any(|(given, _)| given == name));
        variables
            .extend(self.config.environment.iter().map(|(name, value)| (name.clone(), value.clone().into_bytes())));
        let variable = |(name, value): (String, Vec<u8>)| c_string([name.into_bytes(), value].join(&b'='));
        Ok(Program {
            path: c_path(executable(&self.config)?)?,
            arguments: self.config.command.iter().map(replaced).collect::<io::Result<_>>()?,
            environment: variables.into_iter().map(variable).collect::<io::Result<_>>()?,
            directory: self.config.directory.clone().map(c_path).transpose()?,
            limits: Limits { real_time: Some(REAL_TIME_LIMIT), cpu: None },
            input: false,
        })
    }
}

/// Returns when a connection succeeds.
async fn ready(address: &WorkerAddress) {
    loop {
        let connected = match address {
            WorkerAddress::Unix(path) => UnixStream::connect(path).await.is_ok(),
            WorkerAddress::Socket(address) => TcpStream::connect(address).await.is_ok(),
        };
        if connected {
            return;
        }
        sleep(LOOK_AGAIN).await;
    }
}
