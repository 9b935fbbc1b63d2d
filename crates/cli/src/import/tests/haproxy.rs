//! Configurations of HAProxy of the shapes that public projects have, and what becomes of them.

use super::{Texts, has, translated};
use server::config::{Config, Origin, PageSource, Site};

fn one(text: &'static str) -> (String, Vec<String>, Config) {
    translated(&[("haproxy.cfg", text)])
}

/// The routes of a site: pattern, conditions, and where they lead.
fn routes(site: &Site, config: &Config) -> Vec<String> {
    let to = |origin: &Origin| match origin {
        Origin::Upstream { upstream, .. } => config.upstreams[*upstream].name.clone(),
        Origin::Respond(respond) => respond.status.as_u16().to_string(),
        Origin::Redirect(_) => "redirect".to_owned(),
        other => format!("{other:?}"),
    };
    site.routes.iter().map(|it| format!("{} [{}] {}", it.pattern.as_str(), it.filter, to(&it.origin))).collect()
}

/// A configuration in `mode http` with time-outs.
fn http(text: &str) -> &'static str {
    format!(
        "global\n  daemon\n  maxconn 4000\ndefaults\n  mode http\n  option httplog\n  timeout connect 5s\n  timeout client 30s\n  \
         timeout server 50000\n{text}"
    )
    .leak()
}

#[test]
fn two_web_servers_and_a_check() {
    let (text, left, config) = one(http(
        "  option forwardfor\nfrontend www\n  bind *:80\n  default_backend web\n\
         backend web\n  balance roundrobin\n  option httpchk GET /health\n  http-check expect status 200\n\
           default-server inter 3s fall 2 rise 4\n  server a 10.0.0.1:8080 check weight 3\n  server b 10.0.0.2:8080 check\n  \
           server c 10.0.0.3:8080 check backup\n  server d 10.0.0.4:8080 disabled\n",
    ));
    assert_eq!(config.sites.len(), 1, "{text}");
    assert_eq!(routes(&config.sites[0], &config), ["/ [] web"], "{text}");
    has(
        &text,
        &[
            "listen = [\":80\"]",
            "connections = 4000\nidle-timeout = \"30s\"",
            "servers = [{ url = \"http://10.0.0.1:8080\", weight = 3 }, \"http://10.0.0.2:8080\", \
             { url = \"http://10.0.0.3:8080\", backup = true }]",
            "balance = \"round-robin\"\nconnect-timeout = \"5s\"\nidle-timeout = \"50s\"",
            "active = { every = \"3s\", fall = 2, rise = 4, statuses = \"200\", path = \"/health\" }",
        ],
    );
    assert_eq!(left.len(), 1, "{left:?}");
    assert!(left[0].contains("server d") && left[0].starts_with("haproxy.cfg:22: "), "{left:?}");
}

