//! Worker processes: servers that this process starts for upstreams with a command. Each class has a pool of
//! them with its processor priority.
//!
//! - A process listens on a Unix socket in a folder that only this server's user may enter, or on a loopback
//!   port. The address stays the same over restarts.
//! - It is ready when a connection to it succeeds. A process that is not ready in time is stopped and counts
//!   as ended. Another program may take a port during a restart; sockets are safer.
//! - A process that ends is restarted after a pause. The pause is short if the process served for a while;
//!   otherwise it doubles, up to half a minute. Restarts never stop: the cause may be fixed, and every
//!   attempt is in the log.
//! - At a reload, processes with unchanged command and class stay. The successors of the others are started
//!   beside them ([`Workers::reload`]). The old ones end when the last request has released their
//!   configuration. If no successor gets ready, the reload fails and the old processes stay
//!   ([`Workers::wait_until_ready`]).
//!
//! One thread supervises all processes. It outlives [`Workers`] and ends with the last process.

use std::{
    collections::HashMap,
    fs,
    future::Future,
    io::{self, ErrorKind},
    net::{Ipv4Addr, TcpListener},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime},
};

use kernel::process::{Limits, c_path, c_string};
use parking_lot::Mutex;
use tokio::{
    net::{TcpStream, UnixStream},
    runtime::Handle,
    sync::{mpsc, watch},
    time::{Instant, sleep, timeout},
};

use crate::{
    config::{ClassConfig, Priority, UpstreamAddress, UpstreamConfig, UpstreamServer, WorkersConfig},
    programs::{Program, Running, log_lines, on_spawner, path_variable, receiver},
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

/// Longest path of a Unix socket (`sun_path`, less the NUL).
const SOCKET_PATH_BYTES: usize = 107;

/// The processes of all upstreams with a command. Dropping this stops them.
#[derive(Debug)]
pub struct Workers {
    folder: PathBuf,
    pools: HashMap<Key, Arc<Pool>>,
    /// The classes' names, in their order.
    classes: Vec<String>,
    /// Pools that this started itself, rather than shares with an earlier configuration.
    new: Vec<Key>,
    supervisor: Arc<Supervisor>,
}

/// The identity of a pool over a reload.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    upstream: String,
    /// The class's name, because its index changes when an earlier class is removed.
    class: String,
}

/// The processes of one upstream and class.
#[derive(Debug)]
struct Pool {
    priority: Priority,
    config: WorkersConfig,
    processes: Vec<Arc<Slot>>,
    /// A message, or dropping the sender, stops the processes.
    stop: watch::Sender<()>,
}

/// The place of one process and of its restarts.
#[derive(Debug)]
struct Slot {
    number: u32,
    address: UpstreamAddress,
    now: Mutex<Now>,
    state: watch::Sender<WorkerState>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Now {
    pid: Option<u32>,
    since: Option<SystemTime>,
    restarts: u64,
}

impl Now {
    fn ended(&mut self) {
        (self.pid, self.since) = (None, None);
    }
}

/// The state of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerState {
    /// It does not accept connections yet.
    Starting,
    /// It serves.
    Ready,
    /// It has ended, and is restarted after a pause.
    Waiting,
    /// It was asked to end.
    Stopping,
    /// It has ended and is not restarted.
    Stopped,
}

/// The statistics of a process.
#[derive(Clone, Debug)]
pub struct WorkerStats {
    /// The upstream's name.
    pub upstream: String,
    /// The class's name.
    pub class: String,
    /// The number within its pool.
    pub process: u32,
    /// The process id, while there is a process.
    pub pid: Option<u32>,
    /// Its current state.
    pub state: WorkerState,
    /// When it became ready.
    pub since: Option<SystemTime>,
    /// How often it was restarted.
    pub restarts: u64,
}

