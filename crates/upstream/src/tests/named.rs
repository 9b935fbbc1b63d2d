//! Names of servers: their records come and go, and name servers fail.

use super::{
    dns::{self, Mode, NameServer, Record},
    *,
};
use names::{Answer, Found, MOST_SERVERS, Resolver};

/// Servers of a service in memory: priority, weight and the last part of the address.
type Service = Vec<(u16, u16, u8)>;

fn found(services: &Service) -> Vec<Found> {
    let found = |(priority, weight, host): &(u16, u16, u8)| Found {
        priority: *priority,
        address: ([127, 0, 0, *host], 9).into(),
        weight: Some(*weight),
    };
    services.iter().map(found).collect()
}

fn of_service(name: &str) -> UpstreamServer {
    let domain = http::uri::Authority::from_static("app.test");
    UpstreamServer::new(UpstreamAddress::Service(name.to_owned()), None, false, domain)
}

/// The known servers: the end of the address, priority and weight.
fn known(upstreams: &Upstreams) -> Vec<(String, u32, u32)> {
    let shown = |server: &ServerStats| (server.server.to_string(), server.priority, server.weight);
    server_stats(upstreams).iter().map(shown).collect()
}

#[tokio::test(start_paused = true)]
async fn records_of_a_service_are_priorities_weights_and_ports() {
    let services = Arc::new(parking_lot::Mutex::new(vec![(10, 5, 1), (10, 0, 2), (20, 60_000, 3)]));
    let told = services.clone();
    let resolver: Resolver = Arc::new(move |_, _| {
        let found = found(&told.lock());
        Box::pin(async move { Ok(Answer { found, lasts: Duration::from_secs(30) }) })
    });
    let mut backup = of_service("_spare._tcp.app.test");
    backup.priority = UpstreamServer::BACKUP;
    for (server, first) in [(of_service("_http._tcp.app.test"), 11), (backup, UpstreamServer::BACKUP - 65_525)] {
        *services.lock() = vec![(10, 5, 1), (10, 0, 2), (20, 60_000, 3)];
        let upstreams = Arc::new(Upstreams::with_resolver(&[config(vec![server])], &[], resolver.clone()).unwrap());
        tokio::spawn(upstreams.clone().drive());
        tokio::time::sleep(Duration::from_secs(1)).await;
        let expected = [("127.0.0.1:9", 0, 5), ("127.0.0.2:9", 0, 1), ("127.0.0.3:9", 10, 60_000)];
        let expected = expected.map(|(at, priority, weight)| (at.to_owned(), first + priority, weight));
        assert_eq!(known(&upstreams), expected, "a weight of 0 is the least one");

        // Another weight is no other server: what the operator has said of it stays.
        let change = ServerChange { mode: Some(ServerMode::Draining), ..ServerChange::default() };
        assert!(upstreams.change("app", "127.0.0.1:9", change));
        *services.lock() = vec![(10, 7, 1), (5, 1, 4)];
        tokio::time::sleep(Duration::from_secs(30)).await;
        let expected = [("127.0.0.1:9".to_owned(), first, 7), ("127.0.0.4:9".to_owned(), first - 5, 1)];
        assert_eq!(known(&upstreams), expected, "by the time of the records");
        assert_eq!(server_stats(&upstreams)[0].mode, ServerMode::Draining);
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_with_very_many_servers_has_so_many() {
    let resolver: Resolver = Arc::new(|_, _| {
        let found = (0..1000).map(|n: u16| Found {
            priority: 0,
            address: ([127, 1, (n >> 8) as u8, n as u8], 9).into(),
            weight: None,
        });
        let found = found.collect();
        Box::pin(async move { Ok(Answer { found, lasts: Duration::from_secs(30) }) })
    });
    let name = UpstreamAddress::Name("app.test".to_owned(), 9);
    let server = UpstreamServer::new(name, None, false, http::uri::Authority::from_static("app.test"));
    let upstreams = Arc::new(Upstreams::with_resolver(&[config(vec![server])], &[], resolver).unwrap());
    tokio::spawn(upstreams.clone().drive());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(known(&upstreams).len(), MOST_SERVERS);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_fails_is_asked_less_often_and_keeps_its_servers() {
    let asked = Arc::new(AtomicUsize::new(0));
    let (counted, start) = (asked.clone(), Instant::now());
    let resolver: Resolver = Arc::new(move |_, _| {
        let works = counted.fetch_add(1, SeqCst) == 0 || start.elapsed() > Duration::from_secs(600);
        let answer = Answer { found: found(&vec![(0, 1, 1)]), lasts: Duration::from_secs(10) };
        Box::pin(async move { if works { Ok(answer) } else { Err(io::Error::other("gone")) } })
    });
    let upstreams =
        Arc::new(Upstreams::with_resolver(&[config(vec![of_service("_a._tcp.app.test")])], &[], resolver).unwrap());
    tokio::spawn(upstreams.clone().drive());
    let names = || upstreams.stats().remove(0).names.remove(0);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(names(), NameStats { name: "_a._tcp.app.test".to_owned(), servers: 1, problem: None });
    tokio::time::sleep(Duration::from_millis(9_500)).await;
    assert_eq!((names().problem.as_deref(), names().servers), (Some("gone"), 1));
    // After 1, 2, 4, 8, 15, 15, ... seconds.
    tokio::time::sleep(Duration::from_secs(120)).await;
    let failed = upstreams.stats()[0].look_ups_failed;
    assert!((10..=13).contains(&failed), "{failed}");
    // A reload keeps the known servers and the count of failed look-ups.
    let next = upstreams
        .succeed(&[UpstreamConfig { retries: 3, ..config(vec![of_service("_a._tcp.app.test")]) }], &[])
        .unwrap();
    assert_eq!((next.stats()[0].names[0].servers, next.stats()[0].look_ups_failed), (1, failed));
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(names().problem, None);
    let found = asked.load(SeqCst) as u64 - upstreams.stats()[0].look_ups_failed;
    assert!((13..=15).contains(&found), "every ten seconds, as before: {found}");
}

/// A gateway that asks a name server for its servers.
fn gateway(server: &NameServer, name: UpstreamAddress) -> Arc<Upstreams> {
    let at = UpstreamServer::new(name, None, false, http::uri::Authority::from_static("app.test"));
    let resolvers = vec![server.address];
    let upstreams = Upstreams::new(&[UpstreamConfig { resolvers, ..config(vec![at]) }], &[]).unwrap();
    let upstreams = Arc::new(upstreams);
    tokio::spawn(upstreams.clone().drive());
    upstreams
}

async fn until_known(upstreams: &Upstreams, expected: &[(&str, u32, u32)]) {
    let expected: Vec<_> =
        expected.iter().map(|(at, priority, weight)| ((*at).to_owned(), *priority, *weight)).collect();
    let limit = std::time::Instant::now() + Duration::from_secs(60);
    while known(upstreams) != expected {
        assert!(std::time::Instant::now() < limit, "{:?} is not {expected:?}", known(upstreams));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn addresses_are_asked_of_the_name_server_that_is_given() {
    let records = vec![dns::address("app.test", 1, "127.0.0.1"), dns::address("app.test", 1, "::1")];
    let server = NameServer::start(records);
    let upstreams = gateway(&server, UpstreamAddress::Name("app.test".to_owned(), 80));
    until_known(&upstreams, &[("127.0.0.1:80", 1, 1), ("[::1]:80", 1, 1)]).await;
    // One goes and another comes.
    server.answers(Mode::Records(vec![
        dns::address("app.test", 1, "127.0.0.1"),
        dns::address("app.test", 1, "127.0.0.2"),
    ]));
    until_known(&upstreams, &[("127.0.0.1:80", 1, 1), ("127.0.0.2:80", 1, 1)]).await;
    for mode in [Mode::Fails, Mode::Records(Vec::new())] {
        let failed = upstreams.stats()[0].look_ups_failed;
        server.answers(mode);
        let limit = std::time::Instant::now() + Duration::from_secs(60);
        while upstreams.stats()[0].look_ups_failed == failed {
            assert!(std::time::Instant::now() < limit);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(known(&upstreams).len(), 2, "the last answer stays");
        assert!(upstreams.stats()[0].names[0].problem.is_some());
    }
    server.answers(Mode::Records(vec![dns::address("app.test", 1, "127.0.0.3")]));
    until_known(&upstreams, &[("127.0.0.3:80", 1, 1)]).await;
    assert_eq!(upstreams.stats()[0].names[0].problem, None);
}

#[tokio::test]
async fn services_are_asked_of_the_name_server_that_is_given() {
    let host = |name: &'static str, address: &str| dns::address(name, 300, address);
    let service = |values, target| dns::service("_http._tcp.app.test", 1, values, target);
    let hosts = [host("a.test", "127.0.0.1"), host("b.test", "127.0.0.2"), host("b.test", "127.0.0.3")];
    let with = |services: Vec<Record>| [services, hosts.to_vec()].concat();
    let server = NameServer::start(with(vec![
        service((10, 3, 8080), "a.test"),
        service((10, 1, 8081), "b.test"),
        service((20, 1, 8082), "none.test"),
    ]));
    let upstreams = gateway(&server, UpstreamAddress::Service("_http._tcp.app.test".to_owned()));
    let expected = [("127.0.0.1:8080", 11, 3), ("127.0.0.2:8081", 11, 1), ("127.0.0.3:8081", 11, 1)];
    until_known(&upstreams, &expected).await;
    server.answers(Mode::Records(with(vec![service((0, 2, 80), "b.test")])));
    until_known(&upstreams, &[("127.0.0.2:80", 1, 2), ("127.0.0.3:80", 1, 2)]).await;
    // The service is decidedly not here: the last answer stays, and the operator is told.
    server.answers(Mode::Records(with(vec![service((0, 0, 0), "")])));
    let limit = std::time::Instant::now() + Duration::from_secs(60);
    while upstreams.stats()[0].names[0].problem.is_none() {
        assert!(std::time::Instant::now() < limit);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(known(&upstreams).len(), 2);
}

#[tokio::test]
async fn a_request_waits_for_a_name_server_that_is_late() {
    let peer = Peer::echo_path().await;
    let server = NameServer::start(Vec::new());
    server.answers(Mode::Silent);
    let at = UpstreamAddress::Name("app.test".to_owned(), peer.address.port());
    let upstreams = gateway(&server, at);
    let pools = Pools::new(upstreams.clone());
    let asking = tokio::spawn(async move { asked(&pools, get("/late")).await.unwrap().1 });
    let limit = std::time::Instant::now() + Duration::from_secs(60);
    while server.asked() == 0 {
        assert!(std::time::Instant::now() < limit);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    server.answers(Mode::Records(vec![dns::address("app.test", 300, "127.0.0.1")]));
    assert_eq!(asking.await.unwrap(), "/late");
}

#[tokio::test]
async fn the_hosts_of_the_system_are_known_without_a_name_server() {
    let peer = Peer::echo_path().await;
    let name = UpstreamAddress::Name("localhost".to_owned(), peer.address.port());
    let server = UpstreamServer::new(name, None, false, http::uri::Authority::from_static("localhost"));
    let (pools, _) = pools(config(vec![server]));
    assert_eq!(asked(&pools, get("/here")).await.unwrap().1, "/here");
}