#[test]
fn tls_ends_here_and_hosts_and_paths_choose_a_backend() {
    let (text, left, config) = one(http(
        "frontend plain\n  bind :80\n  http-request redirect scheme https code 301\n\
         frontend secure\n  bind :443 ssl crt /etc/haproxy/site.pem alpn h2,http/1.1\n\
           acl is_api path_beg /api/\n  acl host_shop hdr(host) -i shop.example www.shop.example\n  \
           acl host_blog hdr_end(host) -i .blog.example\n  acl static path_end .css .js\n\
           http-response set-header X-Frame-Options DENY\n  http-response del-header Server\n  \
           http-request set-header X-Forwarded-Proto https if { ssl_fc }\n  http-request set-header X-Env prod\n\
           use_backend api if is_api host_shop\n  use_backend static if static\n  use_backend shop if host_shop\n  \
           use_backend blog if host_blog\n\
         backend api\n  server a 10.0.0.1:80\nbackend static\n  server a 10.0.0.2:80\nbackend shop\n  server a 10.0.0.3:443 ssl verify none\n\
         backend blog\n  server a unix@/run/blog.sock\nbackend unused\n  server a 10.0.0.9:80\n",
    ));
    let names: Vec<_> = config.sites.iter().map(|site| site.names.clone()).collect();
    assert_eq!(
        names,
        [vec![], vec!["shop.example".to_owned(), "www.shop.example".to_owned()], vec!["*.blog.example".to_owned()]],
        "{text}"
    );
    let fixed = [r"\.css$ [] static", r"\.js$ [] static"];
    assert_eq!(routes(&config.sites[0], &config), [&fixed[..], &["/ [] 503"]].concat(), "{text}");
    assert_eq!(routes(&config.sites[1], &config), [&["/api/ [] api"], &fixed[..], &["/ [] shop"]].concat(), "{text}");
    assert_eq!(routes(&config.sites[2], &config), [&fixed[..], &["/ [] blog"]].concat(), "{text}");
    has(
        &text,
        &[
            "listen = [\"http://:80\", \"https://:443\"]",
            "tls-cert = \"/etc/haproxy/site.pem\"\ntls-key = \"/etc/haproxy/site.pem\"",
            "response-headers.set = { X-Frame-Options = \"DENY\" }",
            "request-headers.set = { X-Env = \"prod\" }",
            "tls-verify = false",
            "servers = [\"unix:/run/blog.sock\"]",
        ],
    );
    assert!(!text.contains("unused"), "{text}");
    assert!(left.len() == 1 && left[0].contains("frontend plain"), "{left:?}");
}

#[test]
fn what_is_refused_and_what_is_answered_here() {
    let (text, left, config) = one(http(
        "listen app\n  bind 127.0.0.1:8080\n  acl office src 10.0.0.0/8 192.0.2.0/24\n  acl admin path_beg /admin\n\
           monitor-uri /up\n  http-request deny if admin !office\n  http-request deny deny_status 405 unless METH_GET or METH_POST\n  \
           http-request deny deny_status 429 if { req.hdr(User-Agent) -m sub -i scraper }\n  \
           http-request return status 200 content-type text/plain string \"User-agent: *\" if { path /robots.txt }\n  \
           http-request redirect location /new code 301 if { path /old }\n  redirect prefix https://other.example code 308 if { path_beg /far/ }\n  \
           compression algo gzip\n  compression type text/html text/css\n  server a 127.0.0.1:3000 maxconn 20\n  server b 127.0.0.1:3001 maxconn 20\n",
    ));
    let expected = [
        "^/up$ [] 200",
        "^/admin [unless client 10.0.0.0/8|192.0.2.0/24] 403",
        "/ [unless method GET|HEAD|POST] 405",
        "/ [header user-agent /(?i)scraper/] 429",
        r"^/robots\.txt$ [] 200",
        "^/old$ [] redirect",
        "/far/ [] redirect",
        "/ [] app",
    ];
    assert_eq!(routes(&config.sites[0], &config), expected, "{text}");
    has(
        &text,
        &[
            "redirect = \"https://other.example{uri}\"\nredirect-status = 308",
            "codings = [\"gzip\"]\ntypes = [\"text/html\", \"text/css\"]",
            "[admission.resources]\napp = { window = 40 }",
            "max-requests = 20",
            "resource = \"app\"",
        ],
    );
    assert!(config.classes.admission.enabled, "{text}");
    assert_eq!(left, Vec::<String>::new(), "{text}");
}

