//! CGI: programs run for each request (RFC 3875), each with the processor priority of its request's class.
//!
//! - The path behind the route's prefix names the program; the rest is `PATH_INFO` (`lookup`). Programs are
//!   executable regular files below their directory. Links lead nowhere else, and names that start with a dot
//!   are not found.
//! - The environment starts empty. It gets `PATH`, the standard's variables and the configured ones
//!   (`variables`). The query never becomes an argument, because interpreters have taken such arguments for
//!   options.
//! - The head of the answer is parsed (`answer`); the body is passed on as it comes. Programs that write
//!   whole HTTP responses ("non-parsed header") are not supported; the log says so.
//! - A program is started on a thread for its priority ([`crate::programs`]). From then on it has a *keeper*:
//!   a task that writes the request's body to it, logs its standard error, enforces its time-out and waits
//!   for its end. The reader of the answer only reads. If the reader stops because the client is gone, the
//!   keeper kills the program's process group.
//! - Processes left in the program's process group are killed when it ends. A process that is to stay must
//!   start a session of its own.

mod answer;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod lookup;
#[cfg(test)]
mod tests;
mod variables;

use std::{
    convert::Infallible,
    ffi::CString,
    fmt,
    future::Future,
    io,
    net::SocketAddr,
    os::unix::ffi::OsStrExt as _,
    path::Path,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    task::{Context as TaskContext, Poll, ready},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use kernel::process::{Ended, Limits, c_path};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::unix::pipe,
    sync::oneshot,
    time::{Instant, sleep_until},
};

use self::{
    answer::{Head, ResponseHead},
    lookup::{Found, Programs},
    variables::Variables,
};
use crate::{
    body::{OriginBody, RequestBody, full},
    config::{CgiConfig, ForwardedField, HeaderRules, Priority},
    programs::{GRACE, Program, Running, Started, log_lines, on_spawner, receiver},
    upstream::{forget_client, take_named},
};

/// Bytes read from a program at once: the capacity of a pipe.
const READ_BYTES: usize = 64 << 10;

/// Longest processor time in a real-time class without waiting once. A program that computes for longer
/// belongs in an ordinary class, because it keeps all other threads from the processor.
const REAL_TIME_LIMIT: Duration = Duration::from_secs(10);

/// The programs of a route.
#[derive(Debug)]
pub struct Cgi(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    config: CgiConfig,
    programs: Programs,
    interpreter: Option<CString>,
    /// Variables of the server's own environment.
    passed_on: Vec<(String, Vec<u8>)>,
    running: AtomicU32,
    limits: Limits,
}

/// The parameters of a program, beside the request.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The decoded part of the path that matched the route; the program's name and its path follow. Empty
    /// where a pattern without a prefix matched.
    pub prefix: &'a str,
    /// The directory of the site's files, absolute, if it has any: `DOCUMENT_ROOT` and the beginning of
    /// `PATH_TRANSLATED`.
    pub root: Option<&'a Path>,
    /// The client's address, as told by trusted proxies.
    pub client: SocketAddr,
    /// This server's end of the connection.
    pub local: SocketAddr,
    /// The host of the request, without port.
    pub host: &'a str,
    /// Whether the connection is TLS.
    pub tls: bool,
    /// The user's name, if a correct password was given.
    pub user: Option<&'a str>,
    /// The field whose word about the client is passed on, because it came from a proxy that is trusted.
    pub believed: Option<ForwardedField>,
    /// Changes to the request's header. They are made here, after the client's hop-by-hop fields were taken out.
    /// Before that, a client could have the fields of a rule taken out, by naming them in `Connection`.
    pub rules: Option<&'a HeaderRules>,
    /// The class's name, as `SERPENT_CLASS`.
    pub class: &'a str,
    /// The class's processor priority.
    pub priority: Priority,
}

