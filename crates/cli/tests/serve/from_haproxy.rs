//! The configuration of a shop in the guide for people who come from HAProxy: both programs run it, and are asked the same.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Child, Command, Stdio},
    time::Instant,
};

use tempfile::TempDir;

use super::{
    gateway::{
        balancing::named,
        named::dns::{self, NameServer},
    },
    support::{PATIENCE, Serpent, certificate, tool},
};

fn documented(language: &str) -> String {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/from-haproxy.md");
    let guide = fs::read_to_string(guide).unwrap();
    let (_, block) = guide.split_once(&format!("```{language}\n")).unwrap();
    block.split_once("```").unwrap().0.to_owned()
}

/// Replaces what stands there for certain.
fn replaced(mut text: String, pairs: &[(&str, String)]) -> String {
    for (old, new) in pairs {
        assert!(text.contains(old), "the guide has no {old}:\n{text}");
        text = text.replace(old, new);
    }
    text
}

/// An address that was free a moment ago, for a program that cannot be asked which one it took.
fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// HAProxy; ended when dropped.
struct HaProxy(Child);

impl Drop for HaProxy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One of the two programs.
struct Shop {
    name: &'static str,
    clear: SocketAddr,
    tls: SocketAddr,
    /// The port that it sends clients to.
    port: String,
}

impl Shop {
    /// The output of curl for a URL of the shop.
    fn curl(&self, args: &[&str], url: &str) -> String {
        let output = self.command(args, url).output().unwrap();
        assert!(output.status.success(), "{}: {}", self.name, String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn command(&self, args: &[&str], url: &str) -> Command {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "-k", "-i", "--max-time", "60"])
            .args(["--connect-to", &format!("shop.example:443:{}", self.tls)])
            .args(["--connect-to", &format!("shop.example:80:{}", self.clear)])
            .args(args)
            .arg(url);
        curl
    }

    fn ask(&self, args: &[&str], path: &str) -> Answer {
        Answer(self.curl(args, &format!("https://shop.example{path}")).replace('\r', ""))
    }
}

struct Answer(String);

impl Answer {
    fn status(&self) -> u16 {
        self.0.split(' ').nth(1).unwrap().parse().unwrap()
    }

    fn field(&self, name: &str) -> Option<String> {
        let (head, _) = self.0.split_once("\n\n").unwrap();
        let fields = head.lines().filter_map(|line| line.split_once(": "));
        fields.into_iter().find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
    }

    fn body(&self) -> &str {
        self.0.split_once("\n\n").unwrap().1
    }
}

/// The address of the balancer of the guide in the test.
const BALANCER: &str = "127.0.0.9";