#[test]
fn sessions_rules_and_retries() {
    let (text, left, config) = one(http(
        "frontend www\n  bind :80\n  bind :::8080 v4v6\n  maxconn 2000\n  default_backend app\n\
         backend app\n  balance hdr(X-Account)\n  hash-type consistent\n  hash-balance-factor 150\n  cookie SRV insert indirect nocache\n  \
           retries 3\n  retry-on conn-failure 503 504\n  http-request disable-l7-retry if METH_POST\n  timeout queue 10s\n  \
           stick-table type ip size 1m\n  stick on src\n  errorfile 503 /etc/haproxy/503.http\n  \
           server a 10.0.0.1:80 cookie a slowstart 30s\n  server b 10.0.0.2:80 cookie b weight 0\n  server c 10.0.0.3:80 proto h2 send-proxy-v2 agent-check\n",
    ));
    has(
        &text,
        &[
            "listen = [\":80\", \":8080\"]",
            "balance = \"hash header X-Account\"\nhash-bound = \"150%\"\nsticky = \"SRV\"",
            "retries = 3\nretry-statuses = [503, 504]",
            "slow-start = \"30s\"",
            "proxy-protocol = \"v2\"",
            "servers = [\"http://10.0.0.1:80\", \"h2c://10.0.0.3:80\"]",
        ],
    );
    assert_eq!(config.upstreams.len(), 1);
    for (place, part) in
        [(23, "most-wait"), (24, "sticky"), (25, "sticky"), (26, "error-pages"), (28, "weight 0"), (29, "agent-check")]
    {
        let is_there = |left: &String| left.starts_with(&format!("haproxy.cfg:{place}: ")) && left.contains(part);
        assert!(left.iter().any(is_there), "{place} {part}: {left:#?}");
    }
    assert_eq!(left.len(), 6, "{left:#?}");
}

#[test]
fn a_page_of_statistics_a_rate_and_logs() {
    let (text, left, config) = one(http(
        "  log 10.0.0.5:514 local3\nlisten stats\n  bind :8404\n  stats enable\n  stats uri /stats\n  stats auth admin:secret\n\
         frontend www\n  bind :80\n  stick-table type ip size 100k expire 30s store http_req_rate(10s)\n  http-request track-sc0 src\n  \
           http-request deny deny_status 429 if { sc_http_req_rate(0) gt 100 }\n  default_backend web\n\
         backend web\n  http-request deny if { path_beg /internal }\n  http-response set-header Cache-Control no-store\n  server a 10.0.0.1:80\n",
    ));
    has(
        &text,
        &[
            "admin = \"127.0.0.1:8404\"",
            "limit = { rate = \"10/s\", burst = 100 }",
            "syslog:server=10.0.0.5:514,facility=local3,rfc=3164",
        ],
    );
    assert_eq!(routes(&config.sites[0], &config), ["^/internal [] 403", "/ [] web"], "{text}");
    has(&text, &["response-headers.set = { Cache-Control = \"no-store\" }"]);
    assert!(left.len() == 1 && left[0].contains("listen stats"), "{left:?}");
    assert!(!text.contains("secret"), "{text}");
}

#[test]
fn what_a_guard_without_a_counterpart_guards_is_closed() {
    for (inside, of_backend) in [
        ("  http-request deny if { src -f /etc/blocked }\n", false),
        ("  http-request auth realm a if !{ http_auth(users) }\n", false),
        ("  http-request silent-drop if { path_beg /a } { path_end .b }\n", false),
        ("  tcp-request connection reject if { src_conn_cur ge 10 }\n", false),
        ("  http-request deny unless { ssl_fc_has_crt }\n", true),
    ] {
        let (front, back) = if of_backend { ("", inside) } else { (inside, "") };
        let text = format!(
            "frontend www\n  bind :80\n{front}  default_backend web\nbackend web\n{back}  server a 10.0.0.1:80\n"
        );
        let (text, left, config) = one(http(&text));
        let site = &config.sites[0];
        match of_backend {
            false => {
                assert!(site.maintenance.as_ref().is_some_and(|it| it.file.as_os_str() == "/"), "{inside}\n{text}")
            }
            true => assert_eq!(routes(site, &config), ["/ [] 403"], "{inside}\n{text}"),
        }
        assert!(left.iter().any(|left| left.contains("CLOSED")), "{left:?}");
        has(&text, &["# CLOSED: HAProxy guards it"]);
    }
    let (text, left, _) = one(http(
        "frontend www\n  bind :80\n  http-request deny deny_status 429 if { sc_http_req_rate(1) gt 9 } { path /a }\n  \
         default_backend web\nbackend web\n  server a 10.0.0.1:80\n",
    ));
    assert!(!text.contains("CLOSED") && left.len() == 1, "a rate guards nothing: {left:?}");
}

