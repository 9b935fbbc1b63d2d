//! How many requests a second pass through the pools to an upstream, and through hyper's client alone. One thread for the
//! client, one for the server: `cargo run --release -p serpent-server --example upstream_rate [SECONDS] [CONCURRENT]`.

use std::{
    convert::Infallible,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::{client::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serpent_server::{
    body::RequestBody,
    config::{UpstreamAddress, UpstreamConfig, UpstreamServer},
    upstream::{Ask, ClientAddress, Pools, Upstreams},
};
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::Builder,
    task::JoinSet,
};

fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<u64>().expect("a number"));
    let time = Duration::from_secs(arguments.next().unwrap_or(3));
    let concurrent = arguments.next().unwrap_or(32);
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    listener.set_nonblocking(true).expect("a socket");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || runtime().block_on(serve(listener)));
    for round in ["pools", "hyper", "pools", "hyper"] {
        let done = runtime().block_on(async {
            if round == "pools" {
                through_pools(address, time, concurrent).await
            } else {
                alone(address, time, concurrent).await
            }
        });
        println!("{round}: {:.0} requests/s", done as f64 / time.as_secs_f64());
    }
}

fn runtime() -> tokio::runtime::Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

async fn serve(listener: std::net::TcpListener) {
    let listener = TcpListener::from_std(listener).expect("a socket");
    let answer = |_| async { Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(&[b'x'; 1035])))) };
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        stream.set_nodelay(true).expect("a socket");
        let http1 = hyper::server::conn::http1::Builder::new();
        tokio::spawn(http1.serve_connection(TokioIo::new(stream), service_fn(answer)));
    }
}

fn fields(request: http::request::Builder) -> http::request::Builder {
    request.header("user-agent", "measured/1").header("accept", "*/*").header("accept-encoding", "gzip")
}

async fn through_pools(address: SocketAddr, time: Duration, concurrent: u64) -> u64 {
    let authority = address.to_string().parse().expect("an authority");
    let server = UpstreamServer::new(UpstreamAddress::Socket(address), None, false, authority);
    let config = UpstreamConfig {
        keep_connections: 64,
        keep_for: Duration::from_secs(30),
        ..UpstreamConfig::new("measured", vec![server])
    };
    let upstreams = Arc::new(Upstreams::new(&[config], &[]).expect("upstreams"));
    let pools = Arc::new(Pools::new(upstreams));
    let end = Instant::now() + time;
    let mut clients = JoinSet::new();
    for _ in 0..concurrent {
        let pools = pools.clone();
        clients.spawn(async move {
            let client = ClientAddress::from(IpAddr::V4(Ipv4Addr::LOCALHOST));
            let mut done = 0;
            while Instant::now() < end {
                let request = fields(Request::get("/object")).body(RequestBody::Empty).expect("a request");
                let ask = Ask {
                    upstream: 0,
                    class: 0,
                    client: &client,
                    client_ip: std::net::Ipv4Addr::LOCALHOST.into(),
                    ends: None,
                    scheme: "http",
                    host: "shop.example",
                    keep_host: true,
                    believed: None,
                    rules: None,
                    times: None,
                    until: None,
                };
                let answer = pools.send(request, ask).await.expect("an answer");
                let mut body = answer.response.into_body();
                while let Some(frame) = body.frame().await {
                    frame.expect("a body");
                }
                done += 1;
            }
            done
        });
    }
    clients.join_all().await.into_iter().sum()
}

async fn alone(address: SocketAddr, time: Duration, concurrent: u64) -> u64 {
    let end = Instant::now() + time;
    let mut clients = JoinSet::new();
    for _ in 0..concurrent {
        clients.spawn(async move {
            let stream = TcpStream::connect(address).await.expect("a connection");
            stream.set_nodelay(true).expect("a socket");
            let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.expect("a connection");
            tokio::spawn(connection);
            let mut done = 0;
            while Instant::now() < end {
                let request = fields(Request::get("/object")).header("host", "shop.example");
                sender.ready().await.expect("a connection");
                let answer = sender.send_request(request.body(Empty::<Bytes>::new()).expect("a request")).await;
                let mut body = answer.expect("an answer").into_body();
                while let Some(frame) = body.frame().await {
                    frame.expect("a body");
                }
                done += 1;
            }
            done
        });
    }
    clients.join_all().await.into_iter().sum()
}
