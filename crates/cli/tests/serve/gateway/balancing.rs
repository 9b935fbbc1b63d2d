//! Which server of an upstream gets a request, and servers that are taken out and in while the gateway runs.

use std::{
    io::{BufRead as _, BufReader},
    net::TcpListener,
    os::unix::fs::PermissionsExt as _,
};

use serde_json::{Value, json};

use super::*;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// A server that answers every request with its status and its name.
pub(crate) fn named(name: &'static str, status: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let mut writer = stream.try_clone().unwrap();
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{name}", name.len());
                    if line.is_empty() && writer.write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

/// A gateway before these servers.
struct Balanced {
    _folder: TempDir,
    file: PathBuf,
    serpent: Serpent,
    admin: SocketAddr,
}

impl Balanced {
    fn start(servers: &[SocketAddr], settings: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("serpent.toml");
        let token = folder.path().join("token");
        fs::write(&token, TOKEN).unwrap();
        fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
        let servers: Vec<_> = servers.iter().map(|server| format!("http://{server}")).collect();
        let text = format!(
            "listen = [\"127.0.0.1:0\"]\nadmin = \"127.0.0.1:0\"\nadmin-token = \"token\"\nworkers = 1\n\
             [uplink]\nrate = \"off\"\n[[upstream]]\nname = \"app\"\nservers = {servers:?}\n{settings}\
             [[site]]\n[[site.route]]\npath = \"/\"\nupstream = \"app\"\n"
        );
        fs::write(&file, text).unwrap();
        let (serpent, admin) = start(&file);
        Self { _folder: folder, file, serpent, admin }
    }

    /// The status, the head and the body of an answer.
    fn ask(&self, head: &str) -> (u16, String, String) {
        exchange(self.serpent.connect(), &format!("{head}\r\nhost: site.example\r\nconnection: close\r\n\r\n"))
    }

    /// The names of the servers that answer four requests.
    fn four(&self) -> String {
        (0..4).map(|_| self.ask("GET / HTTP/1.1").2).collect()
    }

    fn change(&self, server: SocketAddr, patch: &Value) -> Value {
        let body = patch.to_string();
        let head = format!(
            "PATCH /api/upstreams/app/{server} HTTP/1.1\r\nhost: a\r\nconnection: close\r\nauthorization: Bearer {TOKEN}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let (status, _, body) = exchange(TcpStream::connect(self.admin).unwrap(), &head);
        assert_eq!(status, 200, "{body}");
        serde_json::from_str::<Value>(&body).unwrap()["servers"][0].clone()
    }

    fn reload(&self) {
        let loaded = format!("serpent_config_reloads_total {}", self.reloads() + 1);
        self.serpent.signal(Signal::HUP);
        wait_for_metric(self.admin, &loaded);
    }

    fn reloads(&self) -> u64 {
        let metrics = metrics(self.admin);
        let line = metrics.lines().find_map(|line| line.strip_prefix("serpent_config_reloads_total "));
        line.unwrap().parse().unwrap()
    }
}

fn exchange(mut stream: TcpStream, request: &str) -> (u16, String, String) {
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text}"));
    (head[9..12].parse().unwrap(), head.to_owned(), body.to_owned())
}

#[test]
fn a_server_is_taken_out_and_in_while_the_gateway_runs() {
    let servers = [named("a", "200 OK"), named("b", "200 OK")];
    let gateway = Balanced::start(&servers, "balance = \"round-robin\"\nsticky = \"server\"\n");
    assert_eq!(gateway.four().matches('a').count(), 2);
    let given = (0..2).map(|_| gateway.ask("GET / HTTP/1.1")).find(|(_, _, name)| name == "a").expect("a turn of a");
    let set = given.1.lines().find_map(|line| line.strip_prefix("set-cookie: ")).expect("a cookie");
    let of_a = format!("GET / HTTP/1.1\r\ncookie: {}", set.split(';').next().unwrap());
    let stays = || (0..4).map(|_| gateway.ask(&of_a).2).collect::<String>();
    assert_eq!(stays(), "aaaa");

    let changed = gateway.change(servers[0], &json!({ "state": "draining" }));
    assert_eq!((&changed["state"], &changed["persistent"]), (&json!("draining"), &json!(false)));
    assert_eq!((gateway.four(), stays()), ("bbbb".to_owned(), "aaaa".to_owned()));
    let line = format!("serpent_upstream_enabled{{upstream=\"app\",server=\"{}\",class=\"\"}} 0", servers[0]);
    assert!(metrics(gateway.admin).lines().any(|it| it == line));
    gateway.change(servers[0], &json!({ "state": "enabled", "weight": 3 }));
    assert_eq!(gateway.four().matches('a').count(), 3);

    // A reload of another configuration takes that back, and keeps what is to be kept.
    gateway.change(servers[1], &json!({ "state": "disabled", "keep": true }));
    assert_eq!(gateway.four(), "aaaa");
    let text = fs::read_to_string(&gateway.file).unwrap();
    fs::write(&gateway.file, text.replace("sticky", "retries = 2\nsticky")).unwrap();
    gateway.reload();
    assert_eq!(gateway.four(), "aaaa");
    let told = gateway.change(servers[0], &json!({}));
    assert_eq!((&told["weight"], &told["persistent"]), (&json!(1), &json!(true)));
    gateway.change(servers[1], &json!({ "keep": false }));
    gateway.reload();
    assert_eq!(gateway.four().matches('b').count(), 2);
    assert_eq!(stays(), "aaaa", "the cookie of before the reloads still names its server");

    let denied = format!("PATCH /api/upstreams/app/{} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n", servers[0]);
    assert_eq!(exchange(TcpStream::connect(gateway.admin).unwrap(), &denied).0, 401);
    gateway.change(servers[0], &json!({ "state": "disabled" }));
    gateway.change(servers[1], &json!({ "state": "disabled" }));
    assert_eq!(gateway.ask("GET / HTTP/1.1").0, 503);
}

#[test]
fn a_get_goes_on_to_another_server_and_a_post_does_not() {
    let servers = [named("bad", "503 Service Unavailable"), named("good", "200 OK")];
    let settings = "balance = \"round-robin\"\nretry-statuses = [502, 503, 504]\n";
    let gateway = Balanced::start(&servers, settings);
    assert_eq!(gateway.four(), "goodgoodgoodgood");
    let mut statuses = [(); 2].map(|()| gateway.ask("POST / HTTP/1.1\r\ncontent-length: 0").0);
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 503]);
    let metrics = metrics(gateway.admin);
    let retries = metrics.lines().find_map(|it| it.strip_prefix("serpent_upstream_retries_total{upstream=\"app\"} "));
    assert!(matches!(retries, Some("2" | "3" | "4")), "{retries:?}");
    assert!(metrics.contains("serpent_upstream_retries_refused_total{upstream=\"app\"} 0\n"), "{metrics}");
}
