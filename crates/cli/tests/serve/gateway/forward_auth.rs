//! `forward-auth`: another server is asked about each request; and `cors`, whose questions come before that.

use super::*;

/// A site whose answers come from one origin, and another origin that is asked about its requests.
struct Guarded {
    gateway: Gateway,
    auth: Origin,
}

fn guarded(more: &str) -> Guarded {
    let auth = Origin::start();
    let address = auth.address;
    let gateway = Gateway::start_as(|origin| {
        let site = format!(
            "[[site]]\nforward-auth = {{ upstream = \"auth\", path = \"/verify?app=shop\", copy-headers = [\"Remote-User\"], client-headers = [\"Set-Cookie\", \"X-Plan\"] }}\n\
             {more}[[site.route]]\npath = \"/open/\"\nupstream = \"app\"\nforward-auth = \"off\"\n"
        );
        let upstream = format!("[[upstream]]\nname = \"auth\"\nservers = [\"http://{address}\"]\n");
        text(origin, "").replace("[[site]]\n", &format!("{upstream}{site}"))
    });
    Guarded { gateway, auth }
}

impl Guarded {
    fn ask(&self, head: &str, body: &str) -> TcpStream {
        let mut stream = self.gateway.serpent.connect();
        stream
            .write_all(format!("{head}\r\nhost: shop.example\r\nconnection: close\r\n\r\n{body}").as_bytes())
            .unwrap();
        stream
    }
}

#[test]
fn what_the_server_allows_goes_on_with_the_fields_that_it_names() {
    let guarded = guarded("");
    let mut client = guarded.ask(
        "POST /cart?item=1 HTTP/1.1\r\ncookie: session=1\r\ncontent-length: 4\r\ncontent-type: text/plain\r\n\
         range: bytes=0-1\r\nremote-user: root\r\nremote_user: root\r\nx-forwarded-uri: /open/",
        "body",
    );
    let question = guarded.auth.next();
    assert!(question.head.starts_with("GET /verify?app=shop HTTP/1.1\r\n"), "{}", question.head);
    for (name, value) in [
        ("host", Some("shop.example")),
        ("x-forwarded-method", Some("POST")),
        ("x-forwarded-uri", Some("/cart?item=1")),
        ("x-forwarded-host", Some("shop.example")),
        ("x-forwarded-for", Some("127.0.0.1")),
        ("cookie", Some("session=1")),
        ("content-length", None),
        ("content-type", None),
        ("range", None),
    ] {
        assert_eq!(question.field(name).as_deref(), value, "{name}: {}", question.head);
    }
    assert!(question.body.is_empty());
    assert!(guarded.gateway.origin.is_idle(), "the request waits for the answer");
    question.send(
        b"HTTP/1.1 200 OK\r\nremote-user: ann\r\nx-secret: 1\r\nset-cookie: session=2\r\n\
        set-cookie: b=3\r\nx-plan: gold\r\ncontent-length: 2\r\n\r\nok",
    );
    question.done();
    let asked = guarded.gateway.origin.next();
    assert_eq!((asked.path(), &*asked.body), ("/cart?item=1", &b"body"[..]));
    assert_eq!(asked.field("remote-user").as_deref(), Some("ann"));
    assert_eq!((asked.field("remote_user"), asked.field("x-secret")), (None, None));
    assert_eq!(asked.field("range").as_deref(), Some("bytes=0-1"), "of the request nothing else has changed");
    asked.send(
        b"HTTP/1.1 200 OK\r\nset-cookie: cart=1\r\nx-plan: plain\r\ncache-control: public\r\ncontent-length: 4\r\n\r\ndone",
    );
    asked.done();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("done"), "{answer}");
    // The client gets the fields that are named, and no cache keeps its cookies.
    for (field, is_there) in [
        ("set-cookie: cart=1", true),
        ("set-cookie: session=2", true),
        ("set-cookie: b=3", true),
        ("x-plan: gold", true),
        ("x-plan: plain", false),
        ("cache-control: private", true),
        ("public", false),
        ("x-secret", false),
    ] {
        assert_eq!(answer.contains(field), is_there, "{field}: {answer}");
    }
}

