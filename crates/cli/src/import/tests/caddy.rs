//! Caddyfiles of the shapes that public projects have, and what becomes of them.

use super::*;

fn one(text: &'static str) -> (String, Vec<String>, Config) {
    translated(&[("Caddyfile", text)])
}

#[track_caller]
fn names(left: &[String], all: &[(&str, &str)]) {
    for (place, part) in all {
        let is_there = |left: &String| left.starts_with(&format!("{place}: ")) && left.contains(part);
        assert!(left.iter().any(is_there), "{place} {part}: {left:#?}");
    }
}

#[test]
fn a_static_site_with_its_certificate_and_compression() {
    let (text, left, config) = one("{\n  email admin@a.example\n}\n\n\
        a.example, www.a.example {\n  root * /srv/a\n  encode zstd br gzip {\n    br 6\n    gzip 7\n  }\n  file_server\n\
          header /assets/* Cache-Control \"public, max-age=31536000\"\n  header {\n    X-Frame-Options DENY\n    -Server\n  }\n}\n");
    assert_eq!(left, Vec::<String>::new());
    has(
        &text,
        &[
            "listen = [\"https://:443\", \"http://:80\"]",
            "[acme]\ncontact = \"admin@a.example\"",
            "names = [\"a.example\", \"www.a.example\"]\nroot = \"/srv/a\"\nacme = true",
            "codings = [\"zstd\", \"br\", \"gzip\"]",
            "br-level = 6",
            "gzip-level = 7",
            "path = \"/assets/\"\nfiles = true",
            "response-headers.remove = [\"Server\"]",
            "Cache-Control = \"public, max-age=31536000\", X-Frame-Options = \"DENY\"",
        ],
    );
    assert_eq!(config.sites[0].routes.len(), 2, "{text}");
}

#[test]
fn proxies_for_several_names_and_ports() {
    let (text, left, config) = one("app.example {\n  reverse_proxy localhost:3000\n}\n\
        api.example {\n  reverse_proxy /v1/* 10.0.0.1:80 10.0.0.2:80 {\n    lb_policy least_conn\n    health_uri /health\n    health_interval 10s\n\
            health_status 2xx\n    fail_duration 30s\n    max_fails 3\n    header_up X-Env prod\n    header_up X-Real-IP {remote_host}\n    header_down -X-Powered-By\n\
            flush_interval -1\n  }\n  reverse_proxy h2c://10.0.0.3:50051\n  log {\n    output file /var/log/caddy/api.log {\n      roll_size 10mb\n    }\n  }\n}\n\
        :8080 {\n  reverse_proxy https://up.example {\n    header_up Host {upstream_hostport}\n    transport http {\n      tls_server_name up.example\n      dial_timeout 2s\n    }\n  }\n}\n\
        http://plain.example {\n  reverse_proxy unix//run/app.sock\n}\n");
    has(
        &text,
        &[
            "listen = [\"https://:443\", \"http://:80\", \"http://:8080\"]",
            "servers = [\"http://localhost:3000\"]",
            "active.path = \"/health\"\nactive.every = \"10s\"\nactive.statuses = \"200-299\"",
            "passive.pause = \"30s\"\npassive.failures = 3",
            "path = \"/v1/\"\nbuffer-response = false",
            "request-headers.set = { X-Env = \"prod\" }",
            "request-headers.client = [\"X-Real-IP\"]",
            "response-headers.remove = [\"X-Powered-By\"]",
            "servers = [\"h2c://10.0.0.3:50051\"]",
            "keep-host = false",
            "tls-name = \"up.example\"\nconnect-timeout = \"2s\"",
            "servers = [\"unix:/run/app.sock\"]",
            "access-log = { target = \"/var/log/caddy/api.log\", format = \"json\" }",
        ],
    );
    names(&left, &[("Caddyfile:20", "logrotate")]);
    assert_eq!(left.len(), 1, "{left:#?}");
    assert_eq!(config.sites.len(), 4);
    assert!(config.sites[0].names.is_empty(), "the site without a name answers for all others");
}

#[test]
fn an_application_of_one_page_with_its_interface() {
    let (text, left, config) = one("shop.example\n\nroot * /srv/shop\nencode\n\
        handle /api/* {\n  reverse_proxy localhost:9000\n}\nhandle_path /images/* {\n  reverse_proxy localhost:9001\n}\n\
        handle {\n  try_files {path} /index.html\n  file_server\n}\n");
    assert_eq!(left, Vec::<String>::new());
    has(
        &text,
        &[
            "path = \"/api/\"\nupstream = \"localhost-9000\"",
            "path = \"/images/\"\nreplace-prefix = \"/\"\nupstream = \"localhost-9001\"",
            "path = \"/\"\nfiles = true\ntry-files = [\"/index.html\"]",
            "root = \"/srv/shop\"",
            "codings = [\"zstd\", \"gzip\"]",
        ],
    );
    assert_eq!(config.sites[0].routes.len(), 3);
}