#[test]
fn what_is_no_http_and_what_has_no_counterpart_is_named() {
    let (text, left, config) = one(
        "defaults\n  timeout connect 5s\nfrontend db\n  mode tcp\n  bind :5432\n  default_backend db\nbackend db\n  mode tcp\n  server a 10.0.0.1:5432\n\
         userlist users\n  user ann insecure-password secret\n\
         frontend www\n  mode http\n  bind :80\n  filter spoe engine a config b\n  use_backend %[req.hdr(host)]\n  use_backend db if { path /db }\n  default_backend web\n\
         backend web\n  mode http\n  server a app.internal:3000\n  server-template b 3 _http._tcp.b:80 check\n\
         frontend other\n  mode http\n  bind :81\n  default_backend web\n",
    );
    let expected = ["^/db$ [] 503", "/ [] web"];
    assert_eq!(routes(&config.sites[0], &config), expected, "{text}");
    for part in ["frontend db", "backend db", "userlist", "filter", "%[req.hdr(host)]", "db if", "frontend other"] {
        assert!(left.iter().any(|left| left.contains(part)), "{part}: {left:#?}");
    }
    assert!(!text.contains("secret") && !text.contains(":81"), "{text}");
    has(&text, &["servers = [\"http://app.internal:3000\", \"http://_http._tcp.b\"]"]);
    let error = import::haproxy("haproxy.cfg", &super::Texts(vec![("haproxy.cfg", "bind :80\n")]), None)
        .unwrap_err()
        .to_string();
    assert!(error.starts_with("haproxy.cfg:1: ") && error.contains("begins with a section"), "{error}");
    let error =
        import::haproxy("haproxy.cfg", &super::Texts(vec![("haproxy.cfg", "global\n  a \"b\n")]), None).unwrap_err();
    assert!(error.to_string().starts_with("haproxy.cfg:2: "), "{error}");
}

/// The names of the sites.
fn names(config: &Config) -> Vec<String> {
    config.sites.iter().map(|site| site.names.join(" ")).collect()
}

#[test]
fn several_frontends_become_the_sites_of_one_server() {
    let (text, left, config) = one(http(
        "frontend plain\n  bind *:80\n  acl shop hdr(host) shop.example\n  use_backend shop if shop\n  default_backend www\n\
         frontend secure\n  bind *:443 ssl crt /etc/a.pem\n  acl is_shop hdr(host) -i shop.example\n  use_backend shop if is_shop\n  default_backend www\n\
         frontend docs\n  bind *:8443 ssl crt /etc/docs.pem\n  use_backend docs if { hdr(host) docs.example }\n\
         listen internal\n  bind 127.0.0.1:9000\n  server a 127.0.0.1:3000\n\
         frontend other\n  bind *:81\n  use_backend docs if { hdr(host) other.example }\n  default_backend docs\n\
         frontend again\n  bind *:82\n  use_backend www if { hdr(host) docs.example }\n\
         backend shop\n  server a 10.0.0.1:80\nbackend www\n  server a 10.0.0.2:80\nbackend docs\n  server a 10.0.0.3:80\n",
    ));
    assert_eq!(names(&config), ["", "shop.example", "docs.example"], "{text}");
    for (site, expected) in config.sites.iter().zip([["/ [] www"], ["/ [] shop"], ["/ [] docs"]]) {
        assert_eq!(routes(site, &config), expected, "{text}");
    }
    has(&text, &["listen = [\"http://:80\", \"https://:443\", \"https://:8443\"]", "tls-cert = \"/etc/docs.pem\""]);
    // The first two are served without TLS, too; the third one has no address for that.
    assert_eq!(text.matches("https-redirect = false").count(), 2, "{text}");
    assert_eq!(left.len(), 3, "{left:#?}");
    for (name, why) in [
        ("listen internal", "at others only"),
        ("frontend other", "answers other hosts"),
        ("frontend again", "`docs.example`"),
    ] {
        let is_there = |left: &String| {
            let how = format!("--frontend {}", name.split(' ').nth(1).unwrap());
            left.contains(name) && left.contains(why) && left.contains(&how)
        };
        assert!(left.iter().any(is_there), "{name}: {left:#?}");
    }
    assert_eq!(config.upstreams.len(), 3, "the backends of frontends that are not served are not there: {text}");
}