#[test]
fn what_the_server_does_not_allow_gets_its_answer() {
    let guarded = guarded("");
    for said in [
        "HTTP/1.1 302 Found\r\nlocation: https://login.example/\r\nset-cookie: a=b\r\ncontent-length: 6\r\n\r\nsignin",
        "HTTP/1.1 401 Unauthorized\r\nwww-authenticate: Basic\r\ntransfer-encoding: chunked\r\n\r\n6\r\nsignin\r\n0\r\n\r\n",
    ] {
        let mut client = guarded.ask("GET /cart HTTP/1.1", "");
        let question = guarded.auth.next();
        question.send(said.as_bytes());
        question.done();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with(&said[..16]) && answer.ends_with("signin"), "{answer}");
        for field in ["location: https://login.example/", "set-cookie: a=b", "www-authenticate: Basic"] {
            assert_eq!(answer.contains(field), said.contains(field), "{field}: {answer}");
        }
    }
    // A page that is too long to be one where people sign in, and then no server at all.
    let mut client = guarded.ask("GET /cart HTTP/1.1", "");
    let question = guarded.auth.next();
    let body = vec![b'a'; 300_000];
    question.send(&[format!("HTTP/1.1 403 No\r\ncontent-length: {}\r\n\r\n", body.len()).as_bytes(), &body].concat());
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    guarded.gateway.serpent.wait_for_stderr("the answer of forward-auth cannot be passed on");
    drop(question);
    for _ in 0..2 {
        let mut client = guarded.ask("GET /cart HTTP/1.1", "");
        let question = guarded.auth.next();
        question.stream.shutdown(std::net::Shutdown::Both).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    }
    assert!(guarded.gateway.origin.is_idle());
}

#[test]
fn a_route_may_be_open_and_a_client_that_leaves_is_not_waited_for() {
    let guarded = guarded("");
    let mut client = guarded.ask("GET /open/a HTTP/1.1", "");
    assert_eq!(guarded.gateway.origin.answer("open"), "/open/a");
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("open") && guarded.auth.is_idle(), "{answer}");

    let client = guarded.ask("GET /cart HTTP/1.1", "");
    let question = guarded.auth.next();
    // With a reset, which says that the client does not wait.
    rustix::net::sockopt::set_socket_linger(&client, Some(std::time::Duration::ZERO)).unwrap();
    drop(client);
    let mut rest = Vec::new();
    (&question.stream).read_to_end(&mut rest).unwrap();
    assert!(guarded.gateway.origin.is_idle());
}

#[test]
fn a_browser_learns_what_a_page_may_do_before_anybody_is_asked_and_refusals_can_be_read() {
    let guarded = guarded(
        "cors = { origins = [\"https://app.example\", \"https://*.test.example\"], credentials = true, max-age = \"1h\" }\n",
    );
    let ask = |origin: &str| {
        let mut client = guarded.ask(
            &format!(
                "OPTIONS /cart HTTP/1.1\r\norigin: {origin}\r\naccess-control-request-method: PUT\r\n\
                 access-control-request-headers: x-cart"
            ),
            "",
        );
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer.to_lowercase()
    };
    for origin in ["https://app.example", "https://a.test.example"] {
        let answer = ask(origin);
        assert!(answer.starts_with("http/1.1 204 "), "{answer}");
        for field in [
            &format!("access-control-allow-origin: {origin}"),
            "access-control-allow-credentials: true",
            "access-control-allow-methods: get, head, post, put, patch, delete",
            "access-control-allow-headers: x-cart",
            "access-control-max-age: 3600",
            "vary: origin",
        ] {
            assert!(answer.contains(&format!("\r\n{field}\r\n")), "{field}: {answer}");
        }
        assert_eq!(answer.matches("access-control-allow-origin").count(), 1, "{answer}");
    }
    let answer = ask("https://evil.example");
    assert!(answer.starts_with("http/1.1 204 ") && !answer.contains("access-control-allow"), "{answer}");
    assert!(guarded.auth.is_idle() && guarded.gateway.origin.is_idle());

    let mut client = guarded.ask("GET /cart HTTP/1.1\r\norigin: https://app.example", "");
    let question = guarded.auth.next();
    question.send(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\naccess-control-allow-origin: *\r\n\r\n");
    question.done();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    assert!(
        answer.contains("access-control-allow-origin: https://app.example\r\n") && !answer.contains("origin: *"),
        "{answer}"
    );
}

#[test]
fn a_request_that_goes_on_with_another_path_is_asked_about_once() {
    let guarded = guarded(
        "[[site.route]]\npath = \"/old/\"\nrewrite = \"/new/{rest}{query}\"\n[[site.route]]\npath = \"/new/\"\nupstream = \"app\"\n",
    );
    let mut client = guarded.ask("GET /old/page?a=b HTTP/1.1\r\nremote-user: root", "");
    let question = guarded.auth.next();
    assert_eq!(question.field("x-forwarded-uri").as_deref(), Some("/old/page?a=b"), "as the client asked");
    question.send(b"HTTP/1.1 204 No Content\r\nremote-user: ann\r\n\r\n");
    question.done();
    let asked = guarded.gateway.origin.next();
    assert!(guarded.auth.is_idle());
    assert_eq!((asked.path(), asked.field("remote-user").as_deref()), ("/new/page?a=b", Some("ann")));
    asked.answer(b"done");
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("done"), "{answer}");
}