#[test]
fn redirects_rewrites_and_fixed_answers() {
    let (text, left, config) = one("www.a.example {\n  redir https://a.example{uri} permanent\n}\n\
        a.example {\n  redir /old /new 308\n  redir /blog/* https://blog.example{uri}\n  rewrite /feed /feed.xml\n\
          @user path_regexp user ^/user/([0-9]+)$\n  rewrite @user /users/{re.user.1}\n  respond /health 200\n  respond /teapot \"no coffee\" 418\n\
          respond /hello <<END\n    one\n    two\n    END 200\n  error /secret/* 404\n  abort /wp-admin/*\n  redir /html /x html\n  rewrite * /all\n  root /srv/a\n  file_server\n}\n");
    has(
        &text,
        &[
            "redirect = \"https://a.example{uri}\"\nredirect-status = 301",
            "path-regex = \"^/old$\"\nredirect = \"/new\"\nredirect-status = 308",
            "path = \"/blog/\"\nredirect = \"https://blog.example{uri}\"",
            "path-regex = \"^/feed$\"\nrewrite = \"/feed.xml{query}\"",
            "rewrite = \"/users/{1}{query}\"",
            "path-regex = \"^/health$\"\nrespond = 200",
            "respond = 418\nrespond-body = \"no coffee\"",
            "respond-body = \"\"\"\none\ntwo\"\"\"",
            "path = \"/secret/\"\nrespond = 404",
            "path = \"/wp-admin/\"\nrespond = 403",
        ],
    );
    names(&left, &[("Caddyfile:17", "403"), ("Caddyfile:18", "by status"), ("Caddyfile:19", "take it again")]);
    assert_eq!(left.len(), 3, "{left:#?}");
    assert_eq!(config.sites.len(), 2);
}

#[test]
fn passwords_addresses_and_limits() {
    let (text, left, config) = one(
        "{\n  servers {\n    trusted_proxies static private_ranges\n    timeouts {\n      read_header 10s\n      idle 2m\n    }\n  }\n}\n\
        admin.example {\n  root * /srv/admin\n  file_server browse\n  basic_auth /private/* {\n    bob $2a$14$abc\n    eve $2a$14$def\n  }\n\
          @outside not remote_ip 10.0.0.0/8 192.0.2.7\n  respond @outside 403\n  request_body {\n    max_size 10MB\n  }\n  log_skip /private/*\n}\n",
    );
    has(
        &text,
        &[
            "trusted-proxies = [\"192.168.0.0/16\"",
            "head-timeout = \"10s\"\nidle-timeout = \"2m\"",
            "[users]\nfile = \"users.htpasswd\"",
            "path = \"/private/\"\nfiles = true\nlisting = true\nrequire = { user = [\"bob\", \"eve\"] }\naccess-log = \"off\"\nrequest-body = \"10MB\"\nallow = [\"10.0.0.0/8\", \"192.0.2.7\"]",
        ],
    );
    names(&left, &[("Caddyfile:13", "users.htpasswd")]);
    assert!(!text.contains("$2a$14$"), "hashes stay where they are: {text}");
    assert_eq!(config.sites[0].routes.len(), 2, "{text}");
}

#[test]
fn snippets_files_and_variables_of_the_environment() {
    let (text, left, config) = translated(&[
        (
            "Caddyfile",
            "(common) {\n  encode gzip\n  header X-By {args[0]}\n}\n(proxy) {\n  import common {args[1]}\n  reverse_proxy {args[0]}\n}\n\
             {$SITE:a.example} {\n  import proxy localhost:1 one\n}\nimport sites/*\n\
             b.example {\n  import proxy {$BACKEND} two\n  respond /x 204\n}\n",
        ),
        ("sites/c", "c.example {\n  import common three\n  root * /srv/c\n  file_server\n}\n"),
    ]);
    has(
        &text,
        &["names = [\"a.example\"]", "X-By = \"one\"", "X-By = \"three\"", "servers = [\"http://localhost:1\"]"],
    );
    names(
        &left,
        &[("Caddyfile:9", "`a.example` is taken for `SITE`"), ("Caddyfile:7", "put the value of `BACKEND` in")],
    );
    assert_eq!(config.sites.len(), 3);
    assert_eq!(config.sites[1].names, ["c.example"], "in their order");
}

