//! Servers that are told of clients by the PROXY protocol.

use std::num::NonZeroU32;

use proxy_protocol::{Header, Progress};

use super::*;

/// A server behind the PROXY protocol: it answers with the client it was told of and the number of its connection.
async fn told() -> Peer {
    Peer::raw(|mut stream, number| async move {
        let mut header = Vec::new();
        let header = loop {
            match proxy_protocol::read(&header) {
                Ok(Progress::Complete(found, _)) => break found,
                Ok(Progress::Incomplete) => header.push(stream.read_u8().await.unwrap()),
                Err(why) => panic!("{why}: {header:?}"),
            }
        };
        let client = match header {
            Header::Local => "local".to_owned(),
            Header::Proxied(ends) => format!("{} to {}", ends.source, ends.destination),
        };
        serve(stream, move |_| {
            let answer = format!("{client} on {number}");
            async move { Response::new(text(answer)) }
        })
        .await;
    })
    .await
}

async fn told_of(pools: &Pools, source: Option<&str>) -> String {
    let destination = "198.51.100.1:443".parse().unwrap();
    let ends = source.map(|source| Ends { source: source.parse().unwrap(), destination });
    let answer = pools.send(get("/"), Ask { ends, ..defaults() }).await.unwrap();
    let body = answer.response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

#[tokio::test]
async fn a_connection_carries_the_requests_of_one_client() {
    for (version, two) in [ProxyVersion::V1, ProxyVersion::V2].into_iter().flat_map(|it| [(it, false), (it, true)]) {
        let peer = told().await;
        let server = if two { http2(at(peer.address)) } else { at(peer.address) };
        let (pools, _) = pools(UpstreamConfig { proxy_protocol: Some(version), ..config(vec![server]) });
        let (one, other) = (Some("192.0.2.7:1000"), Some("[2001:db8::1]:2000"));
        assert_eq!(told_of(&pools, one).await, "192.0.2.7:1000 to 198.51.100.1:443 on 0");
        assert_eq!(told_of(&pools, one).await, "192.0.2.7:1000 to 198.51.100.1:443 on 0");
        assert_eq!(told_of(&pools, other).await, "[2001:db8::1]:2000 to 198.51.100.1:443 on 1");
        assert_eq!(told_of(&pools, Some("192.0.2.7:1001")).await, "192.0.2.7:1001 to 198.51.100.1:443 on 2");
        assert_eq!(told_of(&pools, None).await, "local on 3", "our own requests");
        assert_eq!(told_of(&pools, one).await, "192.0.2.7:1000 to 198.51.100.1:443 on 0");
        assert_eq!(told_of(&pools, other).await, "[2001:db8::1]:2000 to 198.51.100.1:443 on 1");
    }
}

#[tokio::test]
async fn an_idle_connection_of_another_client_makes_room() {
    for two in [false, true] {
        let peer = told().await;
        let server = if two { http2(at(peer.address)) } else { at(peer.address) };
        let (pools, upstreams) = pools(UpstreamConfig {
            proxy_protocol: Some(ProxyVersion::V2),
            most_connections: NonZeroU32::new(1),
            ..config(vec![server])
        });
        for client in 0..4 {
            let source = format!("192.0.2.7:{client}");
            assert!(told_of(&pools, Some(&source)).await.starts_with(&source));
            assert_eq!(server_stats(&upstreams)[0].connections, 1);
        }
        assert_eq!(peer.connections(), 4);
    }
}

#[tokio::test]
async fn an_upstream_without_it_shares_its_connections() {
    let peer = Peer::echo_path().await;
    let (pools, _) = pools(config(vec![at(peer.address)]));
    for port in 0..4 {
        let ends = Ends { source: ([192, 0, 2, 7], port).into(), destination: peer.address };
        let answer = pools.send(get("/"), Ask { ends: Some(ends), ..defaults() }).await.unwrap();
        answer.response.into_body().collect().await.unwrap();
    }
    assert_eq!(peer.connections(), 1);
}

#[tokio::test]
async fn a_check_of_health_is_our_own_connection() {
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let peer = Peer::raw(move |mut stream, _| {
        let tell = tell.clone();
        async move {
            let head = read_head(&mut stream).await.unwrap();
            tell.send(head).unwrap();
            write(&mut stream, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
        }
    })
    .await;
    let active = ActiveChecks {
        path: "/well".parse().unwrap(),
        every: Duration::from_secs(60),
        timeout: Duration::from_secs(30),
        statuses: (200, 299),
        rise: 1,
        fall: 1,
    };
    let proxy_protocol = Some(ProxyVersion::V1);
    let (_pools, upstreams) =
        pools(UpstreamConfig { active: Some(active), proxy_protocol, ..config(vec![at(peer.address)]) });
    tokio::spawn(upstreams.clone().drive());
    let head = told.recv().await.unwrap();
    assert!(head.starts_with("PROXY UNKNOWN\r\nGET /well HTTP/1.1\r\n"), "{head}");
}