impl Workers {
    /// Starts all processes without waiting for them, and restarts those that end. `folder` holds their
    /// sockets; it is made so that only this server's user may enter it. Blocks for moments. Needs no
    /// runtime.
    ///
    /// # Errors
    /// The command cannot be run, or the folder not be used; the operator has to fix it.
    pub fn start(upstreams: &[UpstreamConfig], classes: &[ClassConfig], folder: &Path) -> io::Result<Self> {
        let supervisor = Arc::new(Supervisor::start()?);
        let (folder, pools) = (folder.to_owned(), HashMap::new());
        let none = Self { folder, pools, classes: Vec::new(), new: Vec::new(), supervisor };
        none.reload(upstreams, classes)
    }

    /// Makes the processes of a changed configuration: unchanged pools are shared, others are started. Drop
    /// the old value when the new processes are [ready](Self::wait_until_ready) and no request uses the old
    /// ones any more.
    ///
    /// # Errors
    /// Those of [`Workers::start`]; then nothing has changed.
    pub fn reload(&self, upstreams: &[UpstreamConfig], classes: &[ClassConfig]) -> io::Result<Self> {
        let with_workers = || upstreams.iter().filter_map(|upstream| Some((upstream, upstream.workers.as_ref()?)));
        for (upstream, config) in with_workers() {
            check(config).map_err(|error| {
                io::Error::new(error.kind(), format!("workers of the upstream {}: {error}", upstream.name))
            })?;
        }
        if with_workers().next().is_some() {
            private(&self.folder)?;
        }
        let (mut pools, mut new) = (HashMap::new(), Vec::new());
        for (upstream, config) in with_workers() {
            for class in classes {
                let key = Key { upstream: upstream.name.clone(), class: class.name.clone() };
                let same = |pool: &&Arc<Pool>| pool.config == *config && pool.priority == class.priority;
                let pool = match self.pools.get(&key).filter(same) {
                    Some(pool) => pool.clone(),
                    None => {
                        new.push(key.clone());
                        Arc::new(self.pool(&upstream.name, config, class)?)
                    }
                };
                pools.insert(key, pool);
            }
        }
        let classes = classes.iter().map(|class| class.name.clone()).collect();
        Ok(Self { folder: self.folder.clone(), pools, classes, new, supervisor: self.supervisor.clone() })
    }

    fn pool(&self, upstream: &str, config: &WorkersConfig, class: &ClassConfig) -> io::Result<Pool> {
        let slots = (0..config.processes.get()).map(|number| {
            let address = if config.command.iter().any(|word| word.contains("{port}")) {
                let port = free_port()?;
                UpstreamAddress::Socket((Ipv4Addr::LOCALHOST, port).into())
            } else {
                UpstreamAddress::Unix(socket_path(&self.folder, upstream, &class.name)?)
            };
            let state = watch::Sender::new(WorkerState::Starting);
            Ok(Arc::new(Slot { number, address, now: Mutex::default(), state }))
        });
        let processes = slots.collect::<io::Result<Vec<_>>>()?;
        let (stop, stopped) = watch::channel(());
        for slot in &processes {
            let keeper = Keeper {
                name: format!("{upstream} {} {}", class.name, slot.number),
                slot: slot.clone(),
                config: config.clone(),
                class: class.name.clone(),
                priority: class.priority,
                stopped: stopped.clone(),
            };
            self.supervisor.watch(keeper);
        }
        Ok(Pool { priority: class.priority, config: config.clone(), processes, stop })
    }

    /// The addresses of an upstream's processes: by class, in the classes' order, then by process.
    pub fn servers(&self, upstream: &UpstreamConfig) -> Vec<Vec<UpstreamServer>> {
        let server = |slot: &Arc<Slot>| UpstreamServer {
            address: slot.address.clone(),
            http2: None,
            tls: false,
            authority: http::uri::Authority::from_static("localhost"),
        };
        let of = |class: &String| {
            let pool = self.pools.get(&Key { upstream: upstream.name.clone(), class: class.clone() });
            pool.map_or_else(Vec::new, |pool| pool.processes.iter().map(server).collect())
        };
        self.classes.iter().map(of).collect()
    }

