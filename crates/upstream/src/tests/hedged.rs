//! Slow requests that are sent to a second server.

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::*;

/// A server that never answers, and tells when a request came (`true`) and when it was given up (`false`).
fn silent() -> (Near, UnboundedReceiver<bool>) {
    struct DropNotice(tokio::sync::mpsc::UnboundedSender<bool>);
    impl Drop for DropNotice {
        fn drop(&mut self) {
            let _ = self.0.send(false);
        }
    }
    let (tell, told) = unbounded_channel();
    let near = Near::http(move |_| {
        let told = DropNotice(tell.clone());
        let _ = told.0.send(true);
        async move {
            std::future::pending::<()>().await;
            drop(told);
            Response::new(text(""))
        }
    });
    (near, told)
}

/// A server that answers after so many milliseconds.
fn late(ms: u64, name: &'static str) -> Near {
    Near::http(move |_| async move {
        tokio::time::sleep(Duration::from_millis(ms)).await;
        Response::new(text(name))
    })
}

fn hedging(servers: Vec<UpstreamServer>) -> UpstreamConfig {
    let hedge = Some(Hedge::After(Duration::from_millis(100)));
    UpstreamConfig { hedge, balance: Balance::RoundRobin, ..config(servers) }
}

async fn raced(
    pools: &Pools,
    request: Request<RequestBody>,
    slots: &mut (dyn FnMut() -> Option<SecondSlot> + Send),
) -> Result<String, UpstreamError> {
    let prepared = pools.prepare(request.into(), defaults(), Instant::now())?;
    let answer = pools.pass_hedged(prepared, &mut drop, slots).await.answered?;
    let body = answer.response.into_body().collect().await.map_err(UpstreamError::of_body)?;
    Ok(String::from_utf8(body.to_bytes().to_vec()).unwrap())
}

fn room() -> Option<SecondSlot> {
    Some(Box::new(()))
}