#[test]
fn one_frontend_is_translated_alone() {
    const TEXT: &str = "defaults\n  mode http\n  timeout client 30s\nfrontend a\n  bind :80\n  default_backend a\n\
         listen b\n  bind 127.0.0.1:9000\n  timeout client 5s\n  server b 127.0.0.1:3000\nbackend a\n  server a 10.0.0.1:80\n";
    let alone = |name| import::haproxy("haproxy.cfg", &Texts(vec![("haproxy.cfg", TEXT)]), Some(name));
    let b = alone("b").unwrap();
    has(&b.text, &["listen = [\"127.0.0.1:9000\"]", "idle-timeout = \"5s\"", "servers = [\"http://127.0.0.1:3000\"]"]);
    assert!(!b.text.contains("10.0.0.1") && b.left.is_empty(), "{}", b.text);
    let error = alone("c").unwrap_err().to_string();
    assert!(error.contains("`c`"), "{error}");
}

#[test]
fn rates_of_some_requests_and_of_other_tables_become_limits() {
    let (text, left, config) = one(http(
        "frontend www\n  bind :80\n  acl api path_beg /api/\n  acl fast sc_http_req_rate(1) gt 30\n\
           http-request track-sc0 src table addresses\n  http-request track-sc1 hdr(X-Key) table keys if api\n\
           http-request deny deny_status 429 if { sc0_http_req_rate(addresses) gt 600 }\n  http-request deny if fast\n\
           tcp-request connection track-sc2 src\n  tcp-request connection reject if { sc2_conn_cur ge 21 }\n\
           stick-table type ip size 1m store conn_cur\n\
           use_backend v2 if { path_beg /api/v2/ }\n  use_backend api if api\n  default_backend www\n\
         backend addresses\n  stick-table type ip size 1m expire 60s store http_req_rate(60s)\n\
         backend keys\n  stick-table type string len 32 size 1m expire 10s store conn_cur,http_req_rate(10s)\n\
         backend v2\n  server a 10.0.0.1:80\nbackend api\n  server a 10.0.0.2:80\nbackend www\n  server a 10.0.0.3:80\n",
    ));
    let by_key = "limit = { rate = \"3/s\", burst = 30, by = \"header X-Key\" }";
    has(&text, &["limit = { rate = \"10/s\", burst = 600 }", by_key, "connections-per-client = 20"]);
    assert_eq!(routes(&config.sites[0], &config), ["/api/v2/ [] v2", "/api/ [] api", "/ [] www"], "{text}");
    let limited: Vec<bool> = text.split("[[site.route]]").skip(1).map(|route| route.contains(by_key)).collect();
    assert_eq!(limited, [true, true, false], "{text}");
    assert_eq!(left, Vec::<String>::new(), "{text}");
    // A limit for other requests than those of a route gets a route of its own; one that fits to no route is named.
    let (text, left, config) = one(http(
        "frontend www\n  bind :80\n  stick-table type ip size 1m store http_req_rate(1s)\n  http-request track-sc0 src\n\
           http-request deny if { path_beg /login } { sc_http_req_rate(0) gt 5 }\n\
           http-request deny if { hdr(host) a.example } { sc_http_req_rate(0) gt 9 }\n\
           http-request deny if { hdr(host) b.example } { path_beg /b } { sc_http_req_rate(0) gt 7 }\n\
           use_backend shop if { path_reg ^/shop }\n  default_backend www\n\
         backend www\n  server a 10.0.0.1:80\nbackend shop\n  server a 10.0.0.2:80\n",
    ));
    assert_eq!(names(&config), ["", "a.example", "b.example"], "{text}");
    assert_eq!(routes(&config.sites[0], &config), ["^/shop [] shop", "^/login [] www", "/ [] www"], "{text}");
    assert_eq!(routes(&config.sites[1], &config), ["^/shop [] shop", "^/login [] www", "/ [] www"], "{text}");
    assert_eq!(
        routes(&config.sites[2], &config),
        ["^/shop [] shop", "^/login [] www", "^/b [] www", "/ [] www"],
        "{text}"
    );
    assert!(left.is_empty(), "{left:#?}");
    let (_, left, _) = one(http(
        "frontend www\n  bind :80\n  stick-table type ip size 1m store http_req_rate(1s)\n  http-request track-sc0 src\n\
           http-request deny if { path_beg /login } { sc_http_req_rate(0) gt 5 }\n  http-request deny if { sc_http_req_rate(1) gt 5 }\n\
           use_backend shop if { path_reg ^/shop }\nbackend shop\n  server a 10.0.0.2:80\n",
    ));
    assert!(left.len() == 2 && left.iter().all(|left| left.contains("sc_http_req_rate")), "{left:#?}");
}