/// Starts both before the same servers. `None`: a program is missing.
fn shops(folder: &TempDir) -> Option<([Shop; 2], HaProxy, Serpent)> {
    let (mut haproxy, _) = (tool("haproxy")?, tool("curl")?);
    let path = |name: &str| folder.path().join(name).display().to_string();
    let servers = [
        ("10.0.0.1:8080", named("web1", "200 OK")),
        ("10.0.0.2:8080", named("web2", "200 OK")),
        ("10.0.0.9:8080", named("spare", "200 OK")),
        ("10.0.1.1:9000", named("api1", "200 OK")),
        ("10.0.1.2:9000", named("api2", "200 OK")),
    ];
    let servers = servers.map(|(documented, server)| (documented, server.to_string()));
    let found = named("found", "200 OK");
    let name_server = NameServer::start(vec![
        dns::service("_http._tcp.search.internal", 60, (0, 1, found.port()), "host.search.internal"),
        dns::address("host.search.internal", 60, "127.0.0.1"),
    ]);
    let (chain, key) = certificate(folder.path(), "site", &["shop.example"]);
    fs::write(path("shop.pem"), [fs::read(&chain).unwrap(), fs::read(&key).unwrap()].concat()).unwrap();
    fs::write(path("admin.token"), "0123456789abcdef0123456789abcdef").unwrap();
    fs::set_permissions(path("admin.token"), fs::Permissions::from_mode(0o600)).unwrap();

    let (clear, tls) = (free(), free());
    let of_haproxy = replaced(
        replaced(documented("haproxy"), &servers),
        &[
            ("bind :80\n", format!("bind {clear}\n")),
            ("bind :443 ssl", format!("bind {tls} ssl")),
            ("/etc/haproxy/shop.pem", path("shop.pem")),
            ("/run/haproxy/admin.sock", path("admin.sock")),
            ("10.0.0.53:53", name_server.address.to_string()),
            ("10.0.9.1", BALANCER.to_owned()),
        ],
    );
    fs::write(path("haproxy.cfg"), of_haproxy).unwrap();
    let running =
        haproxy.args(["-f", &path("haproxy.cfg")]).stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let running = HaProxy(running);
    let start = Instant::now();
    while std::net::TcpStream::connect(tls).is_err() {
        assert!(start.elapsed() < PATIENCE, "HAProxy does not listen");
        std::thread::yield_now();
    }

    let at = (free(), free());
    let of_serpent = replaced(
        replaced(documented("toml"), &servers),
        &[
            ("http://:80", format!("http://{}", at.0)),
            ("https://:443", format!("https://{}", at.1)),
            // By itself that goes to the port of HTTPS only.
            ("hsts = \"on\"", "hsts = \"on\"\nhttps-redirect = true".to_owned()),
            ("127.0.0.1:9090", "127.0.0.1:0".to_owned()),
            ("10.0.0.53", name_server.address.to_string()),
            ("10.0.9.1", BALANCER.to_owned()),
            ("/etc/serpent/admin.token", path("admin.token")),
            ("/etc/serpent/fullchain.pem", chain.display().to_string()),
            ("/etc/serpent/privkey.pem", key.display().to_string()),
            ("/var/log/serpent/", path("")),
        ],
    );
    fs::write(path("serpent.toml"), of_serpent).unwrap();
    let serpent = Serpent::start(&["serve", "--config", &path("serpent.toml")]);
    let shops = [
        Shop { name: "haproxy", clear, tls, port: String::new() },
        Shop { name: "serpent", clear: at.0, tls: at.1, port: format!(":{}", at.1.port()) },
    ];
    Some((shops, running, serpent))
}