#[tokio::test(start_paused = true)]
async fn a_slow_get_is_answered_by_another_server_and_the_first_one_is_given_up() {
    for speaks in [std::convert::identity, http2] {
        let ((slow, mut told), fast) = (silent(), late(1, "fast"));
        let (pools, upstreams) = pools(hedging(vec![speaks(slow.at()), speaks(fast.at())]));
        let start = Instant::now();
        assert_eq!(raced(&pools, get("/"), &mut room).await.unwrap(), "fast");
        assert!((100..150).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
        assert_eq!((told.recv().await, told.recv().await), (Some(true), Some(false)), "the loser is cancelled");
        assert_eq!(upstreams.stats()[0].hedges, [1, 1, 0]);
        let stats = server_stats(&upstreams);
        assert_eq!((stats[0].failures, stats[0].in_flight, stats[1].in_flight), (0, 0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_answer_counts_whichever_server_it_is_of() {
    let (first, second) = (late(120, "first"), late(60, "second"));
    let (pools, upstreams) = pools(hedging(vec![first.at(), second.at()]));
    assert_eq!(raced(&pools, get("/"), &mut room).await.unwrap(), "first");
    assert_eq!(upstreams.stats()[0].hedges, [1, 0, 0]);
    // A failure is no answer while the other one may have one.
    let broken = Near::raw(|mut stream, _| async move {
        read_head(&mut stream).await;
        tokio::time::sleep(Duration::from_millis(110)).await;
    });
    let well = late(60, "well");
    let config = UpstreamConfig { retries: 0, ..hedging(vec![broken.at(), well.at()]) };
    let (pools, _) = super::pools(config);
    assert_eq!(raced(&pools, get("/"), &mut room).await.unwrap(), "well");
}

#[tokio::test(start_paused = true)]
async fn what_has_effects_or_a_body_is_sent_once() {
    let slow = [late(300, "one"), late(300, "two")];
    let (pools, upstreams) = pools(hedging(slow.iter().map(Near::at).collect()));
    for method in ["POST", "PUT", "DELETE"] {
        let request = Request::builder().method(method).uri("/").body(RequestBody::Empty).unwrap();
        raced(&pools, request, &mut room).await.unwrap();
    }
    raced(&pools, Request::get("/").body(whole("body")).unwrap(), &mut room).await.unwrap();
    assert_eq!(upstreams.stats()[0].hedges, [0; 3]);
    let (alone, upstreams) = super::pools(hedging(vec![slow[0].at()]));
    assert_eq!(raced(&alone, get("/"), &mut room).await.unwrap(), "one");
    assert_eq!(upstreams.stats()[0].hedges, [0; 3], "there is no other server");
    assert_eq!(upstreams.stats()[0].unserved, 0);
}

#[tokio::test(start_paused = true)]
async fn a_second_server_needs_a_slot_for_as_long_as_both_work() {
    struct Slot(Arc<AtomicUsize>);
    impl Drop for Slot {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    let ((slow, _told), fast) = (silent(), late(50, "fast"));
    let (pools, upstreams) = pools(hedging(vec![slow.at(), fast.at()]));
    let (taken, given_back) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counted, returned) = (taken.clone(), given_back.clone());
    let mut one = move || {
        counted.fetch_add(1, SeqCst);
        Some(Box::new(Slot(returned.clone())) as SecondSlot)
    };
    assert_eq!(raced(&pools, get("/"), &mut one).await.unwrap(), "fast");
    assert_eq!((taken.load(SeqCst), given_back.load(SeqCst)), (1, 1));
    // Without room the request goes on at its first server.
    let slow = [late(300, "one"), late(300, "two")];
    let (pools, _) = super::pools(hedging(slow.iter().map(Near::at).collect()));
    let start = Instant::now();
    raced(&pools, get("/"), &mut || None).await.unwrap();
    assert!(start.elapsed().as_millis() >= 300);
    assert_eq!(pools.upstreams().stats()[0].hedges, [0, 0, 1]);
    assert_eq!(slow[1].connections(), 0);
    drop(upstreams);
}

#[tokio::test(start_paused = true)]
async fn second_requests_are_a_part_of_all_requests() {
    let slow = [late(150, "one"), late(150, "two")];
    let (pools, upstreams) = pools(hedging(slow.iter().map(Near::at).collect()));
    let pools = Arc::new(pools);
    let mut all = tokio::task::JoinSet::new();
    for _ in 0..400 {
        let pools = pools.clone();
        all.spawn(async move { raced(&pools, get("/"), &mut room).await.unwrap() });
    }
    all.join_all().await;
    let [sent, _, refused] = upstreams.stats()[0].hedges;
    assert_eq!(sent + refused, 400);
    // Ten in a second, and 5 %.
    assert!((25..=33).contains(&sent), "{sent}");
}

#[tokio::test(start_paused = true)]
async fn the_slowest_in_twenty_are_sent_twice() {
    let times = Arc::new(AtomicUsize::new(0));
    let counted = times.clone();
    // One request of 50 is slow, wherever it is sent first.
    let server = || {
        let times = counted.clone();
        Near::http(move |_| {
            let slow = times.fetch_add(1, SeqCst) % 50 == 49;
            async move {
                tokio::time::sleep(Duration::from_millis(if slow { 10_000 } else { 20 })).await;
                Response::new(text(""))
            }
        })
    };
    let servers = [server(), server()];
    let config = UpstreamConfig { hedge: Some(Hedge::Slowest), ..hedging(servers.iter().map(Near::at).collect()) };
    let (pools, upstreams) = pools(config);
    let mut longest = Duration::ZERO;
    for number in 0..1000 {
        let start = Instant::now();
        raced(&pools, get("/"), &mut room).await.unwrap();
        if number > 150 {
            longest = longest.max(start.elapsed());
        }
    }
    assert!(longest < Duration::from_millis(60), "{longest:?}");
    let [sent, won, _] = upstreams.stats()[0].hedges;
    assert!((15..=25).contains(&sent) && won == sent, "{sent}, {won}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_has_got_an_interim_response_waits_for_that_server() {
    let hinting = Near::raw(|mut stream, _| async move {
        read_head(&mut stream).await;
        write(&mut stream, "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n").await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        write(&mut stream, "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nhint").await;
        std::future::pending().await
    });
    let fast = late(1, "fast");
    let (pools, upstreams) = pools(hedging(vec![hinting.at(), fast.at()]));
    let prepared = pools.prepare(get("/").into(), defaults(), Instant::now()).unwrap();
    let mut hints = 0;
    let answer = pools.pass_hedged(prepared, &mut |_| hints += 1, &mut room).await.answered.unwrap();
    assert_eq!(answer.response.into_body().collect().await.unwrap().to_bytes(), "hint");
    assert_eq!((hints, upstreams.stats()[0].hedges), (1, [0; 3]));
}
