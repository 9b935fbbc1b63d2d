//! uwsgi: an application that runs already, such as uWSGI, answers requests over a socket.
//!
//! A request is a packet of variables, and its body behind it. The answer is that of an HTTP server or of a program,
//! and ends with the connection: the protocol keeps none. The exchange is that of FastCGI without its records
//! (`crate::fastcgi::exchange`).

use std::{sync::Arc, time::Duration};

use bodies::RequestBody;
use bytes::{BufMut as _, Bytes, BytesMut};
use http::{Method, Request, header};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{
    answer::Head,
    cgi::CgiAnswer,
    config::UwsgiConfig,
    context::Context,
    endpoint::Endpoint,
    error::CgiError,
    fastcgi::{
        exchange::{Exchange, Terms},
        pool::Pool,
    },
    lines::{Budget, Lines},
    output::{self, Output as _},
    slot::Slots,
    variables::{self, Variables},
};

/// The application of a route.
#[derive(Debug)]
pub struct Uwsgi {
    config: UwsgiConfig,
    terms: Terms,
    endpoint: Arc<Endpoint>,
    slots: Arc<Slots>,
    /// Its address, for the log.
    shown: Arc<str>,
    /// Bounds the log lines of all its requests.
    budget: Arc<Mutex<Budget>>,
}

impl Uwsgi {
    /// Takes the configuration. Connects to nothing yet.
    pub fn new(config: &UwsgiConfig) -> Self {
        let terms = Terms {
            pool: Pool::of(&config.address),
            keep_connections: 0,
            keep_for: Duration::ZERO,
            idle_timeout: config.idle_timeout,
        };
        Self {
            terms,
            endpoint: Endpoint::of(&config.address, &config.resolvers),
            slots: Slots::new(config.most_running),
            shown: config.address.to_string().into(),
            budget: Arc::new(Mutex::new(Budget::new(Instant::now()))),
            config: config.clone(),
        }
    }

    /// Has the application answer the request. Dropping the future, or the body of the answer, ends its work.
    pub async fn run(&self, mut request: Request<RequestBody>, context: Context<'_>) -> Result<CgiAnswer, CgiError> {
        context.prepare(request.headers_mut());
        let slot = self.slots.take().ok_or(CgiError::Busy)?;
        let begin = self.begin(&request, &context)?;
        let is_head = request.method() == Method::HEAD;
        let (mut exchange, head) = self.ask(&begin, request.into_body()).await.inspect_err(|error| {
            let log = |line: &str| tracing::warn!(application = %self.shown, "{line}");
            if self.budget.lock().grants(Instant::now(), log) {
                tracing::warn!(application = %self.shown, %error, "no answer from a uwsgi application");
            }
        })?;
        exchange.hold(slot);
        Ok(match head {
            Head::Local(target) => {
                exchange.discard();
                CgiAnswer::Local(target)
            }
            Head::Response(head) => {
                CgiAnswer::Response(output::into_response(exchange, head, is_head, self.shown.to_string()))
            }
        })
    }

    async fn ask(&self, begin: &Bytes, body: RequestBody) -> Result<(Exchange, Head), CgiError> {
        let socket = self.endpoint.connect(self.config.connect_timeout).await.map_err(CgiError::Connect)?;
        let errors = Lines::with(self.budget.clone());
        let mut exchange = Exchange::plain(&self.terms, socket, (begin, body), errors, self.shown.clone());
        let head = output::head(&mut exchange, self.config.head_bytes).await?;
        Ok((exchange, head))
    }

    /// The packet of variables.
    fn begin(&self, request: &Request<RequestBody>, context: &Context<'_>) -> Result<Bytes, CgiError> {
        let mut variables = variables::of_request(request, context);
        let path = files::RequestPath::parse(request.uri().path()).map_err(|_| CgiError::NotFound)?;
        // The application finds out which part of it is the place where it is mounted.
        let mut info = [b"/", path.relative().as_os_str().as_encoded_bytes()].concat();
        if path.directory() && info.len() > 1 {
            info.push(b'/');
        }
        variables.set("DOCUMENT_URI", &info);
        variables.set("PATH_INFO", info);
        if let Some(root) = context.root {
            variables.set("DOCUMENT_ROOT", root.as_os_str().as_encoded_bytes());
        }
        // A password that was checked here is not checked again.
        if context.user.is_none()
            && let Some(credentials) = request.headers().get(header::AUTHORIZATION)
        {
            variables.set("HTTP_AUTHORIZATION", credentials.as_bytes());
        }
        for (name, value) in &self.config.environment {
            variables.set(name, value);
        }
        packet(self.config.modifier, &variables).ok_or(CgiError::TooLarge)
    }
}