/// Why a program gave no answer.
#[derive(Debug)]
pub enum CgiError {
    /// There is no such program: 404.
    NotFound,
    /// The program may not be run: 403.
    Forbidden,
    /// Too many programs are running: 503.
    Busy,
    /// The program cannot be started: 500.
    Start(io::Error),
    /// The program ended without an answer, or with an invalid one: 502.
    Answer(String),
    /// The program took too long and was killed: 504.
    TimedOut,
    /// The client's body broke off.
    Request(io::Error),
}

/// The answer of a program.
#[derive(Debug)]
pub enum CgiAnswer {
    /// A response. Dropping its body kills the program.
    Response(Response<OriginBody>),
    /// A local redirect (RFC 3875, section 6.2.2) without fields for the client: the path and query to answer
    /// instead.
    Local(http::uri::PathAndQuery),
}

impl Cgi {
    /// Opens the directory, or the single program. Blocks.
    ///
    /// # Errors
    /// The error of the operating system, which the operator has to fix.
    pub fn open(config: &CgiConfig) -> io::Result<Self> {
        let programs = Programs::open(&config.program, config.interpreter.is_some())?;
        let interpreter = config.interpreter.as_deref().map(|interpreter| {
            let wrong = |error: io::Error| {
                io::Error::new(error.kind(), format!("cannot run {}: {error}", interpreter.display()))
            };
            let path = std::path::absolute(interpreter).map_err(wrong)?;
            if !std::fs::metadata(&path).map_err(wrong)?.is_file() {
                return Err(wrong(io::Error::new(io::ErrorKind::InvalidInput, "not a file")));
            }
            c_path(path)
        });
        let processors = std::thread::available_parallelism().map_or(1, |processors| processors.get() as u32);
        Ok(Self(Arc::new(Shared {
            programs,
            interpreter: interpreter.transpose()?,
            passed_on: config.pass_environment.iter().filter_map(|name| variables::own(name)).collect(),
            running: AtomicU32::new(0),
            limits: Limits {
                real_time: Some(config.timeout.min(REAL_TIME_LIMIT)),
                // A program's threads may use all processors for the whole time.
                cpu: Some(config.timeout.saturating_mul(processors)),
            },
            config: config.clone(),
        })))
    }

    /// Programs that are running.
    pub fn running(&self) -> u32 {
        self.0.running.load(Relaxed)
    }

    /// Runs the program that the request asks for. Dropping the future kills the program.
    pub async fn run(&self, mut request: Request<RequestBody>, context: Context<'_>) -> Result<CgiAnswer, CgiError> {
        let shared = &self.0;
        let headers = request.headers_mut();
        take_named(headers);
        forget_client(headers, context.believed);
        if let Some(rules) = context.rules {
            rules.apply(headers);
        }
        let place = Place::take(shared).ok_or(CgiError::Busy)?;
        let deadline = Instant::now() + shared.config.timeout;
        let is_head = request.method() == Method::HEAD;
        let mut variables = variables::of_request(&request, &context);
        if let Some(root) = context.root {
            variables.set("DOCUMENT_ROOT", root.as_os_str().as_bytes());
        }
        let (parts, body) = request.into_parts();
        let job = Job {
            shared: shared.clone(),
            variables,
            path: parts.uri.path().to_owned(),
            prefix: context.prefix.to_owned(),
            root: context.root.map(Path::to_owned),
            class: context.class.to_owned(),
            priority: context.priority,
            input: !body.is_end_stream(),
        };
        // Finding and starting the program does not count against its time-out, because the server causes
        // that delay.
        let started = on_spawner(context.priority, move || job.start()).await.map_err(CgiError::Start)?;
        let (name, started) = started?;
        let mut output = Output::keep(&name, started, body, place, deadline).map_err(CgiError::Start)?;
        let head = match output.head(shared.config.head_bytes).await {
            Ok(head) => head,
            Err(error) => {
                tracing::warn!(program = %name, %error, "no answer from a program");
                return Err(error);
            }
        };
        Ok(match head {
            Head::Local(target) => {
                output.discard();
                CgiAnswer::Local(target)
            }
            Head::Response(head) => CgiAnswer::Response(output.into_response(head, is_head, name)),
        })
    }
}

