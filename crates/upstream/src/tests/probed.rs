//! Probes: pages that are asked for to measure them.

use http::{header, uri::PathAndQuery};
use tokio::task::JoinSet;

use super::{
    super::probe::{Fault, Probe, ProbeError},
    exchanged::channel_body,
    *,
};

const LONG: Duration = Duration::from_secs(3600);

fn page(text: &'static str) -> PathAndQuery {
    PathAndQuery::from_static(text)
}

fn probe(server: UpstreamServer) -> Probe {
    Probe::new(&config(vec![server]), page("/page?cost=12"), None).unwrap()
}

fn reason(error: &ProbeError) -> &'static str {
    match error {
        ProbeError::TimedOut { .. } => "late",
        ProbeError::Upstream(error) => error.reason(),
    }
}

#[tokio::test(start_paused = true)]
async fn the_whole_answer_is_measured_over_either_version() {
    let peer = Near::http(|request| async move {
        assert_eq!((request.uri().path(), request.uri().query()), ("/page", Some("cost=12")));
        assert!(request.headers()[header::USER_AGENT].to_str().unwrap().ends_with("(probe)"));
        tokio::time::sleep(Duration::from_secs(2)).await;
        let (sender, body) = channel_body();
        tokio::spawn(async move {
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_secs(1)).await;
                let frame = http_body::Frame::data(Bytes::from_static(&[0; 1000]));
                sender.send(Ok(frame)).await.unwrap();
            }
        });
        Response::new(body)
    });
    for server in [peer.at(), http2(peer.at())] {
        let answer = probe(server).ask(LONG).await.unwrap();
        assert_eq!((answer.status, answer.took.as_secs(), answer.bytes), (StatusCode::OK, 5, 3000));
        assert!(answer.is_page());
    }
}

#[tokio::test]
async fn many_are_asked_at_once_and_their_connections_kept_for_the_next() {
    let peer = Peer::echo_path().await;
    for two in [false, true] {
        let server = if two { http2(at(peer.address)) } else { at(peer.address) };
        let probe = Arc::new(Probe::new(&config(vec![server]), page("/page"), Some("shop.example")).unwrap());
        let before = peer.connections();
        for _ in 0..5 {
            let mut asked = JoinSet::new();
            for _ in 0..8 {
                let probe = probe.clone();
                asked.spawn(async move { probe.ask(LONG).await.unwrap().bytes });
            }
            assert_eq!(asked.join_all().await, [5; 8]);
        }
        let made = peer.connections() - before;
        assert!(if two { made == 1 } else { made <= 8 }, "{made} connections");
    }
}

#[tokio::test]
async fn the_host_is_its_own_or_the_one_that_is_given() {
    let peer = Peer::http(|request| async move {
        let host = request.headers()[header::HOST].to_str().unwrap().to_owned();
        Response::new(text(host))
    })
    .await;
    let servers = config(vec![at(peer.address)]);
    for host in [None, Some("a-much-longer-name-than-an-address.example:8080")] {
        let expected = host.map_or_else(|| peer.address.to_string(), str::to_owned);
        let answer = Probe::new(&servers, page("/"), host).unwrap().ask(LONG).await.unwrap();
        assert_eq!(answer.bytes, expected.len() as u64);
    }
}

#[tokio::test]
async fn an_error_page_is_an_answer_and_not_the_page() {
    let peer = Peer::http(|_| async move {
        let mut response = Response::new(text("no"));
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        response
    })
    .await;
    let answer = probe(at(peer.address)).ask(LONG).await.unwrap();
    assert_eq!((answer.status.as_u16(), answer.is_page()), (503, false));
}

#[tokio::test(start_paused = true)]
async fn what_takes_too_long_is_given_up_and_leaves_nothing_behind() {
    let part = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\npart";
    for says in ["", part] {
        let peer = Near::raw(move |mut stream, _| async move {
            read_head(&mut stream).await;
            write(&mut stream, says).await;
            std::future::pending::<()>().await;
        });
        let upstreams = Arc::new(Upstreams::new(&[config(vec![peer.at()])], &[]).unwrap());
        let probe = Probe::of(upstreams.clone(), 0, page("/"), None).unwrap();
        let start = Instant::now();
        let error = probe.ask(Duration::from_secs(7)).await.unwrap_err();
        assert_eq!(start.elapsed().as_secs(), 7);
        assert_eq!((reason(&error), error.fault()), ("late", Fault::Site));
        assert_eq!(error.to_string(), "no whole answer within 7.000 s");
        let stats = server_stats(&upstreams).remove(0);
        assert_eq!((stats.in_flight, stats.connections), (0, 0), "{says:?}");
    }
}

#[tokio::test]
async fn an_error_says_whose_fault_it_is() {
    let dead = Near::dead();
    let error = probe(dead.at()).ask(LONG).await.unwrap_err();
    assert_eq!((reason(&error), error.fault()), ("connect", Fault::Site));
    let peer = Peer::raw(|stream, _| async move { drop(stream) }).await;
    let error = probe(at(peer.address)).ask(LONG).await.unwrap_err();
    assert_eq!((reason(&error), error.fault()), ("closed", Fault::Site));
    let nobody = Probe::new(&config(Vec::new()), page("/"), None).unwrap().ask(LONG).await.unwrap_err();
    assert_eq!((reason(&nobody), nobody.fault()), ("unknown", Fault::Operator));
    let error = rustix::io::Errno::MFILE.into();
    let shortage = ProbeError::Upstream(UpstreamError::Shortage { server: "app".into(), error });
    assert_eq!(shortage.fault(), Fault::ThisMachine);
}

#[tokio::test]
async fn classes_are_asked_at_their_own_servers() {
    let peer = Peer::echo_path().await;
    let started = vec![vec![Vec::new(), vec![at(peer.address)]]];
    let upstreams = Arc::new(Upstreams::new(&[config(Vec::new())], &started).unwrap());
    let probe = || Probe::of(upstreams.clone(), 0, page("/"), None).unwrap();
    assert_eq!(reason(&probe().ask(LONG).await.unwrap_err()), "unknown");
    probe().for_class(1).ask(LONG).await.unwrap();
    assert_eq!(server_stats(&upstreams)[0].requests, 1);
}

#[test]
fn a_host_or_upstream_that_is_none_is_refused() {
    let error = Probe::new(&config(Vec::new()), page("/"), Some("no host")).unwrap_err();
    assert_eq!(error.to_string(), "upstream `app`: `no host` is no host");
    let upstreams = Arc::new(Upstreams::new(&[], &[]).unwrap());
    assert!(Probe::of(upstreams, 3, page("/"), None).unwrap_err().to_string().contains("number 3"));
}