#[test]
fn maps_and_lists_are_read() {
    let text = http(
        "frontend www\n  bind :80\n  http-request deny if { src -f blocked.lst }\n\
           http-request redirect location %[path,map_str(old.map)] code 301 if { path,map_str(old.map) -m found }\n\
           use_backend %[path,map_beg(paths.map)] if { path,map_beg(paths.map) -m found }\n\
           use_backend %[req.hdr(host),lower,map(hosts.map,www)]\n\
         backend api\n  server a 10.0.0.1:80\nbackend static\n  server a 10.0.0.2:80\nbackend www\n  server a 10.0.0.3:80\n",
    );
    let (text, left, config) = translated(&[
        ("haproxy.cfg", text),
        ("blocked.lst", "# bad\n192.0.2.0/24\n\n198.51.100.7\n"),
        ("old.map", "/old /new\n/sale /offers/2026\n"),
        ("hosts.map", "# hosts\nAPI.example   api\nwww.example www\ngone.example missing\ncdn.example static\n"),
        ("paths.map", "/s/ static\n/s/api/ api\n"),
    ]);
    assert_eq!(names(&config), ["", "api.example", "www.example", "gone.example", "cdn.example"], "{text}");
    let before = ["/ [client 192.0.2.0/24|198.51.100.7/32] 403", "^/old$ [] redirect", "^/sale$ [] redirect"];
    for (site, backend) in config.sites.iter().zip(["/ [] www", "/ [] api", "/ [] www", "/ [] 503", "/ [] static"]) {
        let expected = [&before[..], &["/s/api/ [] api", "/s/ [] static", backend]].concat();
        assert_eq!(routes(site, &config), expected, "{text}");
    }
    has(&text, &["redirect = \"/offers/2026\"\nredirect-status = 301"]);
    assert!(left.len() == 1 && left[0].contains("`missing`"), "{left:#?}");
}

#[test]
fn of_two_rates_the_lower_is_the_limit() {
    let (text, left, _) = one(http(
        "frontend web\n bind :80\n default_backend app\n stick-table type ip size 1m expire 30s store http_req_rate(30s)\n \
         acl abuse src_http_req_rate(web) gt 100\n http-request track-sc0 src\n http-request deny if abuse\n \
         http-request deny deny_status 429 if { sc_http_req_rate(0) gt 20 }\nbackend app\n server a 127.0.0.1:3000\n",
    ));
    has(&text, &["limit = { rate = \"40/m\", burst = 20 }"]);
    has(&left.join("\n"), &["there is one limit of a kind: the lowest rate is taken"]);
}

