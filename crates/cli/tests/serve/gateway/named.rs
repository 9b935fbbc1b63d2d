//! Names of servers, which a made-up name server answers.

#[path = "../../../../upstream/src/tests/dns.rs"]
#[allow(dead_code)]
pub(crate) mod dns;

use serde_json::Value;

use self::dns::{Mode, NameServer, Record};
use super::{balancing::named, *};

/// The upstream in the admin API.
fn upstream(admin: SocketAddr) -> Value {
    let mut stream = TcpStream::connect(admin).unwrap();
    stream.write_all(b"GET /api/upstreams HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").unwrap();
    let answer = all(stream);
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str::<Value>(body).unwrap()["upstreams"][0].clone()
}

#[test]
fn servers_of_a_service_come_and_go_with_its_records() {
    let servers = [named("a", "200 OK"), named("b", "200 OK"), named("spare", "200 OK")];
    let service = |at: usize, priority, weight| {
        dns::service("_http._tcp.shop.test", 1, (priority, weight, servers[at].port()), "here.test")
    };
    let with =
        |services: Vec<Record>| Mode::Records([services, vec![dns::address("here.test", 60, "127.0.0.1")]].concat());
    let name_server = NameServer::start(Vec::new());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("serpent.toml");
    let text = format!(
        "listen = [\"127.0.0.1:0\"]\nadmin = \"127.0.0.1:0\"\nworkers = 1\nresolver = [\"{}\"]\n[uplink]\nrate = \"off\"\n\
         [[upstream]]\nname = \"app\"\nbalance = \"round-robin\"\nconnect-timeout = \"1s\"\n\
         servers = [\"http://_http._tcp.shop.test\"]\n[[site]]\n[[site.route]]\npath = \"/\"\nupstream = \"app\"\n",
        name_server.address
    );
    fs::write(&file, text).unwrap();
    // The name is of no server yet: the gateway starts, and says so.
    let (serpent, admin) = start(&file);
    let said = serpent.wait_for_stderr("`_http._tcp.shop.test` cannot be looked up");
    assert!(said.contains("its 0 known servers stay in use"), "{said}");
    let ask = || {
        let mut stream = serpent.connect();
        stream.write_all(b"GET / HTTP/1.1\r\nhost: shop.test\r\nconnection: close\r\n\r\n").unwrap();
        all(stream)
    };
    assert!(ask().starts_with("HTTP/1.1 503 "));

    name_server.answers(with(vec![service(0, 0, 3), service(1, 0, 1), service(2, 1, 1)]));
    serpent.wait_for_stderr("is looked up again");
    wait_for_metric(admin, "serpent_upstream_name_found{upstream=\"app\",name=\"_http._tcp.shop.test\"} 1");
    let eight = || (0..8).map(|_| ask().rsplit('\n').next().unwrap().to_owned()).collect::<Vec<_>>();
    let answered = eight();
    let by = |name: &str| answered.iter().filter(|it| *it == name).count();
    assert_eq!((by("a"), by("b"), by("spare")), (6, 2, 0), "{answered:?}");

    // A server vanishes, and then the name server.
    name_server.answers(with(vec![service(1, 0, 1), service(2, 1, 1)]));
    let gone = std::time::Instant::now();
    while upstream(admin)["servers"].as_array().unwrap().len() != 2 {
        assert!(gone.elapsed() < PATIENCE);
        std::thread::yield_now();
    }
    assert_eq!(eight(), ["b"; 8]);
    name_server.answers(Mode::Fails);
    wait_for_metric(admin, "serpent_upstream_name_found{upstream=\"app\",name=\"_http._tcp.shop.test\"} 0");
    assert_eq!(eight(), ["b"; 8], "the last answer stays");
    let shown = upstream(admin);
    assert_eq!(
        (&shown["names"][0]["servers"], &shown["names"][0]["name"]),
        (&2.into(), &"_http._tcp.shop.test".into())
    );
    assert!(shown["names"][0]["problem"].is_string() && shown["look_ups_failed"].as_u64().unwrap() >= 2, "{shown}");
}

/// A made-up application behind uwsgi, which answers every request with its name.
fn application(name: &'static str, address: SocketAddr) -> SocketAddr {
    let listener = std::net::TcpListener::bind(address).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut head = [0; 4];
            let _ = stream.read_exact(&mut head);
            let mut variables = vec![0; usize::from(u16::from_le_bytes([head[1], head[2]]))];
            let _ = stream.read_exact(&mut variables);
            let _ = stream.write_all(format!("HTTP/1.1 200 OK\r\n\r\n{name}").as_bytes());
        }
    });
    address
}

#[test]
fn an_application_is_followed_by_its_name() {
    let first = application("first", "127.0.0.1:0".parse().unwrap());
    application("second", format!("127.0.0.2:{}", first.port()).parse().unwrap());
    let name_server = NameServer::start(vec![dns::address("app.test", 1, "127.0.0.1")]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("serpent.toml");
    let text = format!(
        "listen = [\"127.0.0.1:0\"]\nadmin = \"127.0.0.1:0\"\nworkers = 1\nresolver = [\"{}\"]\n[uplink]\nrate = \"off\"\n\
         [[site]]\n[[site.route]]\npath = \"/\"\nuwsgi = \"app.test:{}\"\n",
        name_server.address,
        first.port()
    );
    fs::write(&file, text).unwrap();
    let (serpent, _) = start(&file);
    let ask = || {
        let mut stream = serpent.connect();
        stream.write_all(b"GET / HTTP/1.1\r\nhost: shop.test\r\nconnection: close\r\n\r\n").unwrap();
        all(stream)
    };
    let ends_with = |name: &str| {
        let start = std::time::Instant::now();
        loop {
            let answer = ask();
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
            if answer.contains(name) {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "{answer}");
        }
    };
    ends_with("first");
    name_server.answers(Mode::Records(vec![dns::address("app.test", 1, "127.0.0.2")]));
    ends_with("second");
    name_server.answers(Mode::Fails);
    let asked = name_server.asked();
    while name_server.asked() == asked {
        ends_with("second");
    }
    serpent.wait_for_stderr("`app.test` cannot be looked up");
    ends_with("second");
}