#[test]
fn hosts_of_a_wildcard_have_sites_of_their_own() {
    let (text, left, config) = one(
        "*.a.example {\n  tls /etc/a.pem /etc/a.key\n  @one host one.a.example\n  handle @one {\n    reverse_proxy localhost:1\n  }\n\
          @two host two.a.example\n  handle @two {\n    root * /srv/two\n    file_server\n  }\n  handle {\n    abort\n  }\n}\n",
    );
    has(
        &text,
        &[
            "names = [\"one.a.example\"]\ntls-cert = \"/etc/a.pem\"",
            "names = [\"two.a.example\"]\nroot = \"/srv/two\"\ntls-cert",
            "names = [\"*.a.example\"]",
        ],
    );
    assert_eq!(config.sites.len(), 3, "{text}");
    names(&left, &[("Caddyfile:13", "403")]);
    assert_eq!(config.sites[2].routes.len(), 1, "{text}");
}

#[test]
fn php_conditions_and_plugins_are_named_with_place_and_reason() {
    let (text, left, _) = one("{\n  admin localhost:2019\n  acme_dns cloudflare token\n  http_port 8080\n  debug\n}\n\
        blog.example {\n  root * /srv/blog\n  php_fastcgi unix//run/php.sock\n  file_server\n  @ws {\n    header Connection *Upgrade*\n    header Upgrade websocket\n  }\n\
          reverse_proxy @ws localhost:6001\n  @post method POST\n  respond @post 405\n  forward_auth authelia:9091 {\n    uri /api/verify\n  }\n\
          rate_limit {\n    zone a\n  }\n  templates\n  handle_errors {\n    rewrite * /{err.status_code}.html\n    file_server\n  }\n}\n");
    names(
        &left,
        &[
            ("Caddyfile:2", "Caddy's interface"),
            ("Caddyfile:3", "not by DNS"),
            ("Caddyfile:15", "not by `header`"),
            ("Caddyfile:17", "not by `method`"),
            ("Caddyfile:21", "a plugin"),
            ("Caddyfile:24", "texts are not changed"),
            ("Caddyfile:25", "error-pages"),
        ],
    );
    assert_eq!(left.len(), 7, "{left:#?}");
    has(
        &text,
        &[
            "path-regex = '\\.php(/|$)'\nfastcgi = { address = \"unix:/run/php.sock\", root = \"/srv/blog\" }",
            "files = true\nfallback = \"/index.php\"",
            "forward-auth = { upstream = \"authelia-9091\", path = \"/api/verify\" }",
        ],
    );
    has(&text, &["admin = \"127.0.0.1:2019\"", "http://:8080", "Not needed here: debug."]);
}

#[test]
fn internal_certificates_and_addresses_of_this_machine() {
    let (text, left, config) = one(
        "localhost {\n  respond \"hello\"\n}\nnas.local:8443 {\n  tls internal\n  reverse_proxy 127.0.0.1:5000\n}\n\
        http://10.0.0.5 {\n  bind 10.0.0.5\n  root * /srv/lan\n  file_server\n}\n\
        secure.example {\n  tls me@a.example {\n    client_auth {\n      mode require_and_verify\n      trusted_ca_cert_file /etc/ca.pem\n    }\n    protocols tls1.3\n  }\n\
          root * /srv/www\n  file_server {\n    index home.html\n    hide .git\n  }\n}\n",
    );
    has(
        &text,
        &[
            "names = [\"localhost\"]",
            "respond-body = \"hello\"",
            "http://:8443",
            "http://10.0.0.5:80",
            "client-ca = \"/etc/ca.pem\"\nrequire = { certificate = true }",
            "contact = \"me@a.example\"",
        ],
    );
    names(
        &left,
        &[
            ("Caddyfile:1", "no authority inside"),
            ("Caddyfile:4", "no authority inside"),
            ("Caddyfile:23", "site.files.index"),
            ("Caddyfile:24", "begin with a dot"),
        ],
    );
    assert_eq!(config.sites.len(), 4);
}