#[test]
fn fields_about_the_client_have_the_values_of_the_file_or_are_named() {
    let (text, left, _) = one(http(
        "frontend web\n bind :80\n default_backend app\n http-request del-header X-Forwarded-For\n option forwardfor\n \
         http-request set-header X-Forwarded-Proto https\n http-request set-header X-Forwarded-Host shop.example\n \
         http-request set-header X-Forwarded-Port %[dst_port]\n http-request set-header X-Real-IP %[src]\n \
         http-request set-header X-Forwarded-For %[src]\n http-response del-header X-Powered-By\n\
         backend app\n option forwardfor header X-Client\n server a 127.0.0.1:3000\n",
    ));
    has(&text, &["request-headers.set = { X-Forwarded-Proto = \"https\", X-Forwarded-Host = \"shop.example\" }"]);
    assert!(!text.contains("request-headers.remove"), "{text}");
    has(&text, &["request-headers.client = [\"X-Real-IP\"]"]);
    has(&left.join("\n"), &["X-Forwarded-Port", "`option forwardfor header X-Client`"]);
    let (text, left, _) = one(http(
        "frontend web\n bind :80\n default_backend app\n acl tls ssl_fc\n http-request set-header X-Forwarded-Proto https if tls\n \
         http-request set-header X-Forwarded-Proto http if !{ ssl_fc }\n \
         http-request set-header X-Forwarded-Proto https if { path_beg /a }\nbackend app\n server a 127.0.0.1:3000\n",
    ));
    assert!(!text.contains("request-headers"), "{text}");
    assert_eq!(left.iter().filter(|left| left.contains("set-header")).count(), 1, "{left:?}");
}

#[test]
fn a_guard_closes_the_requests_that_it_is_about() {
    let (text, left, _) = one(http(
        "frontend web\n bind :80\n acl site hdr(host) -i b.example\n \
         http-request auth realm x if site { path_beg /adm } !{ http_auth(users) }\n \
         http-request deny if { path /a } { var(txn.a) -m bool } or { path /b } { nbsrv(app) lt 1 }\n \
         default_backend app\nbackend app\n server a 127.0.0.1:3000\n",
    ));
    assert!(!text.contains("maintenance"), "{text}");
    has(
        &text,
        &[
            "path-regex = \"^/adm\"\nrespond = 403",
            "path-regex = \"^/a$\"\nrespond = 403",
            "path-regex = \"^/b$\"\nrespond = 403",
        ],
    );
    assert_eq!(left.iter().filter(|left| left.contains("CLOSED")).count(), 2, "{left:?}");
    let (text, ..) = one(http(
        "frontend web\n bind :80\n http-request deny if { var(txn.a) -m bool } or { path /b }\n default_backend app\n\
         backend app\n server a 127.0.0.1:3000\n",
    ));
    has(&text, &["maintenance = { file = \"/\" }"]);
}

#[test]
fn the_begin_of_a_media_type_is_compressed() {
    let (text, ..) = one(http(
        "frontend web\n bind :80\n compression algo gzip\n compression type text/ application/json\n default_backend app\n\
         backend app\n server a 127.0.0.1:3000\n",
    ));
    has(&text, &["types = [\"text/*\", \"application/json\"]"]);
}

#[test]
fn certificates_have_the_directory_that_global_names() {
    let translated = import::haproxy(
        "haproxy.cfg",
        &Texts(vec![(
            "haproxy.cfg",
            "global\n crt-base /etc/tls/\n ca-base /etc/ca\ndefaults\n mode http\nfrontend web\n \
             bind :443 ssl crt a.pem ca-file /etc/own.pem\n default_backend app\nbackend app\n server a 127.0.0.1:3000 ssl ca-file b.pem\n",
        )]),
        None,
    );
    let text = translated.unwrap().text;
    has(&text, &["tls-cert = \"/etc/tls/a.pem\"", "client-ca = \"/etc/own.pem\"", "tls-ca = \"/etc/ca/b.pem\""]);
}

