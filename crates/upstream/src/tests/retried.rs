//! Requests that are sent again, and those that are not; and servers that fail at random.

use std::{collections::HashMap, sync::atomic::AtomicU16};

use parking_lot::Mutex;

use super::*;

/// Answers with this status, and the path.
fn always(status: u16) -> Near {
    Near::http(move |request| async move {
        let mut response = Response::new(text(request.uri().path().to_owned()));
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        response
    })
}

fn retrying(servers: Vec<UpstreamServer>) -> UpstreamConfig {
    let statuses = [502, 503, 504].map(|status| StatusCode::from_u16(status).unwrap());
    UpstreamConfig { retry_statuses: statuses.to_vec(), balance: Balance::RoundRobin, ..config(servers) }
}

fn of(method: &str, path: &str) -> Request<RequestBody> {
    Request::builder().method(method).uri(path).body(RequestBody::Empty).unwrap()
}

#[tokio::test]
async fn a_safe_request_goes_on_to_another_server_after_an_error_status() {
    for speaks in [std::convert::identity, http2] {
        let (bad, good) = (always(503), always(200));
        let (pools, upstreams) = pools(retrying(vec![speaks(bad.at()), speaks(good.at())]));
        for turn in 0..4 {
            let (status, body) = asked(&pools, get("/page")).await.unwrap();
            assert_eq!((status.as_u16(), &*body), (200, "/page"), "{turn}");
        }
        let retries = upstreams.stats()[0].retries;
        assert!((1..=4).contains(&retries), "{retries}");
        for method in ["POST", "PUT", "DELETE"] {
            let mut statuses = Vec::new();
            for _ in 0..2 {
                statuses.push(asked(&pools, of(method, "/")).await.unwrap().0.as_u16());
            }
            statuses.sort_unstable();
            assert_eq!(statuses, [200, 503], "{method} has effects");
        }
        assert_eq!(upstreams.stats()[0].retries, retries);
    }
}