#[test]
fn files_below_a_path_are_no_others_than_they_were() {
    let (text, left, config) =
        one("a.example {\n  handle_path /static/* {\n    root * /srv/app/static\n    file_server\n  }\n\
          handle_path /docs/* {\n    root * /srv/handbook\n    file_server\n  }\n\
          handle /x/* {\n    uri strip_prefix /x\n    rewrite * /y{uri}\n    reverse_proxy localhost:1\n  }\n\
          uri /z/* strip_prefix /z\n  reverse_proxy /z/* localhost:1\n}\n\
        b.example {\n  @static path /css/* /js/*\n  handle @static {\n    root * /srv/b\n    file_server\n  }\n}\n\
        http://a.example {\n  redir https://{host}{uri}\n}\n\
        a.example:8443 {\n  respond 204\n}\n");
    has(
        &text,
        &[
            "root = \"/srv/app\"",
            "path = \"/static/\"\nfiles = true",
            "path = \"/z/\"\nreplace-prefix = \"/\"",
            "# what no directive takes\npath = \"/\"\nrespond = 404"
                .replace("# what no directive takes\n", "")
                .as_str(),
            "path = \"/css/\"\nfiles = true",
            "path = \"/js/\"\nfiles = true",
        ],
    );
    names(
        &left,
        &[
            ("Caddyfile:8", "under the same path"),
            ("Caddyfile:25", "by default"),
            ("Caddyfile:28", "a name has one site"),
        ],
    );
    assert_eq!(config.sites.len(), 2, "{text}");
}

#[test]
fn what_is_refused_stays_refused() {
    let (text, left, config) = one(
        "a.example {\n  basic_auth /admin/* {\n    bob $2a$14$abc\n  }\n  reverse_proxy *.do localhost:1\n  reverse_proxy localhost:2\n}\n\
        b.example {\n  handle_path /app/* {\n    basic_auth /secret/* {\n      bob $2a$14$abc\n    }\n    reverse_proxy localhost:3\n  }\n\
          handle /api/* {\n    reverse_proxy /api/v1/* localhost:4\n  }\n  handle /php/* {\n    php_fastcgi localhost:9000\n  }\n\
          basic_auth /admin* {\n    eve $2a$14$def\n  }\n  file_server\n}\n",
    );
    names(
        &left,
        &[
            ("Caddyfile:2", "it holds for all paths of the route at Caddyfile:5, too"),
            ("Caddyfile:21", "not for `/adminx`"),
        ],
    );
    let is_refused = |site: usize, path: &str| {
        let site = &config.sites[site];
        match site.routes.iter().find(|route| route.pattern.matches(path).is_some()) {
            Some(route) => route.access.require.is_some() || matches!(route.origin, Origin::Respond(_)),
            None => site.access.require.is_some(),
        }
    };
    for path in ["/admin/", "/admin/x", "/admin/x.do"] {
        assert!(is_refused(0, path), "{path} {text}");
    }
    assert!(!is_refused(0, "/x"));
    for path in ["/app/secret/x", "/api/v2", "/php/x.php", "/php/x", "/admin/x"] {
        assert!(is_refused(1, path), "{path} {text}");
    }
    for path in ["/app/x", "/api/v1/x", "/other"] {
        assert!(!is_refused(1, path), "{path} {text}");
    }
    has(&text, &["path = \"/app/secret/\"\nupstream = \"localhost-3\"\nreplace-prefix = \"/secret/\""]);
}

#[test]
fn a_caddyfile_that_is_cut_anywhere_is_read_or_refused() {
    let text = "(s) {\n  header {args[0]} \"x y\"\n}\n{\n  email a@b\n}\na.example, *.b.example:8443 {\n  @m {\n    path /a* *.b /c/*/d\n    not remote_ip 10.0.0.0/8\n  }\n\
                import s {$V:w}\n  handle_path /x/* {\n    uri strip_prefix /y\n    reverse_proxy @m a:1-3 unix//s {\n      header_up +A b\n    }\n  }\n  respond <<E\n  t\n  E 200\n}\n";
    for cut in 0..=text.len() {
        let start: &'static str = text[..cut].to_owned().leak();
        let end: &'static str = text[cut..].to_owned().leak();
        for part in [start, end] {
            let _ = import::caddyfile("Caddyfile", &Texts(vec![("Caddyfile", part)]));
        }
    }
}

#[test]
fn what_is_no_caddyfile_is_told_with_its_place() {
    for (text, place, part) in [
        ("a.example {\n  respond\n", "Caddyfile:2", "a `}` is missing"),
        ("}\n", "Caddyfile:1", "closes no block"),
        ("(a) {\n  import a\n}\na.example {\n  import a\n}\n", "Caddyfile:2", "nested too deep"),
        (
            "(a) {\n  import b\n  import b\n}\n(b) {\n  import c\n  import c\n}\n(c) {\n  import a\n  import a\n}\nx {\n  import a\n}\n",
            "Caddyfile:",
            "nested too deep",
        ),
        ("a {\n\n  import missing\n}\n", "Caddyfile:3", "missing does not exist"),
        ("import Caddyfile\n", "Caddyfile:1", "nested too deep"),
    ] {
        let error = import::caddyfile("Caddyfile", &Texts(vec![("Caddyfile", text)])).unwrap_err().to_string();
        assert!(error.starts_with(place) && error.contains(part), "{text:?}: {error}");
    }
}