/// A packet of variables; `None`: they are too large for one. Numbers are little-endian.
fn packet(modifier: u8, variables: &Variables) -> Option<Bytes> {
    let mut packet = BytesMut::new();
    packet.put_slice(&[modifier, 0, 0, 0]);
    for (name, value) in variables.pairs() {
        for part in [name, value] {
            packet.put_u16_le(u16::try_from(part.len()).ok()?);
            packet.put_slice(part);
        }
    }
    let length = u16::try_from(packet.len() - 4).ok()?;
    packet[1..3].copy_from_slice(&length.to_le_bytes());
    Some(packet.freeze())
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use http_body_util::BodyExt as _;
    use tempfile::TempDir;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::{UnixListener, UnixStream},
    };

    use super::*;
    use crate::config::{FastCgiAddress, Priority};

    const PATIENCE: Duration = Duration::from_secs(30);

    fn context() -> Context<'static> {
        Context {
            prefix: "/",
            root: None,
            client: "192.0.2.7:4711".parse().unwrap(),
            local: "198.51.100.1:80".parse().unwrap(),
            host: "www.example.org",
            tls: false,
            user: None,
            believed: None,
            rules: None,
            class: "gold",
            priority: Priority::Inherited,
            asked: None,
        }
    }

    /// An application that answers when the test says so.
    struct Application {
        _folder: TempDir,
        listener: UnixListener,
        uwsgi: Uwsgi,
    }

    impl Application {
        fn new() -> Self {
            Self::with_room_for(8)
        }

        fn with_room_for(requests: u32) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("socket");
            let listener = UnixListener::bind(&path).unwrap();
            let uwsgi = Uwsgi::new(&UwsgiConfig {
                address: FastCgiAddress::Unix(path),
                resolvers: Vec::new(),
                modifier: 5,
                environment: vec![("UWSGI_SCRIPT".to_owned(), "shop".to_owned())],
                connect_timeout: PATIENCE,
                idle_timeout: PATIENCE,
                head_bytes: 4096,
                most_running: NonZeroU32::new(requests).unwrap(),
            });
            Self { _folder: folder, listener, uwsgi }
        }

        /// The variables of the next request, and its connection.
        async fn next(&self) -> (Vec<(String, String)>, UnixStream) {
            let (mut stream, _) = self.listener.accept().await.unwrap();
            assert_eq!(stream.read_u8().await.unwrap(), 5);
            let length = stream.read_u16_le().await.unwrap();
            assert_eq!(stream.read_u8().await.unwrap(), 0);
            let mut packet = vec![0; length.into()];
            stream.read_exact(&mut packet).await.unwrap();
            let (mut rest, mut words) = (&packet[..], Vec::new());
            while let Some((length, more)) = rest.split_first_chunk() {
                let (word, more) = more.split_at(u16::from_le_bytes(*length).into());
                words.push(String::from_utf8(word.to_vec()).unwrap());
                rest = more;
            }
            (words.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect(), stream)
        }

        async fn answered(&self, answer: &[u8]) -> Result<(u16, String), String> {
            let request = Request::get("/").body(RequestBody::Empty).unwrap();
            let (asked, ()) = tokio::join!(self.uwsgi.run(request, context()), async {
                let (_, mut stream) = self.next().await;
                stream.write_all(answer).await.unwrap();
            });
            let CgiAnswer::Response(response) = asked.map_err(|error| error.to_string())? else { panic!("a redirect") };
            let status = response.status().as_u16();
            let body = response.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
            Ok((status, String::from_utf8(body.to_vec()).unwrap()))
        }
    }

    #[tokio::test]
    async fn an_application_gets_variables_and_the_body_behind_them() {
        let application = Application::new();
        let store = bodies::Store::new(bodies::StoreLimits::default());
        let body = RequestBody::from_bytes("x".repeat(100_000), &store);
        let request = Request::post("/a%20b/../c/?d=e").header("x-a-b", "1").header("authorization", "Basic eA==");
        let asked = application.uwsgi.run(request.body(body).unwrap(), context());
        let answers = async {
            let (variables, mut stream) = application.next().await;
            let mut body = vec![0; 100_000];
            stream.read_exact(&mut body).await.unwrap();
            assert!(body.iter().all(|byte| *byte == b'x'));
            stream
                .write_all(b"HTTP/1.1 201 Created\r\nContent-Type: text/plain\r\nX-One: 1\r\n\r\nmade")
                .await
                .unwrap();
            variables
        };
        let (asked, variables) = tokio::join!(asked, answers);
        let told = |name: &str| variables.iter().find(|(it, _)| it == name).map(|(_, value)| value.as_str());
        for (name, value) in [
            ("REQUEST_METHOD", "POST"),
            ("REQUEST_URI", "/a%20b/../c/?d=e"),
            ("PATH_INFO", "/c/"),
            ("QUERY_STRING", "d=e"),
            ("CONTENT_LENGTH", "100000"),
            ("REMOTE_ADDR", "192.0.2.7"),
            ("SERVER_PORT", "80"),
            ("HTTP_X_A_B", "1"),
            ("HTTP_AUTHORIZATION", "Basic eA=="),
            ("UWSGI_SCRIPT", "shop"),
        ] {
            assert_eq!(told(name), Some(value), "{name}");
        }
        assert_eq!(told("SCRIPT_NAME"), None, "the application knows where it is mounted");
        let Ok(CgiAnswer::Response(response)) = asked else { panic!("{asked:?}") };
        assert_eq!((response.status().as_u16(), &response.headers()["x-one"]), (201, &"1".parse().unwrap()));
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "made");
    }

    #[tokio::test]
    async fn an_answer_ends_with_its_connection() {
        let application = Application::new();
        for (answer, expected) in [
            (&b"HTTP/1.1 200 OK\r\n\r\nall of it"[..], Ok((200, "all of it".to_owned()))),
            (b"Status: 404\n\nnone", Ok((404, "none".to_owned()))),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", Ok((200, "abc".to_owned()))),
            (b"HTTP/1.1 204 No Content\r\n\r\n", Ok((204, String::new()))),
        ] {
            assert_eq!(application.answered(answer).await, expected);
        }
        for (answer, reason) in [
            (&b""[..], "closed the connection before its end"),
            (b"HTTP/1.1 200 OK\r\n", "before the empty line"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", "less than its Content-Length"),
            (b"HTTP/1.1 nothing\r\n\r\n", "makes no sense"),
            (&[b'x'; 5000], "longer than 4096 bytes"),
        ] {
            let error = application.answered(answer).await.unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[tokio::test]
    async fn a_request_that_is_given_up_closes_the_connection_and_frees_its_place() {
        let application = Application::with_room_for(1);
        let request = || Request::get("/").body(RequestBody::Empty).unwrap();
        {
            let asked = application.uwsgi.run(request(), context());
            let mut asked = std::pin::pin!(asked);
            let mut stream = tokio::select! {
                _ = &mut asked => panic!("nothing was answered"),
                (_, stream) = application.next() => stream,
            };
            assert!(matches!(application.uwsgi.run(request(), context()).await, Err(CgiError::Busy)));
            stream.write_all(b"HTTP/1.1 200 OK\r\n").await.unwrap();
        }
        assert_eq!(application.answered(b"HTTP/1.1 200 OK\r\n\r\nwell").await, Ok((200, "well".to_owned())));
    }

    #[tokio::test]
    async fn a_head_that_fits_into_no_packet_is_the_clients_mistake() {
        let application = Application::new();
        let request = Request::get("/").header("x-large", "x".repeat(66_000)).body(RequestBody::Empty).unwrap();
        let error = application.uwsgi.run(request, context()).await.unwrap_err();
        assert_eq!(error.status().as_u16(), 431);
    }
}