    /// Waits until every process that this started accepts connections, has ended, or has used up its start
    /// time from now. Unchanged pools are not waited for. Blocks; not for threads of a runtime.
    ///
    /// # Errors
    /// A pool has no ready process; the operator has to fix it. Its processes are still restarted until this
    /// is dropped.
    pub fn wait_until_ready(&self) -> io::Result<()> {
        let new: Vec<_> = self.new.iter().filter_map(|key| Some((key, self.pools.get(key)?.clone()))).collect();
        let pools: Vec<_> = new.iter().map(|(_, pool)| pool.clone()).collect();
        self.supervisor.wait_for(async move {
            let begin = Instant::now();
            for pool in pools {
                for slot in &pool.processes {
                    let mut state = slot.state.subscribe();
                    let ready = state.wait_for(|state| *state != WorkerState::Starting);
                    let _ = tokio::time::timeout_at(begin + pool.config.start_timeout, ready).await;
                }
            }
        });
        let serves = |pool: &Pool| pool.processes.iter().any(|slot| *slot.state.borrow() == WorkerState::Ready);
        match new.iter().find(|(_, pool)| !serves(pool)) {
            None => Ok(()),
            Some((key, pool)) => Err(io::Error::new(
                ErrorKind::TimedOut,
                format!(
                    "{} for the class {} of the upstream {}: no process takes connections (see the log)",
                    shown(&pool.config),
                    key.class,
                    key.upstream
                ),
            )),
        }
    }

    /// The statistics of all processes.
    pub fn stats(&self) -> Vec<WorkerStats> {
        let place = |key: &Key| self.classes.iter().position(|class| *class == key.class);
        let mut pools: Vec<_> = self.pools.iter().collect();
        pools.sort_by_key(|(key, _)| (&key.upstream, place(key)));
        let of = |(key, pool): (&Key, &Arc<Pool>)| {
            let stats = |slot: &Arc<Slot>| {
                let now = *slot.now.lock();
                WorkerStats {
                    upstream: key.upstream.clone(),
                    class: key.class.clone(),
                    process: slot.number,
                    pid: now.pid,
                    state: *slot.state.borrow(),
                    since: now.since,
                    restarts: now.restarts,
                }
            };
            pool.processes.iter().map(stats).collect::<Vec<_>>()
        };
        pools.into_iter().flat_map(of).collect()
    }

    /// Stops all processes, shared ones included, and waits for their ends. Blocks for up to the longest
    /// `stop_timeout`; not for threads of a runtime.
    pub fn stop(&self) {
        let pools: Vec<_> = self.pools.values().cloned().collect();
        for pool in &pools {
            pool.stop.send_replace(());
        }
        self.supervisor.wait_for(async move {
            for slot in pools.iter().flat_map(|pool| &pool.processes) {
                let _ = slot.state.subscribe().wait_for(|state| *state == WorkerState::Stopped).await;
            }
        });
    }
}

/// The thread that supervises the processes.
#[derive(Debug)]
struct Supervisor {
    runtime: Handle,
    /// Each keeper holds a clone; the thread ends when all are dropped.
    alive: mpsc::Sender<()>,
}

impl Supervisor {
    fn start() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (alive, mut nobody) = mpsc::channel::<()>(1);
        let handle = runtime.handle().clone();
        std::thread::Builder::new().name("workers".to_owned()).spawn(move || {
            runtime.block_on(async { while nobody.recv().await.is_some() {} });
        })?;
        Ok(Self { runtime: handle, alive })
    }

    fn watch(&self, keeper: Keeper) {
        let alive = self.alive.clone();
        self.runtime.spawn(async move {
            keeper.keep().await;
            drop(alive);
        });
    }

    fn wait_for(&self, what: impl Future<Output = ()> + Send + 'static) {
        let (done, waits) = std::sync::mpsc::channel::<()>();
        self.runtime.spawn(async move {
            what.await;
            drop(done);
        });
        // An error means that all keepers have ended.
        let _ = waits.recv();
    }
}