#[test]
fn a_shop_answers_as_it_did_behind_haproxy() {
    let folder = tempfile::tempdir().unwrap();
    let Some((shops, _haproxy, _serpent)) = shops(&folder) else { return };
    for shop in &shops {
        let name = shop.name;
        let clear = Answer(shop.curl(&[], "http://shop.example/cart?a=1").replace('\r', ""));
        let to = clear.field("location");
        let expected = format!("https://shop.example{}/cart?a=1", shop.port);
        assert_eq!((clear.status(), to), (308, Some(expected)), "{name}: {}", clear.0);
        let page = shop.ask(&[], "/");
        assert_eq!(page.status(), 200, "{name}");
        assert!(["web1", "web2"].contains(&page.body()), "{name}: the spare one has nothing to do: {}", page.body());
        assert_eq!(page.field("strict-transport-security").as_deref(), Some("max-age=31536000"), "{name}");
        assert_eq!(page.field("x-frame-options").as_deref(), Some("DENY"), "{name}");
        assert_eq!(shop.ask(&[], "/admin/users").status(), 403, "{name}");
        let moved = shop.ask(&[], "/summer");
        assert_eq!(moved.status(), 301, "{name}");
        assert!(moved.field("location").unwrap().ends_with("/sale"), "{name}");

        // A balancer in front names the client, and has to.
        let told = shop.ask(&["--interface", BALANCER, "--haproxy-protocol"], "/");
        assert_eq!(told.status(), 200, "{name}: {}", told.0);
        let mut silent = shop.command(&["--interface", BALANCER], "https://shop.example/");
        assert!(!silent.output().unwrap().status.success(), "{name}");

        // The servers of a service are found by its records.
        let start = Instant::now();
        while shop.ask(&[], "/search/").body() != "found" {
            assert!(start.elapsed() < PATIENCE, "{name}: no server of the service");
            std::thread::yield_now();
        }

        // A client keeps its server.
        let cookie = page.field("set-cookie").unwrap_or_else(|| panic!("{name}: no cookie"));
        assert!(cookie.starts_with("server=") && cookie.contains("HttpOnly"), "{name}: {cookie}");
        let pair = format!("cookie: {}", cookie.split(';').next().unwrap());
        for _ in 0..6 {
            let again = shop.ask(&["-H", &pair], "/");
            assert_eq!((again.body(), again.field("set-cookie")), (page.body(), None), "{name}");
        }

        // So does an account at the API.
        let of_account =
            |account: usize| shop.ask(&["-H", &format!("x-account: {account}")], "/api/orders").body().to_owned();
        let mut accounts: Vec<_> = (0..8).map(of_account).collect();
        assert_eq!((0..8).map(of_account).collect::<Vec<_>>(), accounts, "{name}");
        // Ports differ from run to run, and with them the server of an account. In one of 128 runs these eight share one.
        let share = |accounts: &[String]| ["api1", "api2"].iter().all(|api| accounts.iter().any(|it| it == api));
        if !share(&accounts) {
            accounts.extend((8..12).map(of_account));
        }
        assert!(share(&accounts), "{name}: {accounts:?}");
        // A client that asks too often is refused.
        let many = shop.curl(
            &["-o", "/dev/null", "-w", "%{http_code}\\n", "-Z", "-H", "x-account: 1"],
            "https://shop.example/api/[1-200]",
        );
        let refused = many.lines().filter(|line| line.contains("429")).count();
        assert!((20..200).contains(&refused), "{name}: {refused} of 200 are refused");
        assert_eq!(shop.ask(&[], "/").status(), 200, "{name}: the shop itself is not limited");
    }
}

/// Two frontends, maps, a list, a rate and an error file. Words in capitals stand for addresses and the folder.
const SEVERAL: &str = "defaults
  mode http
  timeout connect 5s
  timeout client 30s
  timeout server 50s
frontend www
  bind FIRST
  errorfile 503 FOLDER/503.http
  acl api path_beg /api/
  acl fast sc_http_req_rate(1) gt 5
  http-request deny if { path_beg -f FOLDER/closed.lst }
  http-request track-sc1 hdr(X-Key) table keys if api
  http-request deny deny_status 429 if fast
  http-request redirect location %[path,map_str(FOLDER/old.map)] code 301 if { path,map_str(FOLDER/old.map) -m found }
  use_backend %[path,map_beg(FOLDER/paths.map)] if { path,map_beg(FOLDER/paths.map) -m found }
  use_backend down if { path /down }
  use_backend %[req.hdr(host),lower,map(FOLDER/hosts.map,www)]
frontend more
  bind SECOND
  use_backend api if { hdr(host) more.example }
backend keys
  stick-table type string len 32 size 1m expire 10s store http_req_rate(10s)
backend api
  server a API
backend static
  server a STATIC
backend www
  server a WWW
backend down
  retries 0
  server a DOWN
";

