//! Health, names, classes, and changes of the configuration.

use std::{num::NonZeroU32, sync::atomic::AtomicU16};

use parking_lot::Mutex;

use super::*;
use names::{Answer, Found, Question, Resolver};

fn healths(upstreams: &Upstreams) -> Vec<Health> {
    server_stats(upstreams).iter().map(|server| server.health).collect()
}

#[tokio::test(start_paused = true)]
async fn a_dead_server_costs_no_request_and_is_left_alone() {
    let (dead, peer) = (Near::dead(), Near::echo_path());
    let (pools, upstreams) = pools(config(vec![dead.at(), peer.at()]));
    for number in 0..20 {
        let path = format!("/{number}");
        assert_eq!(asked(&pools, post(&path, "x")).await.unwrap().1, path);
    }
    assert_eq!(healths(&upstreams), [Health::Paused, Health::Healthy]);
    assert_eq!(server_stats(&upstreams)[0].failures, 3);
    assert_eq!(upstreams.stats()[0].retries, 3);

    // After the pause a single request tries the server and, as that fails, is served by the other one.
    tokio::time::advance(Duration::from_secs(11)).await;
    for _ in 0..5 {
        asked(&pools, get("/")).await.unwrap();
    }
    assert_eq!(server_stats(&upstreams)[0].failures, 4);
    dead.listen(|stream, _| serve(stream, |_| async { Response::new(text("back")) }));
    tokio::time::advance(Duration::from_secs(11)).await;
    assert_eq!(asked(&pools, get("/")).await.unwrap().1, "back");
    assert_eq!(healths(&upstreams), [Health::Healthy, Health::Healthy]);
}

#[tokio::test]
async fn where_all_are_dead_it_is_told_why() {
    let (one, two) = (Near::dead(), Near::dead());
    let (pools, upstreams) = pools(config(vec![one.at(), two.at()]));
    for _ in 0..10 {
        let error = asked(&pools, get("/")).await.unwrap_err();
        assert_eq!((error.reason(), error.status().as_u16()), ("connect", 502), "{error}");
    }
    assert_eq!(healths(&upstreams), [Health::Paused, Health::Paused]);
}