/// Keeps one process running.
struct Keeper {
    name: String,
    slot: Arc<Slot>,
    config: WorkersConfig,
    class: String,
    priority: Priority,
    stopped: watch::Receiver<()>,
}

/// Why a process does not run any more.
enum Over {
    /// It is restarted.
    Again { served: Duration },
    /// It was stopped.
    Stopped,
}

impl Keeper {
    async fn keep(mut self) {
        let mut pause = FIRST_PAUSE;
        loop {
            self.slot.state.send_replace(WorkerState::Starting);
            let over = self.run().await;
            self.slot.now.lock().ended();
            let Over::Again { served } = over else { break };
            if served >= SETTLED {
                pause = FIRST_PAUSE;
            }
            self.slot.state.send_replace(WorkerState::Waiting);
            tracing::warn!(worker = %self.name, ?pause, "a worker is started again after a pause");
            tokio::select! {
                () = sleep(pause) => {}
                _ = self.stopped.changed() => break,
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
            self.slot.now.lock().restarts += 1;
        }
        if let UpstreamAddress::Unix(path) = &self.slot.address {
            let _ = fs::remove_file(path);
        }
        self.slot.state.send_replace(WorkerState::Stopped);
    }

    /// Runs one process from its start to its end.
    async fn run(&mut self) -> Over {
        let started = Instant::now();
        let again = |since: Instant| Over::Again { served: since.elapsed() };
        let program = match self.program() {
            Ok(program) => program,
            Err(error) => {
                tracing::error!(worker = %self.name, %error, "a worker cannot be started");
                return again(started);
            }
        };
        let (class, priority) = (self.class.clone(), self.priority);
        let address = self.slot.address.clone();
        let start = move || {
            // A socket left by an earlier process would prevent listening.
            if let UpstreamAddress::Unix(path) = &address {
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
        self.slot.now.lock().pid = Some(pid);
        // These tasks end when the last writer has closed the pipe.
        let name = self.name.clone();
        tokio::spawn(log_lines(output, move |line| tracing::info!(worker = %name, pid, "{line}")));
        let name = self.name.clone();
        tokio::spawn(log_lines(errors, move |line| tracing::warn!(worker = %name, pid, "{line}")));

        let ended = tokio::select! {
            // The end is polled first: if the process has ended, another program is accepting on its port.
            biased;
            ended = process.ended() => Some(ended),
            ready = timeout(self.config.start_timeout, ready(&self.slot.address)) => {
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
                self.slot.state.send_replace(WorkerState::Stopping);
                process.stop(self.config.stop_timeout).await;
                return Over::Stopped;
            }
        };
        if let Some(ended) = ended {
            tracing::error!(worker = %self.name, pid, "a worker {ended} before it took a connection");
            return again(Instant::now());
        }
        let ready = Instant::now();
        tracing::info!(worker = %self.name, pid, after = ?started.elapsed(), "a worker is ready");
        self.slot.now.lock().since = Some(SystemTime::now());
        self.slot.state.send_replace(WorkerState::Ready);
        tokio::select! {
            ended = process.ended() => {
                tracing::error!(worker = %self.name, pid, "a worker {ended}");
                again(ready)
            }
            _ = self.stopped.changed() => {
                self.slot.state.send_replace(WorkerState::Stopping);
                process.stop(self.config.stop_timeout).await;
                Over::Stopped
            }
        }
    }

    fn program(&self) -> io::Result<Program> {
        let replaced = |word: &String| {
            let word = word.replace("{class}", &self.class);
            let word = match &self.slot.address {
                UpstreamAddress::Unix(path) => word.replace("{socket}", &path.to_string_lossy()),
                UpstreamAddress::Socket(address) => word.replace("{port}", &address.port().to_string()),
                UpstreamAddress::Name(..) => word,
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
async fn ready(address: &UpstreamAddress) {
    loop {
        let connected = match address {
            UpstreamAddress::Unix(path) => UnixStream::connect(path).await.is_ok(),
            UpstreamAddress::Socket(address) => TcpStream::connect(address).await.is_ok(),
            UpstreamAddress::Name(..) => true,
        };
        if connected {
            return;
        }
        sleep(LOOK_AGAIN).await;
    }
}

/// The part of a command that may be shown; arguments may be secrets.
fn shown(config: &WorkersConfig) -> &str {
    config.command.first().map_or("", String::as_str)
}

fn wrong(what: impl Into<String>) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, what.into())
}

fn check(config: &WorkersConfig) -> io::Result<()> {
    let uses = |what: &str| config.command.iter().any(|word| word.contains(what));
    match (uses("{socket}"), uses("{port}")) {
        (false, false) => return Err(wrong("the command does not say where to listen: it needs {socket} or {port}")),
        (true, true) => return Err(wrong("the command has both {socket} and {port}: a worker listens in one place")),
        _ => {}
    }
    if let Some(directory) = &config.directory
        && !fs::metadata(directory)
            .map_err(|error| io::Error::new(error.kind(), format!("directory {}: {error}", directory.display())))?
            .is_dir()
    {
        return Err(wrong(format!("{} is not a directory", directory.display())));
    }
    executable(config).map(|_| ())
}

/// The path of a command's program, searched for as a shell does.
fn executable(config: &WorkersConfig) -> io::Result<PathBuf> {
    let name = config.command.first().ok_or_else(|| wrong("the command is empty"))?;
    let may = |path: &Path| {
        fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    };
    if name.contains('/') {
        let path = match &config.directory {
            Some(directory) => directory.join(name),
            None => PathBuf::from(name),
        };
        let path = std::path::absolute(path)?;
        fs::metadata(&path).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
        return if may(&path) {
            Ok(path)
        } else {
            Err(io::Error::new(ErrorKind::PermissionDenied, format!("{} is not executable", path.display())))
        };
    }
    let found = std::env::split_paths(&path_variable()).map(|folder| folder.join(name)).find(|path| may(path));
    found.ok_or_else(|| io::Error::new(ErrorKind::NotFound, format!("there is no program {name} in PATH")))
}

/// Makes the folder, or checks that it belongs to this user alone.
fn private(folder: &Path) -> io::Result<()> {
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("folder of sockets {}: {error}", folder.display()));
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(named)?;
    // Links are not followed, because their owner could redirect them.
    let metadata = fs::symlink_metadata(folder).map_err(named)?;
    if !metadata.is_dir() || metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(named(io::Error::new(ErrorKind::PermissionDenied, "it is not ours (remove it, or name another)")));
    }
    if metadata.permissions().mode() & 0o077 != 0 {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).map_err(named)?;
    }
    Ok(())
}

/// A unique path for a socket, also if other processes use the folder: `shop-gold-PID-7.socket`.
fn socket_path(folder: &Path, upstream: &str, class: &str) -> io::Result<PathBuf> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let plain = |name: &str| -> String {
        name.chars().take(12).map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' }).collect()
    };
    let (pid, number) = (std::process::id(), NUMBER.fetch_add(1, Relaxed));
    let path = folder.join(format!("{}-{}-{pid}-{number}.socket", plain(upstream), plain(class)));
    if path.as_os_str().len() > SOCKET_PATH_BYTES {
        return Err(wrong(format!("{} is too long for the path of a socket: name a shorter folder", path.display())));
    }
    if path.to_str().is_none() {
        return Err(wrong(format!("{} is not UTF-8: name another folder", folder.display())));
    }
    Ok(path)
}

/// An unused loopback port below the system's ephemeral range. A port of that range might be taken while a
/// process restarts.
fn free_port() -> io::Result<u16> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok();
    let ephemeral = range.and_then(|range| range.split_whitespace().next()?.parse::<u16>().ok()).unwrap_or(32768);
    let first = 10_000;
    let count = u64::from(ephemeral.saturating_sub(first));
    for _ in 0..count {
        let at = (u64::from(std::process::id()) * 97 + NEXT.fetch_add(1, Relaxed)) % count;
        let port = first + at as u16;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    // No port below the range was free.
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

#[cfg(test)]
mod tests;
