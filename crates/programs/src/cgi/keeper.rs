//! Looks after a running program: writes the request's body to it, logs its standard error, enforces its
//! time-out, and waits for its end.

use std::{convert::Infallible, io, time::Duration};

use bodies::RequestBody;
use http_body_util::BodyExt as _;
use kernel::process::Ended;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::unix::pipe,
    sync::oneshot,
    time::{Instant, sleep_until},
};

use crate::{
    lines::log_lines,
    output::Incomplete,
    program::{GRACE, Running},
    slot::ProgramSlot,
};

/// The reader's message to the keeper that it has finished: the pipe's rest, to be drained so that the
/// program can end normally. If the sender is dropped without a message, the keeper kills the program.
pub(super) type RestToDrain = Option<pipe::Receiver>;

/// Looks after a program from its start to its end.
pub(super) struct Keeper {
    pub(super) name: String,
    pub(super) program: Running,
    pub(super) deadline: Instant,
    /// For the log.
    pub(super) timeout: Duration,
    pub(super) incomplete: Option<oneshot::Sender<Incomplete>>,
    pub(super) done: oneshot::Receiver<RestToDrain>,
    /// Held until the program has ended.
    #[expect(dead_code, reason = "held")]
    pub(super) slot: ProgramSlot,
}

impl Keeper {
    pub(super) async fn keep(mut self, input: Option<pipe::Sender>, body: RequestBody, errors: pipe::Receiver) {
        let pid = self.program.id();
        let name = self.name.clone();
        let log = log_lines(errors, |line| tracing::warn!(program = %name, pid, "{line}"));
        let mut log = std::pin::pin!(log);
        let feed = async {
            match input {
                Some(input) => feed(input, body).await,
                None => Ok(()),
            }
        };
        let mut feed = std::pin::pin!(feed);
        let mut rest = std::pin::pin!(drain(None));
        let (mut fed, mut logged, mut told) = (false, false, false);
        let ended = loop {
            tokio::select! {
                ended = self.program.ended() => break ended,
                () = sleep_until(self.deadline) => {
                    tracing::warn!(program = %self.name, pid, timeout = ?self.timeout, "a program took too long, and is killed");
                    self.report(Incomplete::TimedOut);
                    break self.program.stop(GRACE).await;
                }
                result = &mut feed, if !fed => {
                    fed = true;
                    if let Err(error) = result {
                        self.report(Incomplete::Request(error));
                        break self.program.stop(GRACE).await;
                    }
                }
                done = &mut self.done, if !told => {
                    told = true;
                    match done {
                        Ok(left) => rest.set(drain(left)),
                        // The client is gone.
                        Err(_) => break self.program.stop(GRACE).await,
                    }
                }
                never = &mut rest, if told => match never {},
                () = &mut log, if !logged => logged = true,
            }
        };
        match ended {
            Ended::Exit(0) => {}
            Ended::Signal(_) if !told => tracing::warn!(program = %self.name, pid, "a program {ended}"),
            ended => tracing::debug!(program = %self.name, pid, "a program {ended}"),
        }
        // Tells the reader that the program has ended, so the pipe holds the rest of the answer.
        self.incomplete = None;
        // The last of standard error is in the pipe. A process outside the group that holds the pipe open is
        // not waited for.
        if !logged {
            let _ = tokio::time::timeout(GRACE, log).await;
        }
    }

    fn report(&mut self, why: Incomplete) {
        if let Some(incomplete) = self.incomplete.take() {
            let _ = incomplete.send(why);
        }
    }
}

/// Reads and discards the rest of an answer, so that the program's writes do not fail. Never returns.
async fn drain(left: RestToDrain) -> Infallible {
    let Some(mut left) = left else { return std::future::pending().await };
    let mut buffer = [0; 4096];
    while let Ok(1..) = left.read(&mut buffer).await {}
    std::future::pending().await
}

/// Writes the request's body to a program. A program may leave the body unread; an error is the client's.
async fn feed(mut input: pipe::Sender, mut body: RequestBody) -> io::Result<()> {
    while let Some(frame) = body.frame().await {
        // CGI has no trailers.
        let Ok(data) = frame?.into_data() else { continue };
        if input.write_all(&data).await.is_err() {
            break;
        }
    }
    Ok(())
}
