//! Time-outs, with a clock that advances only when no task can run.

use super::{
    exchanged::{channel_body, front},
    *,
};

/// A server that reads nothing and sends only `says`.
fn silent(says: &'static str) -> Near {
    Near::raw(move |mut stream, _| async move {
        if says.is_empty() {
            std::future::pending::<()>().await;
        }
        read_head(&mut stream).await;
        write(&mut stream, says).await;
        std::future::pending::<()>().await;
    })
}

fn timed_out(error: UpstreamError) -> (Wait, u128) {
    match error {
        UpstreamError::TimedOut { wait, after, .. } => (wait, after.as_secs().into()),
        other => panic!("{other}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_upstream_is_given_up() {
    let part = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\npart";
    for (says, expected) in [("", Wait::Head), ("HTTP/1.1 200 OK\r\n", Wait::Head), (part, Wait::Body)] {
        let peer = silent(says);
        let (pools, upstreams) = pools(UpstreamConfig { retries: 3, ..config(vec![peer.at()]) });
        let (wait, after) = timed_out(asked(&pools, get("/")).await.unwrap_err());
        assert_eq!((wait, after), (expected, 60), "{says:?}");
        assert_eq!(peer.connections(), 1, "who waited for so long does not wait again");
        until("it is closed", || server_stats(&upstreams)[0].connections == 0).await;
        let stats = server_stats(&upstreams).remove(0);
        assert_eq!((stats.failures, stats.in_flight), (1, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_stream_is_given_up_and_its_connection_with_it() {
    let peer = Near::raw(|stream, number| async move {
        let mut connection = h2::server::handshake(stream).await.unwrap();
        let mut kept = Vec::new();
        while let Some(Ok((_, mut respond))) = connection.accept().await {
            if number == 0 {
                kept.push(respond);
            } else {
                respond.send_response(Response::new(()), true).unwrap();
            }
        }
    });
    let (pools, _) = pools(config(vec![http2(peer.at())]));
    assert_eq!(timed_out(asked(&pools, get("/")).await.unwrap_err()), (Wait::Head, 60));
    asked(&pools, get("/")).await.unwrap();
    assert_eq!(peer.connections(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_sends_now_and_then_is_not_silent() {
    let peer = Near::raw(|mut stream, _| async move {
        read_head(&mut stream).await;
        for part in ["HTTP/1.1 200 OK\r\n", "content-length: 4\r\n", "\r\n", "a", "b", "c", "d"] {
            tokio::time::sleep(Duration::from_secs(50)).await;
            write(&mut stream, part).await;
        }
        std::future::pending::<()>().await;
    });
    let (pools, _) = pools(config(vec![peer.at()]));
    assert_eq!(asked(&pools, get("/")).await.unwrap().1, "abcd");
    let limited = UpstreamConfig { total_timeout: Some(Duration::from_secs(220)), ..config(vec![peer.at()]) };
    let (pools, _) = super::pools(limited);
    assert_eq!(timed_out(asked(&pools, get("/")).await.unwrap_err()), (Wait::End, 220));
    let limited = UpstreamConfig { total_timeout: Some(Duration::from_secs(20)), ..config(vec![peer.at()]) };
    let (pools, _) = super::pools(limited);
    assert_eq!(timed_out(asked(&pools, get("/")).await.unwrap_err()), (Wait::End, 20));
    // The times of a request go before those of the upstream.
    let times = |idle, total: Option<u64>| {
        Some(Times { idle: Duration::from_secs(idle), total: total.map(Duration::from_secs) })
    };
    let short = Ask { times: times(40, None), ..defaults() };
    assert_eq!(timed_out(pools.send(get("/"), short).await.unwrap_err()), (Wait::Head, 40));
    let long = Ask { times: times(60, None), ..defaults() };
    let answer = pools.send(get("/"), long).await.unwrap();
    assert_eq!(answer.response.into_body().collect().await.unwrap().to_bytes(), "abcd");
    // The server answers one request of a connection.
    let (pools, _) = super::pools(config(vec![peer.at()]));
    let whole = Ask { times: times(60, Some(90)), ..defaults() };
    assert_eq!(timed_out(pools.send(get("/"), whole).await.unwrap_err()), (Wait::End, 90));
}

#[tokio::test(start_paused = true)]
async fn connecting_takes_only_so_long() {
    // Accepts the connection but never completes the TLS handshake.
    let peer = silent("");
    let mut server = peer.at();
    server.tls = true;
    let other = Near::echo_path();
    let servers = vec![server, other.at()];
    let config = UpstreamConfig { tls_verify: false, retries: 0, ..config(servers) };
    let (pools, upstreams) = pools(config.clone());
    let error = asked(&pools, get("/")).await.unwrap_err();
    assert_eq!(timed_out(error), (Wait::Connection, 5));
    assert_eq!(server_stats(&upstreams)[0].failures, 1);
    // Nothing was sent, so another server gets the request, whatever its method.
    let (pools, upstreams) = super::pools(UpstreamConfig { retries: 1, ..config });
    assert_eq!(asked(&pools, post("/x", "y")).await.unwrap().1, "/x");
    assert_eq!(server_stats(&upstreams)[0].connections, 0);
}

#[tokio::test(start_paused = true)]
async fn many_that_wait_for_one_connection_do_not_wait_in_turn() {
    let peer = silent("");
    let mut server = http2(peer.at());
    server.tls = true;
    let (pools, _) = pools(UpstreamConfig { tls_verify: false, retries: 0, ..config(vec![server]) });
    let pools = Arc::new(pools);
    let start = Instant::now();
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let pools = pools.clone();
        asking.spawn(async move { reason(&pools, get("/")).await });
    }
    while let Some(reason) = asking.join_next().await {
        assert_eq!(reason.unwrap(), "connect_timeout");
    }
    assert_eq!(start.elapsed().as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_takes_nothing_of_a_request_is_given_up() {
    for two in [false, true] {
        let peer = Near::raw(move |stream, _| async move {
            if two {
                let mut connection = h2::server::handshake(stream).await.unwrap();
                // Accepts streams but gives them no flow-control window.
                let mut kept = Vec::new();
                while let Some(stream) = connection.accept().await {
                    kept.push(stream);
                }
            }
            std::future::pending::<()>().await;
        });
        let server = if two { http2(peer.at()) } else { peer.at() };
        let (pools, _) = pools(UpstreamConfig { retries: 0, ..config(vec![server]) });
        let body = vec![b'x'; 64 << 20];
        assert_eq!(timed_out(asked(&pools, post("/", body)).await.unwrap_err()), (Wait::Head, 60), "{two}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_takes_a_large_request_slowly_is_not_silent() {
    for two in [false, true] {
        let peer = Near::http(|request| async move {
            let mut body = request.into_body();
            let (mut read, mut rests) = (0, vec![12 << 20, 4 << 20]);
            while let Some(frame) = body.frame().await {
                read += frame.unwrap().into_data().unwrap().len();
                // Each time, more data remains than the buffers under way can hold.
                if rests.pop_if(|rest| *rest <= read).is_some() {
                    tokio::time::sleep(Duration::from_secs(50)).await;
                }
            }
            tokio::time::sleep(Duration::from_secs(50)).await;
            Response::new(text(read.to_string()))
        });
        let server = if two { http2(peer.at()) } else { peer.at() };
        let (pools, _) = pools(config(vec![server]));
        let body = vec![b'x'; 32 << 20];
        let start = Instant::now();
        assert_eq!(asked(&pools, post("/", body)).await.unwrap().1, (32 << 20).to_string());
        assert_eq!(start.elapsed().as_secs(), 150);
    }
}

#[tokio::test(start_paused = true)]
async fn idle_connections_are_closed_in_time() {
    for two in [false, true] {
        let peer = Near::echo_path();
        let server = if two { http2(peer.at()) } else { peer.at() };
        let (pools, upstreams) = pools(config(vec![server]));
        asked(&pools, get("/")).await.unwrap();
        tokio::time::sleep(Duration::from_secs(28)).await;
        assert_eq!(server_stats(&upstreams)[0].connections, 1);
        tokio::time::sleep(Duration::from_secs(4)).await;
        assert_eq!(server_stats(&upstreams)[0].connections, 0);
        asked(&pools, get("/")).await.unwrap();
        assert_eq!(peer.connections(), 2);
    }
}

/// Runs so many requests of half a second at once, then waits for the rest of the second.
async fn second_of(pools: &Arc<Pools>, requests: usize) {
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..requests {
        let pools = pools.clone();
        asking.spawn(async move { asked(&pools, get("/")).await.unwrap() });
    }
    asking.join_all().await;
    tokio::time::sleep(Duration::from_millis(500)).await;
}

#[tokio::test(start_paused = true)]
async fn as_many_connections_are_kept_as_were_in_use_at_once_a_moment_ago() {
    let peer = Near::http(|_| async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        Response::new(text("done"))
    });
    // The default limit and keep time.
    let (pools, upstreams) = pools(UpstreamConfig::new("app", vec![peer.at()]));
    let pools = Arc::new(pools);
    let connections = || server_stats(&upstreams)[0].connections;
    for _ in 0..10 {
        second_of(&pools, 200).await;
    }
    assert_eq!((connections(), peer.connections()), (200, 200), "none is made anew");
    for _ in 0..3 {
        second_of(&pools, 20).await;
        assert_eq!(connections(), 200, "they may be needed again");
    }
    for _ in 0..4 {
        second_of(&pools, 20).await;
    }
    assert_eq!((connections(), peer.connections()), (20, 200));
    second_of(&pools, 200).await;
    assert_eq!((connections(), peer.connections()), (200, 380), "those that are kept are used again");
}

#[tokio::test(start_paused = true)]
async fn no_more_idle_connections_are_kept_than_are_allowed() {
    for (keep, kept) in [(0, 0), (1, 1), (7, 7)] {
        let peer = Near::http(|_| async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            Response::new(text("done"))
        });
        let few = UpstreamConfig { keep_connections: keep, ..config(vec![peer.at()]) };
        let (pools, upstreams) = pools(few);
        let pools = Arc::new(pools);
        second_of(&pools, 20).await;
        assert_eq!(server_stats(&upstreams)[0].connections, kept);
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_client_is_not_the_upstreams_silence() {
    for two in [false, true] {
        let peer = Near::http(|request| async move {
            let read = request.into_body().collect().await.unwrap().to_bytes().len();
            Response::new(text(read.to_string()))
        });
        let server = if two { http2(peer.at()) } else { peer.at() };
        let (pools, upstreams) = pools(config(vec![server]));
        let (sender, body) = channel_body();
        let asking = tokio::spawn(front(pools, body, "POST"));
        for _ in 0..3 {
            sender.send(Ok(http_body::Frame::data(Bytes::from_static(b"part")))).await.unwrap();
            tokio::time::sleep(Duration::from_secs(600)).await;
        }
        drop(sender);
        let answer = asking.await.unwrap().unwrap();
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "12");
        assert_eq!(server_stats(&upstreams)[0].failures, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_all_of_the_time_is_not_the_upstreams_fault() {
    for two in [false, true] {
        let peer = Near::http(|request| async move {
            let read = request.into_body().collect().await.map_or(0, |body| body.to_bytes().len());
            Response::new(text(read.to_string()))
        });
        let server = if two { http2(peer.at()) } else { peer.at() };
        let total_timeout = Some(Duration::from_secs(30));
        let (pools, upstreams) = pools(UpstreamConfig { total_timeout, ..config(vec![server]) });
        let start = Instant::now();
        let (sender, body) = channel_body();
        let asking = tokio::spawn(front(Pools(pools.0.clone()), body, "POST"));
        sender.send(Ok(http_body::Frame::data(Bytes::from_static(b"part")))).await.unwrap();
        assert!(asking.await.unwrap().is_err());
        assert_eq!(start.elapsed().as_secs(), 30);
        assert_eq!(server_stats(&upstreams)[0].failures, 0, "{two}");
        assert_eq!(asked(&pools, post("/", "x")).await.unwrap().1, "1");
        // Other requests may still use a shared connection.
        assert_eq!(peer.connections(), if two { 1 } else { 2 });
        drop(sender);
    }
}