#[test]
fn an_imported_configuration_of_several_frontends_answers_as_haproxy_does() {
    let folder = tempfile::tempdir().unwrap();
    let (Some(mut haproxy), Some(_)) = (tool("haproxy"), tool("curl")) else { return };
    let path = |name: &str| folder.path().join(name).display().to_string();
    for (name, text) in [
        ("503.http", "HTTP/1.0 503 Service Unavailable\r\ncontent-type: text/html\r\n\r\n<p>back soon</p>\n"),
        ("closed.lst", "# closed\n/internal\n/private\n"),
        ("old.map", "/old /new\n/sale /offers/2026\n"),
        ("hosts.map", "api.example   api\nwww.example www\ngone.example missing\ncdn.example static\n"),
        ("paths.map", "/s/ static\n/s/api/ api\n"),
    ] {
        fs::write(path(name), text).unwrap();
    }
    // Both are open at once, so they differ; and no other test takes one of them meanwhile.
    let theirs = [(); 2].map(|()| TcpListener::bind("127.0.0.6:0").unwrap());
    let theirs = theirs.map(|listener| listener.local_addr().unwrap());
    let text = replaced(
        SEVERAL.to_owned(),
        &[
            ("FIRST", theirs[0].to_string()),
            ("SECOND", theirs[1].to_string()),
            ("FOLDER", folder.path().display().to_string()),
            ("API", named("api", "200 OK").to_string()),
            ("STATIC", named("static", "200 OK").to_string()),
            ("WWW", named("www", "200 OK").to_string()),
            ("DOWN", "127.0.0.1:1".to_owned()),
        ],
    );
    fs::write(path("haproxy.cfg"), text).unwrap();
    let imported = Command::new(env!("CARGO_BIN_EXE_serpent")).args(["import", &path("haproxy.cfg")]).output().unwrap();
    let said = String::from_utf8(imported.stderr).unwrap();
    assert!(said.lines().count() == 1 && said.contains("`missing`"), "{said}");
    let text = replaced(
        String::from_utf8(imported.stdout).unwrap(),
        &[(&theirs[0].to_string(), "127.0.0.6:0".to_owned()), (&theirs[1].to_string(), "127.0.0.7:0".to_owned())],
    );
    fs::write(path("serpent.toml"), text).unwrap();
    let running =
        haproxy.args(["-f", &path("haproxy.cfg")]).stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let _running = HaProxy(running);
    let start = Instant::now();
    while std::net::TcpStream::connect(theirs[1]).is_err() {
        assert!(start.elapsed() < PATIENCE, "HAProxy does not listen");
        std::thread::yield_now();
    }
    let serpent = Serpent::start(&["serve", "--config", &path("serpent.toml")]);
    let ours: Vec<SocketAddr> =
        serpent.urls.iter().map(|url| url.split_once("://").unwrap().1.parse().unwrap()).collect();
    // The status and the redirect, and the body where a server or the error file answers.
    let ask = |at: SocketAddr, host: &str, target: &str| {
        let output = Command::new("curl")
            .args(["-sS", "--max-time", "60", "-w", "\n%{http_code} %{redirect_url}", "-H", &format!("host: {host}")])
            .args(["-H", "x-key: 1", &format!("http://{at}{target}")])
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let (body, end) = text.rsplit_once('\n').unwrap();
        let (status, to) = end.split_once(' ').unwrap();
        // A server that refuses connections is 503 there, and 502 here.
        let status = if target == "/down" { status.replace("502", "503") } else { status.to_owned() };
        let body = if matches!(&*status, "200" | "503") { body.trim() } else { "" };
        format!("{status} {} {body}", to.replace(&at.to_string(), ""))
    };
    for host in ["api.example", "www.example", "cdn.example", "CDN.example", "gone.example", "other.example"] {
        for target in ["/", "/old", "/sale?a=1", "/s/x", "/s/api/x", "/internal/x", "/privately", "/down"] {
            let (expected, answered) = (ask(theirs[0], host, target), ask(ours[0], host, target));
            assert_eq!(answered, expected, "{host}{target}");
        }
    }
    assert_eq!(ask(ours[1], "more.example", "/"), "200  api");
    assert_eq!(ask(theirs[1], "more.example", "/"), "200  api");
    for at in [theirs[0], ours[0]] {
        let answers: Vec<_> = (0..8).map(|_| ask(at, "api.example", "/api/x")[..3].to_owned()).collect();
        assert_eq!(answers, ["200", "200", "200", "200", "200", "429", "429", "429"], "{at}");
    }
}