#[tokio::test]
async fn where_no_server_does_better_the_client_gets_an_answer_of_a_server() {
    let (one, two) = (always(503), always(504));
    let (both, _) = pools(retrying(vec![one.at(), two.at()]));
    let (status, body) = asked(&both, get("/page")).await.unwrap();
    assert_eq!((status.as_u16(), &*body), (504, "/page"), "the last one");
    let dead = Near::dead();
    let (with_dead, upstreams) = pools(UpstreamConfig { retries: 2, ..retrying(vec![one.at(), dead.at()]) });
    assert_eq!(asked(&with_dead, get("/page")).await.unwrap(), (StatusCode::SERVICE_UNAVAILABLE, "/page".to_owned()));
    assert_eq!(upstreams.stats()[0].retries, 1);
    let (alone, upstreams) = pools(retrying(vec![one.at()]));
    assert_eq!(asked(&alone, get("/page")).await.unwrap().0, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!((upstreams.stats()[0].retries, one.connections()), (0, 3), "there is no other server");
}

#[tokio::test(start_paused = true)]
async fn a_safe_request_goes_on_when_a_server_is_silent_or_speaks_no_http() {
    let silent = Near::raw(|stream, _| async move {
        let _open = stream;
        std::future::pending().await
    });
    let babbling = Near::raw(|mut stream, _| async move {
        read_head(&mut stream).await;
        write(&mut stream, "what?\r\n\r\n").await;
    });
    for (bad, status, after) in [(silent, 504, 60), (babbling, 502, 0)] {
        let good = always(200);
        let (pools, _) = pools(retrying(vec![bad.at(), good.at()]));
        let start = Instant::now();
        assert_eq!(asked(&pools, get("/page")).await.unwrap().1, "/page");
        assert_eq!(start.elapsed().as_secs(), after);
        assert_eq!(asked(&pools, of("DELETE", "/")).await.unwrap_err().status().as_u16(), status);
    }
}

#[tokio::test(start_paused = true)]
async fn retries_are_a_part_of_all_requests() {
    let (bad, good) = (always(503), always(200));
    let (pools, upstreams) = pools(retrying(vec![bad.at(), good.at()]));
    let mut failed = 0;
    for _ in 0..200 {
        failed += u64::from(asked(&pools, get("/")).await.unwrap().0 == 503);
    }
    let stats = upstreams.stats().remove(0);
    // Ten at once, and a fifth of the requests.
    assert!((45..=52).contains(&stats.retries), "{}", stats.retries);
    assert_eq!(failed, stats.retries_refused);
    assert!(failed > 40, "{failed}");
    let (pools, upstreams) = {
        let config = UpstreamConfig { retry_budget: None, ..retrying(vec![bad.at(), good.at()]) };
        super::pools(config)
    };
    for _ in 0..200 {
        assert_eq!(asked(&pools, get("/")).await.unwrap().0, 200);
    }
    assert_eq!(upstreams.stats()[0].retries_refused, 0);
}

/// The behaviour of a server when a request comes.
const ANSWERS: u16 = 0;
const CLOSES_AT_ONCE: u16 = 1;
const CLOSES_AFTER_THE_REQUEST: u16 = 2;
const FAILS: u16 = 3;
const HANGS: u16 = 4;
const IS_SLOW: u16 = 5;

/// How often each request reached a server, by its path.
type Reached = Arc<Mutex<HashMap<String, u32>>>;

/// A server that does what `behaviour` says when a request comes.
fn moody(behaviour: Arc<AtomicU16>, reached: Reached) -> Near {
    Near::raw(move |mut stream, _| {
        let (behaviour, reached) = (behaviour.clone(), reached.clone());
        async move {
            while behaviour.load(SeqCst) != CLOSES_AT_ONCE
                && let Some(head) = read_head(&mut stream).await
            {
                let line = head.lines().next().unwrap();
                *reached.lock().entry(line.to_owned()).or_default() += 1;
                let answer = match behaviour.load(SeqCst) {
                    CLOSES_AT_ONCE | CLOSES_AFTER_THE_REQUEST => return,
                    FAILS => "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n",
                    HANGS => return std::future::pending().await,
                    mood => {
                        if mood == IS_SLOW {
                            tokio::time::sleep(Duration::from_secs(20)).await;
                        }
                        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
                    }
                };
                if stream.write_all(answer.as_bytes()).await.is_err() {
                    return;
                }
            }
        }
    })
}

/// Servers close, fail, hang and slow down at random, and one of them is well at any time. No GET is lost, and no POST
/// reaches a server twice.
#[tokio::test(start_paused = true)]
async fn among_servers_that_fail_at_random_no_get_is_lost_and_no_post_is_repeated() {
    const SERVERS: usize = 4;
    let mut posts_answered = 0;
    for seed in 0..24 {
        let mut random = fastrand::Rng::with_seed(seed);
        let reached = Reached::default();
        let moods: Vec<_> = (0..SERVERS).map(|_| Arc::new(AtomicU16::new(ANSWERS))).collect();
        let servers: Vec<_> = moods.iter().map(|mood| moody(mood.clone(), reached.clone())).collect();
        let balance = match seed % 3 {
            0 => Balance::LeastLoaded,
            1 => Balance::RoundRobin,
            _ => Balance::PowerOfTwo,
        };
        let config = UpstreamConfig {
            retries: SERVERS as u32,
            retry_budget: None,
            balance,
            ..retrying(servers.iter().map(Near::at).collect())
        };
        let (pools, upstreams) = pools(config);
        for step in 0..40 {
            let well = random.usize(..SERVERS);
            for (server, mood) in moods.iter().enumerate() {
                mood.store(if server == well { ANSWERS } else { random.u16(ANSWERS..=IS_SLOW) }, SeqCst);
            }
            let mut asking = tokio::task::JoinSet::new();
            for number in 0..6 {
                let pools = Pools(pools.0.clone());
                let method = if number < 4 { "GET" } else { "POST" };
                let path = format!("/{step}/{number}");
                asking.spawn(async move { (method, path.clone(), asked(&pools, of(method, &path)).await) });
            }
            while let Some(done) = asking.join_next().await {
                let (method, path, outcome) = done.unwrap();
                let times = reached.lock().get(&format!("{method} {path} HTTP/1.1")).copied().unwrap_or_default();
                match method {
                    "GET" => assert!(
                        matches!(&outcome, Ok((StatusCode::OK, body)) if body == "ok"),
                        "seed {seed}: {path} is lost: {outcome:?}"
                    ),
                    _ => {
                        assert!(times <= 1, "seed {seed}: {path} reached a server {times} times");
                        posts_answered += u32::from(outcome.is_ok_and(|(status, _)| status == 200));
                    }
                }
            }
            if random.u8(..4) == 0 {
                // Longer than a pause.
                tokio::time::advance(Duration::from_secs(11)).await;
            }
        }
        assert!(upstreams.stats()[0].retries > 0, "seed {seed}");
    }
    assert!(posts_answered > 500, "{posts_answered}");
}
