//! Runs the program that a request asks for.

use std::{ffi::CString, io, os::unix::ffi::OsStrExt as _, path::Path, sync::Arc, time::Duration};

use bodies::{OriginBody, RequestBody};
use http::{Method, Request, Response};
use http_body::Body as _;
use kernel::process::{Limits, c_path};
use tokio::time::Instant;

use super::{
    lookup::{Found, Programs},
    output::PipeOutput,
};
use crate::{
    answer::Head,
    config::{CgiConfig, Priority},
    context::Context,
    error::CgiError,
    output::{self, Output as _},
    program::{Program, Started},
    slot::Slots,
    spawner::on_spawner,
    variables::{self, Variables},
};

/// Longest processor time in a real-time class without waiting once. A program that computes for longer
/// belongs in an ordinary class, because it keeps all other threads from the processor.
const REAL_TIME_LIMIT: Duration = Duration::from_secs(10);

/// The programs of a route.
#[derive(Debug)]
pub struct Cgi(Arc<Shared>);

/// The programs of a route, shared by all requests for them.
#[derive(Debug)]
struct Shared {
    config: CgiConfig,
    programs: Programs,
    interpreter: Option<CString>,
    /// Variables of the server's own environment.
    passed_on: Vec<(String, Vec<u8>)>,
    slots: Arc<Slots>,
    limits: Limits,
}

/// The answer of a program or an application.
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
            slots: Slots::new(config.most_running),
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
        self.0.slots.running()
    }

    /// Runs the program that the request asks for. Dropping the future kills the program.
    pub async fn run(&self, mut request: Request<RequestBody>, context: Context<'_>) -> Result<CgiAnswer, CgiError> {
        let shared = &self.0;
        context.prepare(request.headers_mut());
        let slot = shared.slots.take().ok_or(CgiError::Busy)?;
        let deadline = Instant::now() + shared.config.timeout;
        let is_head = request.method() == Method::HEAD;
        let mut variables = variables::of_request(&request, &context);
        variables.set("PATH", crate::program::path_variable().as_bytes());
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
        let times = (deadline, shared.config.timeout);
        let mut output = PipeOutput::keep(&name, started, body, slot, times).map_err(CgiError::Start)?;
        let head = match output::head(&mut output, shared.config.head_bytes).await {
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
            Head::Response(head) => CgiAnswer::Response(output::into_response(output, head, is_head, name)),
        })
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
