//! Has an application answer a request.

use std::{io, os::unix::ffi::OsStrExt as _, path::Path, sync::Arc};

use bodies::RequestBody;
use bytes::{Bytes, BytesMut};
use files::SymlinkPolicy;
use http::{Method, Request, header};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{
    exchange::{Exchange, Loss, Terms},
    pool::{Connection, Pool},
    records,
    scripts::{Script, Scripts},
};
use crate::{
    answer::Head,
    cgi::CgiAnswer,
    config::FastCgiConfig,
    context::Context,
    endpoint::Endpoint,
    error::CgiError,
    lines::{Budget, Lines},
    output::{self, Output as _},
    slot::Slots,
    variables::{self, Variables},
};

/// The application of a route.
#[derive(Debug)]
pub struct FastCgi {
    config: FastCgiConfig,
    scripts: Arc<Scripts>,
    terms: Terms,
    endpoint: Arc<Endpoint>,
    slots: Arc<Slots>,
    /// Bounds the log lines of all its requests.
    budget: Arc<Mutex<Budget>>,
}

impl FastCgi {
    /// Opens the directory of the scripts. `of_site`: the root of the site, which is taken where the configuration names
    /// none. Connects to nothing yet. Blocks.
    ///
    /// # Errors
    /// The error of the operating system, which the operator has to fix.
    pub fn open(config: &FastCgiConfig, of_site: Option<&Path>, links: SymlinkPolicy) -> io::Result<Self> {
        let terms = Terms {
            pool: Pool::of(&config.address),
            keep_connections: config.keep_connections,
            keep_for: config.keep_for,
            idle_timeout: config.idle_timeout,
        };
        Ok(Self {
            scripts: Arc::new(Scripts::open(config, of_site, links)?),
            terms,
            endpoint: Endpoint::of(&config.address, &config.resolvers),
            slots: Slots::new(config.most_running),
            budget: Arc::new(Mutex::new(Budget::new(Instant::now()))),
            config: config.clone(),
        })
    }

    /// Requests under way.
    pub fn running(&self) -> u32 {
        self.slots.running()
    }

    /// Has the application answer the request. Dropping the future, or the body of the answer, ends its work.
    pub async fn run(&self, mut request: Request<RequestBody>, context: Context<'_>) -> Result<CgiAnswer, CgiError> {
        context.prepare(request.headers_mut());
        let slot = self.slots.take().ok_or(CgiError::Busy)?;
        let script = self.script(request.uri().path()).await?;
        let shown: Arc<str> = script.file.to_string_lossy().into();
        let begin = self.begin(&request, &context, script);
        let is_head = request.method() == Method::HEAD;
        let may_repeat = request.method().is_idempotent();
        let (mut exchange, head) =
            self.ask(&begin, request.into_body(), &shown, may_repeat).await.inspect_err(|error| {
                let log = |line: &str| tracing::warn!(script = %shown, "{line}");
                if !matches!(error, CgiError::Busy) && self.budget.lock().grants(Instant::now(), log) {
                    let address = &self.config.address;
                    tracing::warn!(script = %shown, %address, %error, "no answer from a FastCGI application");
                }
            })?;
        exchange.hold(slot);
        Ok(match head {
            Head::Local(target) => {
                exchange.discard();
                CgiAnswer::Local(target)
            }
            Head::Response(head) => {
                CgiAnswer::Response(output::into_response(exchange, head, is_head, shown.to_string()))
            }
        })
    }

    /// Sends the request, on a kept connection if there is one, and reads the head of its answer.
    async fn ask(
        &self,
        begin: &Bytes,
        mut body: RequestBody,
        script: &Arc<str>,
        may_repeat: bool,
    ) -> Result<(Exchange, Head), CgiError> {
        let lines = || Lines::with(self.budget.clone());
        let limit_bytes = self.config.head_bytes;
        // Where kept connections take all requests, its name is still followed.
        self.endpoint.refresh();
        let unanswered = match self.terms.pool.take(|socket| self.endpoint.leads_here(socket)) {
            Connection::New(unanswered) => unanswered,
            Connection::Kept(socket) => {
                if let Ok(socket) = socket.into_socket() {
                    let again = body.again();
                    let mut exchange =
                        Exchange::new(&self.terms, (socket, None), (begin, body), lines(), script.clone());
                    let head = output::head(&mut exchange, limit_bytes).await;
                    // Closed just as it was used: its time was over, or the application has ended.
                    let repeats = match exchange.loss() {
                        Some(Loss::Unread) => true,
                        Some(Loss::Closed) => may_repeat,
                        None => false,
                    };
                    body = match (head, again.filter(|_| repeats)) {
                        (Ok(head), _) => return Ok((exchange, head)),
                        (Err(_), Some(again)) => again,
                        (Err(error), None) => return Err(error),
                    };
                }
                self.terms.pool.open_anew()
            }
        };
        let socket = self.endpoint.connect(self.config.connect_timeout).await;
        let socket = (socket.map_err(CgiError::Connect)?, Some(unanswered));
        let mut exchange = Exchange::new(&self.terms, socket, (begin, body), lines(), script.clone());
        let head = output::head(&mut exchange, limit_bytes).await?;
        Ok((exchange, head))
    }

    async fn script(&self, path: &str) -> Result<Script, CgiError> {
        if !self.scripts.is_here() {
            return self.scripts.find(path);
        }
        let (scripts, path) = (self.scripts.clone(), path.to_owned());
        let found = tokio::task::spawn_blocking(move || scripts.find(&path)).await;
        found.unwrap_or_else(|error| Err(CgiError::Start(io::Error::other(error))))
    }

    /// The beginning of the request, as records.
    fn begin(&self, request: &Request<RequestBody>, context: &Context<'_>, script: Script) -> Bytes {
        let mut variables = variables::of_request(request, context);
        let base = self.scripts.base.as_os_str().as_bytes();
        self.about_script(&mut variables, base, script);
        // A password that was checked here is not checked again.
        if context.user.is_none()
            && let Some(credentials) = request.headers().get(header::AUTHORIZATION)
        {
            variables.set("HTTP_AUTHORIZATION", credentials.as_bytes());
        }
        for (name, value) in &self.config.environment {
            variables.set(name, value);
        }
        let mut begin = BytesMut::new();
        records::begin(&mut begin, self.config.keep_connections > 0, variables.pairs());
        begin.freeze()
    }

    fn about_script(&self, variables: &mut Variables, base: &[u8], script: Script) {
        let Script { file, name, path_info } = script;
        variables.set("DOCUMENT_ROOT", base);
        variables.set("DOCUMENT_URI", [&name[..], &path_info].concat());
        variables.set("SCRIPT_NAME", name);
        variables.set("SCRIPT_FILENAME", file.as_os_str().as_bytes());
        if !path_info.is_empty() {
            let root = base.strip_suffix(b"/").unwrap_or(base);
            variables.set("PATH_TRANSLATED", [root, &path_info].concat());
        }
        variables.set("PATH_INFO", path_info);
        // PHP that is built for it runs nothing without this variable, which shows that a server has found the script.
        variables.set("REDIRECT_STATUS", "200");
    }
}

#[cfg(test)]
impl FastCgi {
    pub(super) fn terms_for_tests(&self) -> &Terms {
        &self.terms
    }
}