#[test]
fn old_names_of_times_and_what_is_let_in_first() {
    let (text, left, _) =
        one("defaults\n mode http\n contimeout 4s\n clitimeout 50s\n srvtimeout 40s\nglobal\n gid 99\n\
         frontend web\n bind :80\n default_backend app\n tcp-request connection accept if { src 10.0.0.0/8 }\n \
         tcp-request connection reject if { src 10.1.0.0/16 }\nbackend app\n server a 127.0.0.1:3000\n");
    has(&text, &["connect-timeout = \"4s\"", "idle-timeout = \"50s\"", "idle-timeout = \"40s\""]);
    has(&left.join("\n"), &["tcp-request connection accept"]);
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn a_file_that_is_cut_anywhere_is_read_or_refused() {
    let guide =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/from-haproxy.md")).unwrap();
    let (_, block) = guide.split_once("```haproxy\n").unwrap();
    let shop = block.split_once("```").unwrap().0;
    let more = "  http-request redirect location %[path,map(a.map)] if { path,map(a.map) -m found }\n  \
         use_backend %[req.hdr(host),lower,map_dom(a.map,web)] if { src -f a.map } !{ sc0_http_req_rate(web) gt 3 }\n  \
         http-request deny if { sc_http_req_rate(0,web) ge 3 } { path /a }\n  errorfiles shop 404\n\
         http-errors shop\n  errorfile 404 /a\nbackend web\n  stick-table type ip store conn_cur,http_req_rate(1s)\n";
    let text: &'static str = shop.replace("  default_backend web\n", &format!("  default_backend web\n{more}")).leak();
    for end in (0..=text.len()).filter(|end| text.is_char_boundary(*end)) {
        let files = Texts(vec![("haproxy.cfg", &text[..end]), ("a.map", "/a b\n192.0.2.1\n")]);
        let _ = import::haproxy("haproxy.cfg", &files, None);
    }
    // A word that is missing anywhere.
    let words: Vec<&str> = text.split_inclusive([' ', ',', '(', ')']).collect();
    for left_out in 0..words.len() {
        let without: String =
            words.iter().enumerate().filter(|(at, _)| *at != left_out).map(|(_, word)| *word).collect();
        let files = Texts(vec![("haproxy.cfg", without.leak()), ("a.map", "/a b\n192.0.2.1\n")]);
        let _ = import::haproxy("haproxy.cfg", &files, None);
    }
}

#[test]
fn error_files_are_pages_of_the_sites_of_a_frontend() {
    let (text, left, config) = one(http(
        "  errorfile 503 /etc/haproxy/errors/503.http\n  errorfile 408 /dev/null\n\
         http-errors shop\n  errorfile 404 /etc/shop/404.http\n  errorfile 500 /etc/shop/500.http\n\
         frontend www\n  bind :80\n  errorfiles shop 404\n  errorfile 503 /etc/haproxy/mine.http\n  default_backend web\n\
         backend web\n  errorfile 502 /etc/haproxy/502.http\n  server a 10.0.0.1:80\n",
    ));
    let site = &config.sites[0];
    let pages: Vec<_> = site.error_pages.iter().map(|it| (it.statuses.0, it.page.clone())).collect();
    let file = |name: &str| PageSource::File(name.into());
    assert_eq!(
        pages,
        [
            (404, file("/etc/shop/404.http")),
            (502, file("/etc/haproxy/mine.http")),
            (503, file("/etc/haproxy/mine.http"))
        ],
        "{text}"
    );
    assert!(!site.routes[0].replaces_errors, "the backend's own errors stay: {text}");
    assert_eq!(left.len(), 2, "{left:#?}");
    assert!(
        left.iter().any(|left| left.contains("/dev/null")) && left.iter().any(|left| left.contains("502")),
        "{left:#?}"
    );
}

#[test]
fn the_shop_of_the_guide() {
    let guide =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/from-haproxy.md")).unwrap();
    let (_, block) = guide.split_once("```haproxy\n").unwrap();
    let block = block.split_once("```").unwrap().0.to_owned().leak();
    let (text, left, config) = one(block);
    let expected = [
        "^/admin [unless client 10.0.0.0/8] 403",
        "^/summer$ [] redirect",
        "/api/ [] api",
        "/search/ [] search",
        "/ [] web",
    ];
    assert_eq!(routes(&config.sites[0], &config), expected, "{text}");
    has(
        &text,
        &[
            "resolver = [\"10.0.0.53:53\"]",
            "servers = [\"http://_http._tcp.search.internal\"]",
            "proxy-protocol = [\"10.0.9.1\"]",
            "limit = { rate = \"40/s\", burst = 40 }",
            "balance = \"hash header X-Account\"",
            "sticky = \"server\"",
            "hash-bound = \"150%\"",
        ],
    );
    assert!(!text.contains("CLOSED"), "{text}");
    assert!(!left.iter().any(|left| left.contains("sc_http_req_rate")), "{left:#?}");
}