#[tokio::test(start_paused = true)]
async fn active_checks_take_servers_out_and_in() {
    let status = Arc::new(AtomicU16::new(200));
    let told = status.clone();
    let checked = Arc::new(AtomicUsize::new(0));
    let counted = checked.clone();
    let peer = Near::http(move |request| {
        let (status, checked) = (told.clone(), counted.clone());
        async move {
            let mut response = Response::new(text("ok"));
            if request.uri().path() == "/well" {
                assert_eq!(request.uri().query(), Some("deep=1"));
                checked.fetch_add(1, SeqCst);
                *response.status_mut() = StatusCode::from_u16(status.load(SeqCst)).unwrap();
            }
            response
        }
    });
    for two in [false, true] {
        status.store(200, SeqCst);
        checked.store(0, SeqCst);
        let active = ActiveChecks {
            path: "/well?deep=1".parse().unwrap(),
            every: Duration::from_secs(5),
            timeout: Duration::from_secs(2),
            statuses: (200, 299),
            rise: 2,
            fall: 2,
        };
        let server = if two { http2(peer.at()) } else { peer.at() };
        let (pools, upstreams) = pools(UpstreamConfig { active: Some(active), ..config(vec![server]) });
        let driven = tokio::spawn(upstreams.clone().drive());
        let later = |checks: u64| tokio::time::sleep(Duration::from_secs(5 * checks));
        tokio::time::sleep(Duration::from_secs(1)).await;
        later(3).await;
        assert_eq!((checked.load(SeqCst), healths(&upstreams)), (4, vec![Health::Healthy]));
        status.store(503, SeqCst);
        later(1).await;
        assert_eq!(healths(&upstreams), [Health::Healthy]);
        later(1).await;
        assert_eq!(healths(&upstreams), [Health::Down]);
        assert_eq!(reason(&pools, get("/")).await, "down");
        status.store(204, SeqCst);
        later(1).await;
        assert_eq!(healths(&upstreams), [Health::Down]);
        later(1).await;
        assert_eq!(healths(&upstreams), [Health::Healthy]);
        asked(&pools, get("/")).await.unwrap();
        driven.abort();
        let _ = driven.await;
        let last = checked.load(SeqCst);
        later(10).await;
        assert_eq!(checked.load(SeqCst), last, "checks end with what drives them");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_without_tls_that_speaks_http2_only_passes_its_checks() {
    let http2_only = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let told = http2_only.clone();
    let peer = Near::raw(move |stream, _| {
        let http2_only = told.load(SeqCst);
        async move {
            let service = service_fn(|_| async { Ok::<_, Infallible>(Response::new(text(""))) });
            let auto = auto::Builder::new(TokioExecutor::new());
            let auto = if http2_only { auto.http2_only() } else { auto.http1_only() };
            let _ = auto.serve_connection(TokioIo::new(stream), service).await;
        }
    });
    let active = ActiveChecks {
        path: "/".parse().unwrap(),
        every: Duration::from_secs(5),
        timeout: Duration::from_secs(2),
        statuses: (200, 299),
        rise: 1,
        fall: 1,
    };
    let (_pools, upstreams) = pools(UpstreamConfig { active: Some(active), ..config(vec![peer.at()]) });
    tokio::spawn(upstreams.clone().drive());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!((peer.connections(), healths(&upstreams)), (2, vec![Health::Healthy]), "first HTTP/1.1, then HTTP/2");
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!((peer.connections(), healths(&upstreams)), (4, vec![Health::Healthy]), "then HTTP/2 at once");
    http2_only.store(false, SeqCst);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!((peer.connections(), healths(&upstreams)), (7, vec![Health::Healthy]), "another program is there now");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_hangs_fails_its_checks() {
    let peer = Near::raw(|stream, _| async move {
        std::future::pending::<()>().await;
        drop(stream);
    });
    let active = ActiveChecks {
        path: "/".parse().unwrap(),
        every: Duration::from_secs(1),
        timeout: Duration::from_secs(30),
        statuses: (200, 299),
        rise: 1,
        fall: 1,
    };
    let (_pools, upstreams) = pools(UpstreamConfig { active: Some(active), ..config(vec![peer.at()]) });
    tokio::spawn(upstreams.clone().drive());
    tokio::time::sleep(Duration::from_secs(29)).await;
    assert_eq!((peer.connections(), healths(&upstreams)), (1, vec![Health::Healthy]), "one check at a time");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(healths(&upstreams), [Health::Down]);
}

/// The addresses of a name, or why it cannot be resolved.
type Answered = Arc<Mutex<Result<Vec<SocketAddr>, io::ErrorKind>>>;

fn resolver(answered: &Answered) -> Resolver {
    let answered = answered.clone();
    Arc::new(move |question, _| {
        assert_eq!(question, Question::Host("app.test".to_owned(), 80));
        let found = |address: &SocketAddr| Found { priority: 0, address: *address, weight: None };
        let answer = answered.lock().clone().map_err(io::Error::from);
        let answer = answer.map(|addresses| {
            let mut found: Vec<_> = addresses.iter().map(found).collect();
            found.sort();
            found.dedup();
            Answer { found, lasts: Duration::from_secs(15) }
        });
        Box::pin(async move { answer })
    })
}

fn named() -> UpstreamConfig {
    let address = UpstreamAddress::Name("app.test".to_owned(), 80);
    let authority = http::uri::Authority::from_static("app.test");
    config(vec![UpstreamServer::new(address, None, false, authority)])
}

fn addresses(upstreams: &Upstreams) -> Vec<String> {
    server_stats(upstreams).iter().map(|server| server.server.to_string()).collect()
}

#[tokio::test(start_paused = true)]
async fn names_are_looked_up_anew() {
    let (one, two) = (Peer::echo_path().await, Peer::echo_path().await);
    let answered: Answered = Arc::new(Mutex::new(Err(io::ErrorKind::NotFound)));
    // Long, because the paused clock may advance while bytes are under way.
    let long = Duration::from_secs(1 << 20);
    let config = UpstreamConfig { keep_for: long, connect_timeout: long, idle_timeout: long, ..named() };
    let upstreams = Arc::new(Upstreams::with_resolver(&[config], &[], resolver(&answered)).unwrap());
    let pools = Pools::new(upstreams.clone());
    assert_eq!(reason(&pools, get("/")).await, "unknown");
    tokio::time::advance(Duration::from_secs(2)).await;
    *answered.lock() = Ok(vec![one.address]);
    // The upstreams work whether or not `drive` runs.
    asked(&pools, get("/")).await.unwrap();
    assert_eq!(addresses(&upstreams), [one.address.to_string()]);

    tokio::spawn(upstreams.clone().drive());
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut both = [one.address, two.address];
    both.sort();
    *answered.lock() = Ok(vec![two.address, one.address, two.address]);
    tokio::time::sleep(Duration::from_secs(16)).await;
    assert_eq!(addresses(&upstreams), both.iter().map(ToString::to_string).collect::<Vec<_>>());
    for _ in 0..4 {
        asked(&pools, get("/")).await.unwrap();
    }
    let requests = |upstreams: &Upstreams, address: SocketAddr| {
        let stats = server_stats(upstreams);
        stats.iter().find(|server| *server.server == *address.to_string()).map(|server| server.requests)
    };
    assert_eq!(requests(&upstreams, one.address), Some(3), "what is known of one that stays, stays");
    assert_eq!((one.connections(), two.connections()), (1, 1));

    for failure in [Err(io::ErrorKind::TimedOut), Ok(Vec::new())] {
        *answered.lock() = failure;
        tokio::time::sleep(Duration::from_secs(16)).await;
        assert_eq!(addresses(&upstreams).len(), 2);
    }
    *answered.lock() = Ok(vec![two.address]);
    tokio::time::sleep(Duration::from_secs(16)).await;
    assert_eq!(addresses(&upstreams), [two.address.to_string()]);
    asked(&pools, get("/")).await.unwrap();
    assert_eq!((one.connections(), two.connections()), (1, 1));
}

#[tokio::test]
async fn classes_have_servers_of_their_own() {
    let server = |name: &'static str| Peer::http(move |_| async move { Response::new(text(name)) });
    let (high, low, all) = (server("high").await, server("low").await, server("all").await);
    let started = vec![vec![vec![at(high.address)], vec![at(low.address)]]];
    let upstreams = Arc::new(Upstreams::new(&[config(Vec::new())], &started).unwrap());
    let pools = Pools::new(upstreams.clone());
    let answered = async |pools: &Pools, class: usize| {
        let answer = pools.send(get("/"), Ask { class, ..defaults() }).await.map_err(|error| error.reason())?;
        Ok(answer.response.into_body().collect().await.unwrap().to_bytes())
    };
    for (class, expected) in [(0, Ok("high")), (1, Ok("low")), (2, Err("unknown")), (0, Ok("high"))] {
        assert_eq!(answered(&pools, class).await, expected.map(Bytes::from));
    }
    assert_eq!(server_stats(&upstreams).iter().map(|server| server.class).collect::<Vec<_>>(), [Some(0), Some(1)]);
    let with_all = Arc::new(Upstreams::new(&[config(vec![at(all.address)])], &started[..1]).unwrap());
    let pools = Pools::new(with_all);
    assert_eq!(answered(&pools, 2).await, Ok(Bytes::from("all")));
    let mut seen = vec![answered(&pools, 1).await.unwrap(), answered(&pools, 1).await.unwrap()];
    seen.sort();
    assert_eq!(seen, ["all", "low"]);
}

#[tokio::test(start_paused = true)]
async fn a_new_configuration_keeps_what_has_not_changed() {
    let (peer, dead) = (Near::echo_path(), Near::dead());
    let stays = config(vec![peer.at(), dead.at()]);
    let other = UpstreamConfig { name: "other".to_owned(), ..config(vec![peer.at()]) };
    let before = Arc::new(Upstreams::new(&[stays.clone(), other.clone()], &[]).unwrap());
    let pools = Pools::new(before.clone());
    for _ in 0..8 {
        asked(&pools, get("/")).await.unwrap();
    }
    let to_other = Ask { upstream: 1, ..defaults() };
    drop(pools.send(get("/"), to_other).await.unwrap());
    assert_eq!((healths(&before), peer.connections()), (vec![Health::Healthy, Health::Paused], 2));

    // Another order, with one of them changed.
    let changed = UpstreamConfig { most_connections: NonZeroU32::new(7), ..other };
    let after = Arc::new(before.succeed(&[changed, stays], &[]).unwrap());
    before.replaced_by(&after);
    let next = pools.succeed(after.clone());
    drop(pools);
    let stats = after.stats();
    assert_eq!(stats[1].servers[1].health, Health::Paused);
    assert_eq!(stats[0].servers[0].requests, 1);
    next.send(get("/"), to_other).await.unwrap().response.into_body().collect().await.unwrap();
    assert_eq!(peer.connections(), 2, "what has not changed keeps its connections");
    asked(&next, get("/")).await.unwrap();
    assert_eq!(peer.connections(), 3);
    until("the old ones are closed", || after.stats()[0].servers[0].connections == 1).await;
}

#[tokio::test]
async fn a_request_outlives_its_configuration() {
    let go = Arc::new(tokio::sync::Notify::new());
    let gone = go.clone();
    let peer = Peer::http(move |_| {
        let go = gone.clone();
        async move {
            go.notified().await;
            Response::new(text("late"))
        }
    })
    .await;
    let (pools, before) = pools(config(vec![at(peer.address)]));
    let after = Arc::new(before.succeed(&[], &[]).unwrap());
    let next = pools.succeed(after.clone());
    let asking = tokio::spawn(async move { asked(&pools, get("/")).await });
    until("it is connected", || peer.connections() == 1).await;
    before.replaced_by(&after);
    go.notify_one();
    assert_eq!(asking.await.unwrap().unwrap().1, "late");
    until("it is closed", || server_stats(&before)[0].connections == 0).await;
    assert_eq!(reason(&next, get("/")).await, "unknown");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_fails_where_the_others_do_not_is_left_alone_for_a_while() {
    let status = Arc::new(AtomicU16::new(500));
    let told = status.clone();
    let bad = Near::http(move |_| {
        let status = told.load(SeqCst);
        async move {
            let mut response = Response::new(text("bad"));
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            response
        }
    });
    let good = [Near::echo_path(), Near::echo_path()];
    let outliers = OutlierChecks {
        every: Duration::from_secs(10),
        requests: 5,
        errors: Some(0.5),
        slower: None,
        pause: Duration::from_secs(30),
        most: 50,
    };
    let servers = vec![bad.at(), good[0].at(), good[1].at()];
    let config = UpstreamConfig { outliers: Some(outliers), balance: Balance::RoundRobin, ..config(servers) };
    let (pools, upstreams) = pools(config);
    let driving = tokio::spawn(upstreams.clone().drive());
    let failed = async |requests: usize| {
        let mut failed = 0;
        for _ in 0..requests {
            failed += usize::from(asked(&pools, get("/")).await.unwrap().0 == 500);
        }
        failed
    };
    // The first look only reads the counts.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(failed(30).await, 10);
    assert_eq!(healths(&upstreams)[0], Health::Healthy);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(healths(&upstreams), [Health::Ejected, Health::Healthy, Health::Healthy]);
    assert_eq!(failed(30).await, 0);
    status.store(200, SeqCst);
    tokio::time::sleep(Duration::from_secs(40)).await;
    assert_eq!(healths(&upstreams)[0], Health::Healthy);
    assert_eq!(failed(30).await, 0);
    assert!(server_stats(&upstreams)[0].requests >= 20, "it is used again");
    driving.abort();
}
