//! Which server a request gets, and the cookie by which a client keeps it.

use super::*;

fn numbered(number: usize) -> Near {
    Near::http(move |_| async move { Response::new(text(number.to_string())) })
}

/// The server that answered, and the cookie that the client was given.
async fn placed(pools: &Pools, request: Request<RequestBody>, ask: Ask<'_>) -> (String, Option<String>) {
    let answer = pools.send(request, ask).await.unwrap();
    let cookie = answer.response.headers().get("set-cookie").map(|value| value.to_str().unwrap().to_owned());
    let body = answer.response.into_body().collect().await.unwrap().to_bytes();
    (String::from_utf8(body.to_vec()).unwrap(), cookie)
}

fn with_cookie(cookie: &str) -> Request<RequestBody> {
    let pair = cookie.split(';').next().unwrap();
    Request::get("/").header("cookie", pair).body(RequestBody::Empty).unwrap()
}

#[tokio::test]
async fn a_client_keeps_its_server_over_a_reload_and_gets_another_one_when_it_fails() {
    let servers: Vec<_> = (0..3).map(numbered).collect();
    let sticky = StickyConfig { cookie: "server".to_owned(), secret: None, lifetime: None };
    let config = UpstreamConfig { sticky: Some(sticky), ..config(servers.iter().map(Near::at).collect()) };
    let (pools, upstreams) = pools(config.clone());
    let (first, cookie) = placed(&pools, get("/"), defaults()).await;
    let cookie = cookie.expect("a new client gets a cookie");
    assert!(cookie.starts_with("server=") && cookie.ends_with("; Path=/; HttpOnly; SameSite=Lax"), "{cookie}");
    for _ in 0..6 {
        assert_eq!(placed(&pools, with_cookie(&cookie), defaults()).await, (first.clone(), None));
    }
    let secure = placed(&pools, get("/"), Ask { scheme: "https", ..defaults() }).await.1.unwrap();
    assert!(secure.ends_with("; Secure"), "{secure}");

    // A reload with another setting makes new servers, of the same names.
    let changed = UpstreamConfig { retries: 2, ..config };
    let next = Arc::new(upstreams.succeed(&[changed], &[]).unwrap());
    let reloaded = pools.succeed(next.clone());
    for _ in 0..6 {
        assert_eq!(placed(&reloaded, with_cookie(&cookie), defaults()).await, (first.clone(), None));
    }

    // A cookie that names none of the servers is replaced.
    let forged = format!("server={}", "A".repeat(22));
    assert!(placed(&reloaded, with_cookie(&forged), defaults()).await.1.is_some());

    // When the server is down, another one takes the client, and keeps it.
    let down = next.groups[0].all().into_iter().find(|server| server.has_token(&cookie.as_bytes()[7..29])).unwrap();
    let checks = ActiveChecks {
        path: http::Uri::from_static("/"),
        every: Duration::from_secs(1),
        timeout: Duration::from_secs(1),
        statuses: (200, 200),
        rise: 1,
        fall: 1,
    };
    down.checked("app", Err("no".to_owned()), &checks);
    let (second, moved) = placed(&reloaded, with_cookie(&cookie), defaults()).await;
    let moved = moved.expect("the new server's cookie");
    assert_ne!(second, first);
    down.checked("app", Ok(()), &checks);
    for _ in 0..6 {
        assert_eq!(placed(&reloaded, with_cookie(&moved), defaults()).await, (second.clone(), None));
    }
}

#[tokio::test]
async fn requests_with_the_same_key_go_to_the_same_server() {
    let servers: Vec<_> = (0..4).map(numbered).collect();
    let with = |key| {
        let balance = Balance::Hash { key, bound: None };
        pools(UpstreamConfig { balance, ..config(servers.iter().map(Near::at).collect()) }).0
    };
    let of_header = |value: &str| Request::get("/").header("x-user", value).body(RequestBody::Empty).unwrap();
    let of_cookie =
        |value: &str| Request::get("/").header("cookie", format!("a=b; id={value}")).body(RequestBody::Empty);
    let by_path = with(HashKey::Path);
    let by_header = with(HashKey::Header(http::HeaderName::from_static("x-user")));
    let by_cookie = with(HashKey::Cookie("id".to_owned()));
    let by_client = with(HashKey::Client);
    let mut seen = [const { Vec::new() }; 4];
    for round in 0..2 {
        for key in 0..30_u8 {
            let text = key.to_string();
            let ask = Ask { client_ip: [192, 0, 2, key].into(), ..defaults() };
            let got = [
                placed(&by_path, get(&format!("/{text}?{round}")), defaults()).await.0,
                placed(&by_header, of_header(&text), defaults()).await.0,
                placed(&by_cookie, of_cookie(&text).unwrap(), defaults()).await.0,
                placed(&by_client, get("/"), ask).await.0,
            ];
            for (seen, got) in seen.iter_mut().zip(got) {
                if round == 0 {
                    seen.push(got);
                } else {
                    assert_eq!(seen[usize::from(key)], got);
                }
            }
        }
    }
    for seen in &seen {
        assert!((0..4).all(|server| seen.contains(&server.to_string())), "{seen:?}");
    }
    // An IPv6 client has a network of its own, in which its address changes.
    let of = |address: &str| Ask { client_ip: address.parse().unwrap(), ..defaults() };
    let first = placed(&by_client, get("/"), of("2001:db8::1")).await.0;
    assert_eq!(placed(&by_client, get("/"), of("2001:db8::ffff:2")).await.0, first);
    // Without a key, requests go to the least loaded server: all have a turn.
    let without = [(); 8].map(|()| placed(&by_header, get("/"), defaults()));
    let mut all = Vec::new();
    for asked in without {
        all.push(asked.await.0);
    }
    assert!((0..4).all(|server| all.contains(&server.to_string())), "{all:?}");
}

#[tokio::test]
async fn servers_take_turns_by_weight() {
    let servers: Vec<_> = (0..2).map(numbered).collect();
    let specs = vec![UpstreamServer { weight: 3, ..servers[0].at() }, servers[1].at()];
    let (pools, _) = pools(UpstreamConfig { balance: Balance::RoundRobin, ..config(specs) });
    let mut heavy = 0;
    for _ in 0..40 {
        heavy += usize::from(placed(&pools, get("/"), defaults()).await.0 == "0");
    }
    assert_eq!(heavy, 30);
}