impl CgiError {
    /// The status for the client.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
            Self::Start(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Answer(_) => StatusCode::BAD_GATEWAY,
            Self::TimedOut => StatusCode::GATEWAY_TIMEOUT,
            Self::Request(_) => StatusCode::BAD_REQUEST,
        }
    }
}

impl fmt::Display for CgiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => write!(f, "there is no such program"),
            Self::Forbidden => write!(f, "the program may not be run"),
            Self::Busy => write!(f, "too many programs run"),
            Self::Start(error) => write!(f, "the program cannot be started: {error}"),
            Self::Answer(what) => write!(f, "the program's answer makes no sense: {what}"),
            Self::TimedOut => write!(f, "the program took too long, and was killed"),
            Self::Request(error) => write!(f, "the client's body broke off: {error}"),
        }
    }
}

impl std::error::Error for CgiError {}

/// One of the program slots of a route, until dropped.
#[derive(Debug)]
struct Place(Arc<Shared>);

impl Place {
    fn take(shared: &Arc<Shared>) -> Option<Self> {
        let most = shared.config.most_running.get();
        let taken = shared.running.fetch_update(Relaxed, Relaxed, |running| (running < most).then_some(running + 1));
        taken.is_ok().then(|| Self(shared.clone()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Relaxed);
    }
}

/// The work of finding and starting a program, for a thread that may block.
struct Job {
    shared: Arc<Shared>,
    variables: Variables,
    path: String,
    prefix: String,
    root: Option<std::path::PathBuf>,
    class: String,
    priority: Priority,
    input: bool,
}

impl Job {
    fn start(self) -> Result<(String, Started), CgiError> {
        let Self { shared, mut variables, path, prefix, root, class, priority, input } = self;
        let found = shared.programs.find(&path, prefix.as_bytes(), shared.interpreter.is_some())?;
        let Found { path, script_name, path_info } = found;
        variables.set("SCRIPT_NAME", script_name);
        variables.set("SCRIPT_FILENAME", path.as_os_str().as_bytes());
        if !path_info.is_empty() {
            if let Some(root) = root {
                let root = root.as_os_str().as_bytes();
                variables.set("PATH_TRANSLATED", [root.strip_suffix(b"/").unwrap_or(root), &path_info].concat());
            }
            variables.set("PATH_INFO", path_info);
        }
        for (name, value) in &shared.passed_on {
            variables.set(name, value);
        }
        for (name, value) in &shared.config.environment {
            variables.set(name, value);
        }
        let name = path.display().to_string();
        let directory = path.parent().map(c_path).transpose().map_err(CgiError::Start)?;
        let script = c_path(path).map_err(CgiError::Start)?;
        let (program, arguments) = match &shared.interpreter {
            // php-cgi runs nothing without this variable, which shows that a server started it.
            Some(interpreter) => {
                variables.set("REDIRECT_STATUS", "200");
                (interpreter.clone(), vec![interpreter.clone(), script])
            }
            None => (script.clone(), vec![script]),
        };
        let environment = variables.into_environment().map_err(CgiError::Start)?;
        let limits = shared.limits;
        let program = Program { path: program, arguments, environment, directory, limits, input };
        match program.start(&class, priority) {
            Ok(started) => Ok((name, started)),
            Err(error) => {
                tracing::warn!(program = %name, %class, %error, "a program cannot be started");
                Err(CgiError::Start(error))
            }
        }
    }
}

/// Why an answer stays incomplete, sent from the keeper to the reader of the answer.
#[derive(Debug)]
enum Cut {
    TimedOut,
    Request(io::Error),
}

/// The reader's message to the keeper that it has finished: the pipe's rest, to be drained so that the
/// program can end normally. If the sender is dropped without a message, the keeper kills the program.
type Done = Option<pipe::Receiver>;

/// Looks after a program from its start to its end.
struct Keeper {
    name: String,
    program: Running,
    deadline: Instant,
    cut: Option<oneshot::Sender<Cut>>,
    done: oneshot::Receiver<Done>,
    place: Place,
}

impl Keeper {
    async fn keep(mut self, input: Option<pipe::Sender>, body: RequestBody, errors: pipe::Receiver) {
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
                    tracing::warn!(program = %self.name, pid, timeout = ?self.place.0.config.timeout, "a program took too long, and is killed");
                    self.cut(Cut::TimedOut);
                    break self.program.stop(GRACE).await;
                }
                result = &mut feed, if !fed => {
                    fed = true;
                    if let Err(error) = result {
                        self.cut(Cut::Request(error));
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
        self.cut = None;
        // The last of standard error is in the pipe. A process outside the group that holds the pipe open is
        // not waited for.
        if !logged {
            let _ = tokio::time::timeout(GRACE, log).await;
        }
    }

    fn cut(&mut self, why: Cut) {
        if let Some(cut) = self.cut.take() {
            let _ = cut.send(why);
        }
    }
}

/// Reads and discards the rest of an answer, so that the program's writes do not fail. Never returns.
async fn drain(left: Done) -> Infallible {
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

/// The output of a program, for the reader of the answer.
#[derive(Debug)]
struct Output {
    stream: pipe::Receiver,
    read: BytesMut,
    /// `None`: the keeper has finished, so the program has ended.
    cut: Option<oneshot::Receiver<Cut>>,
    done: Option<oneshot::Sender<Done>>,
}

impl Output {
    /// Spawns the keeper of a started program.
    fn keep(name: &str, started: Started, body: RequestBody, place: Place, deadline: Instant) -> io::Result<Self> {
        let Started { process, input, output, errors } = started;
        let program = Running::new(process)?;
        let input = input.map(pipe::Sender::from_owned_fd).transpose()?;
        let (errors, stream) = (receiver(errors)?, receiver(output)?);
        let (cut_sender, cut) = oneshot::channel();
        let (done_sender, done) = oneshot::channel();
        let keeper = Keeper { name: name.to_owned(), program, deadline, cut: Some(cut_sender), done, place };
        tokio::spawn(keeper.keep(input, body, errors));
        Ok(Self { stream, read: BytesMut::new(), cut: Some(cut), done: Some(done_sender) })
    }

    /// Reads more output; `false` at the end.
    fn poll_more(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<bool, Cut>> {
        if let Some(cut) = &mut self.cut {
            // Polled first, because the output of a killed program ends too.
            match Pin::new(cut).poll(cx) {
                Poll::Pending => {}
                Poll::Ready(Ok(cut)) => {
                    self.cut = None;
                    return Poll::Ready(Err(cut));
                }
                Poll::Ready(Err(_)) => self.cut = None,
            }
        }
        self.read.reserve(READ_BYTES);
        if self.cut.is_none() {
            return Poll::Ready(Ok(self.read_left()));
        }
        loop {
            if ready!(self.stream.poll_read_ready(cx)).is_err() {
                return Poll::Ready(Ok(false));
            }
            match self.stream.try_read_buf(&mut self.read) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(Ok(result.is_ok_and(|read| read > 0))),
            }
        }
    }

    /// Reads the output that an ended program left in its pipe. A process outside the group that holds the
    /// pipe open is not waited for. It reads directly, since the runtime may not have been notified of the
    /// data yet.
    fn read_left(&mut self) -> bool {
        let mut buffer = [0; 4096];
        match rustix::io::retry_on_intr(|| rustix::io::read(&self.stream, &mut buffer)) {
            Ok(read) => {
                self.read.extend_from_slice(&buffer[..read]);
                read > 0
            }
            Err(_) => false,
        }
    }

    /// Reads the head; the start of the body stays in `read`.
    async fn head(&mut self, limit_bytes: usize) -> Result<Head, CgiError> {
        let wrong = |what: &str| Err(CgiError::Answer(what.to_owned()));
        let mut seen = 0;
        loop {
            let end = answer::end(&self.read, seen);
            if end.unwrap_or(self.read.len()) > limit_bytes {
                return Err(CgiError::Answer(format!("its head is longer than {limit_bytes} bytes")));
            }
            if let Some(end) = end {
                let head = self.read.split_to(end);
                return answer::parse(&head).map_err(CgiError::Answer);
            }
            seen = self.read.len();
            match std::future::poll_fn(|cx| self.poll_more(cx)).await {
                Ok(true) => {}
                Ok(false) if seen == 0 => return wrong("it ended without any"),
                Ok(false) => return wrong("it ended before the empty line after its head"),
                Err(Cut::TimedOut) => return Err(CgiError::TimedOut),
                Err(Cut::Request(error)) => return Err(CgiError::Request(error)),
            }
        }
    }

    /// Gives the rest of the output to the keeper, which drains it.
    fn discard(self) {
        let Self { stream, done, .. } = self;
        if let Some(done) = done {
            let _ = done.send(Some(stream));
        }
    }

    fn into_response(self, head: ResponseHead, is_head: bool, name: String) -> Response<OriginBody> {
        let ResponseHead { status, fields, len_bytes } = head;
        // These statuses allow no length but 0.
        let empty = matches!(status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT);
        let body = if is_head || empty || status == StatusCode::NOT_MODIFIED || len_bytes == Some(0) {
            self.discard();
            full(Bytes::new())
        } else {
            ProgramBody { output: Some(self), left_bytes: len_bytes, name }.boxed_unsync()
        };
        let mut response = Response::new(body);
        *response.status_mut() = status;
        *response.headers_mut() = fields;
        if let (Some(len_bytes), false) = (len_bytes, empty) {
            response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(len_bytes));
        }
        response
    }
}

/// The body of a program's answer. Dropping it before its end kills the program.
#[derive(Debug)]
struct ProgramBody {
    /// `None`: the end.
    output: Option<Output>,
    /// The remaining bytes, if the program gave a length.
    left_bytes: Option<u64>,
    name: String,
}

impl ProgramBody {
    /// Takes the bytes read that belong to the body.
    fn take(&mut self) -> Option<Bytes> {
        let output = self.output.as_mut().filter(|output| !output.read.is_empty())?;
        let mut data = output.read.split().freeze();
        if let Some(left_bytes) = &mut self.left_bytes {
            if data.len() as u64 > *left_bytes {
                tracing::warn!(program = %self.name, "a program writes more than its Content-Length: the rest is cut off");
                data.truncate(usize::try_from(*left_bytes).unwrap_or(usize::MAX));
            }
            *left_bytes -= data.len() as u64;
            if *left_bytes == 0
                && let Some(output) = self.output.take()
            {
                output.discard();
            }
        }
        Some(data)
    }
}

impl Body for ProgramBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        loop {
            if let Some(data) = self.take() {
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
            let Some(output) = &mut self.output else { return Poll::Ready(None) };
            let error = match ready!(output.poll_more(cx)) {
                Ok(true) => continue,
                Ok(false) => {
                    if let Some(done) = output.done.take() {
                        let _ = done.send(None);
                    }
                    match self.left_bytes {
                        Some(1..) => io::Error::new(
                            io::ErrorKind::UnexpectedEof,
                            format!("{} has written less than its Content-Length", self.name),
                        ),
                        _ => {
                            self.output = None;
                            return Poll::Ready(None);
                        }
                    }
                }
                Err(Cut::TimedOut) => io::Error::new(io::ErrorKind::TimedOut, CgiError::TimedOut.to_string()),
                Err(Cut::Request(error)) => error,
            };
            self.output = None;
            tracing::warn!(program = %self.name, %error, "a program's answer is cut off");
            return Poll::Ready(Some(Err(error)));
        }
    }

    fn is_end_stream(&self) -> bool {
        self.output.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match (self.left_bytes, &self.output) {
            (Some(bytes), _) => SizeHint::with_exact(bytes),
            (None, Some(_)) => SizeHint::new(),
            (None, None) => SizeHint::with_exact(0),
        }
    }
}
