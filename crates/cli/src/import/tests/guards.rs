//! Requests that nginx refuses stay refused, whatever becomes of the rest. Also the choice of the site or location that
//! answers.

use super::*;

#[test]
fn locations_that_refuse_or_run_scripts_are_closed_where_their_expression_has_no_counterpart() {
    let (text, left, config) = one(r"server { listen 80; root /srv;
        location ~ /\.(?!well-known) { return 404; }
        location ~ ^(?!/uploads/).*\.php$ { fastcgi_pass unix:/run/php.sock; }
        location ~ ^/(a|b)/(?<=x).*secret { return 403; }
        location @login { internal; return 302 /login; }
        location / { } }");
    has(&text, &["path-regex = '^.*\\.php$'\nrespond = 403", "path-regex = \"^/(a|b)/.*secret\"\nrespond = 403"]);
    assert!(!text.contains("maintenance"), "{text}");
    assert_eq!(left.iter().filter(|left| left.contains("CLOSED")).count(), 2, "{left:#?}");
    let hidden = &config.sites[0].routes[0];
    assert!(matches!(hidden.origin, Origin::Respond(_)), "{text}");
}

#[test]
fn what_a_prefix_without_a_slash_refuses_is_refused_for_all_that_begins_with_it() {
    let (text, _, _) = one("server { listen 80;
        location /admin { allow 10.0.0.0/8; deny all; proxy_pass http://127.0.0.1:3000; }
        location /old { deny all; proxy_pass http://127.0.0.1:3000/new; }
        location /private { return 403; }
        location /open { proxy_pass http://127.0.0.1:3000; }
        location / { proxy_pass http://127.0.0.1:3000; } }");
    has(
        &text,
        &[
            "path-regex = \"^/admin\"\nupstream = ",
            "path-regex = \"^/private\"\nrespond = 403",
            "path = \"/old\"\nupstream = ",
            "path-regex = \"^/old\"\nrespond = 403",
            "path = \"/open\"\n",
        ],
    );
}

#[test]
fn longer_locations_come_before_a_first_prefix() {
    let of = |locations: &'static str| {
        let text = Box::leak(format!("server {{ listen 80; root /srv; {locations} }}").into_boxed_str());
        one(text).0
    };
    let text = of("location ^~ /files/ { } location /files/private/ { deny all; }");
    assert!(text.find("path = \"/files/private/\"").unwrap() < text.find("path = \"/files/\"").unwrap(), "{text}");
    let text = of("location ^~ /files/ { } location /files/private/ { deny all; } location ~ x$ { return 404; }");
    has(&text, &["path = \"/files/\"\nfiles = true\nunless = { path-regex = [\"^/files/private/\"] }"]);
}

#[test]
fn a_site_of_a_private_address_is_closed_for_all_others() {
    let (text, left, config) =
        one("server { listen 80; server_name a.example; location / { proxy_pass http://127.0.0.1:3000; } }
        server { listen 127.0.0.1:8081; server_name status.local; location / { proxy_pass http://127.0.0.1:3001; } }
        server { listen unix:/run/x.sock; server_name socket.local; location / { proxy_pass http://127.0.0.1:3001; } }
        server { listen 10.0.0.1:80; server_name private.local; location / { proxy_pass http://127.0.0.1:3001; } }
        server { listen 192.0.2.1:80; server_name b.example; location / { proxy_pass http://127.0.0.1:3001; } }");
    has(&text, &["names = [\"status.local\"]\nmaintenance = { file = \"/\", exempt = [\"127.0.0.0/8\", \"::1\"] }"]);
    let closed = |name: &str| {
        config.sites.iter().find(|site| site.names.iter().any(|it| *it == *name)).unwrap().maintenance.is_some()
    };
    assert_eq!(
        ["a.example", "status.local", "socket.local", "private.local", "b.example"].map(closed),
        [false, true, true, true, false],
        "{text}"
    );
    has(&left.join("\n"), &["nginx.conf:2: `listen 127.0.0.1:8081`", "nginx.conf:5: `listen 192.0.2.1:80`"]);
    let (text, left, _) =
        one("server { listen 127.0.0.1:8080; server_name a.example; location / { proxy_pass http://127.0.0.1:1; } }");
    assert!(!text.contains("maintenance") && left.is_empty(), "all are at one address: {text}");
}

#[test]
fn a_server_of_names_without_a_counterpart_does_not_answer_for_all() {
    let (text, left, config) = one("server { listen 80; server_name a.example; return 200 a; }
        server { listen 80; server_name ~^u-(.+)\\.a\\.example$ x.*; location / { proxy_pass http://127.0.0.1:1; } }
        server { listen 443 ssl; server_name y.*; ssl_certificate /c; ssl_certificate_key /k; return 200 y; }");
    assert_eq!(config.sites.len(), 1, "{text}");
    has(&text, &["listen = [\":80\"]", "names = [\"a.example\"]"]);
    assert_eq!(left.iter().filter(|left| left.contains("none of its names")).count(), 2, "{left:#?}");
}

#[test]
fn of_the_same_names_the_server_with_tls_is_the_site() {
    for (plain, tls) in [
        (
            "server_name a.example; location /health { return 200 ok; } location / { return 301 https://$host$request_uri; }",
            "server_name a.example;",
        ),
        ("return 301 https://$host$request_uri;", ""),
        ("server_name a.example; return 301 https://$host$request_uri;", "server_name _;"),
        ("root /srv;", ""),
    ] {
        let text = format!(
            "server {{ listen 80; {plain} }} server {{ listen 443 ssl; {tls} ssl_certificate /c.pem; ssl_certificate_key /k.pem; \
             location / {{ proxy_pass http://127.0.0.1:3000; }} }}"
        );
        let translated =
            import::nginx("nginx.conf", &Texts(vec![("nginx.conf", Box::leak(text.into_boxed_str()))])).unwrap();
        let (text, left) = (translated.text, translated.left);
        assert_eq!(text.matches("[[site]]").count(), 1, "{text}");
        has(&text, &["tls-cert = \"/c.pem\"", "upstream = \"127.0.0.1-3000\""]);
        assert_eq!(left.len(), 1, "{left:?}");
    }
}

#[test]
fn the_client_behind_a_proxy_is_known_or_its_rules_are_closed() {
    let site = "location /admin/ { allow 192.0.2.0/24; deny all; proxy_pass http://127.0.0.1:3000; } \
                location / { proxy_pass http://127.0.0.1:3000; } }";
    let of = |lines: &str| {
        let text = Box::leak(format!("server {{ listen 80; {lines} {site}").into_boxed_str());
        let (text, left, _) = one(text);
        (text, left)
    };
    let (text, left) = of(
        "set_real_ip_from 10.0.0.0/8; set_real_ip_from 10.0.0.0/8; set_real_ip_from ::1; real_ip_header X-Forwarded-For; real_ip_recursive on;",
    );
    has(&text, &["trusted-proxies = [\"10.0.0.0/8\", \"::1\"]", "allow = [\"192.0.2.0/24\"]"]);
    assert!(left.is_empty(), "{left:?}");
    let (text, _) = of("set_real_ip_from 10.0.0.1; real_ip_header proxy_protocol;");
    has(&text, &["proxy-protocol = [\"10.0.0.1\"]"]);
    let (text, left) = of("set_real_ip_from 10.0.0.0/8; real_ip_header CF-Connecting-IP;");
    has(&text, &["path = \"/admin/\"\nrespond = 403", "path = \"/\"\nupstream = "]);
    has(&left.join("\n"), &["`real_ip_header CF-Connecting-IP`: CLOSED"]);
}

#[test]
fn the_first_rule_with_an_address_counts() {
    let (text, left, _) = one("server { listen 80; root /srv;
        location /a/ { deny 10.0.0.0/8; allow 10.1.1.1; allow 192.0.2.1; deny all; }
        location /b/ { allow 10.0.0.0/8; deny 10.1.0.0/16; deny all; }
        location /c/ { deny 10.1.1.1; allow 10.0.0.0/8; deny all; } }");
    has(
        &text,
        &[
            "path = \"/a/\"\nfiles = true\nallow = [\"192.0.2.1\"]\ndeny = [\"10.0.0.0/8\"]",
            "path = \"/b/\"\nfiles = true\nallow = [\"10.0.0.0/8\"]\n",
            "path = \"/c/\"\nfiles = true\nallow = [\"10.0.0.0/8\"]\ndeny = [\"10.1.1.1\"]",
        ],
    );
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn sizes_of_bodies_are_those_of_each_server() {
    let (text, _, _) = one("http { server { listen 80; server_name a.example; client_max_body_size 2m; location / { proxy_pass http://127.0.0.1:1; } }
        server { listen 80; server_name b.example; client_max_body_size 1g; location / { proxy_pass http://127.0.0.1:2; } }
        server { listen 80; server_name c.example; location / { proxy_pass http://127.0.0.1:3; } } }");
    has(
        &text,
        &[
            "[limits]\nrequest-body = \"1GiB\"",
            "upstream = \"127.0.0.1-1\"\nkeep-host = false\nrequest-body = \"2MiB\"",
        ],
    );
    has(
        &text,
        &[
            "upstream = \"127.0.0.1-2\"\nkeep-host = false\n\n",
            "upstream = \"127.0.0.1-3\"\nkeep-host = false\nrequest-body = \"1MiB\"",
        ],
    );
}

#[test]
fn fields_of_forwarded_requests_and_of_answers_at_once() {
    let (text, left, _) = one("server { listen 80; server_name a.example; add_header X-A 1 always; add_header X-B 2;
        if ($http_user_agent ~ bot) { return 403; }
        location = /old { return 301 /new; }
        location = /gone { return 410; }
        location /assets/ { root /srv; add_header Cache-Control \"public, max-age=3600\"; }
        location / { proxy_pass http://127.0.0.1:3000; proxy_set_header X-Forwarded-Proto https; proxy_set_header X-Forwarded-Port 443;
          proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; proxy_set_header X-Forwarded-Host $host;
          proxy_set_header Authorization $http_authorization; proxy_set_header X-Real-IP $remote_addr; } }
        server { listen 80; server_name b.example; location / { proxy_pass http://127.0.0.1:3000;
          proxy_set_header X-Forwarded-Proto $http_x_forwarded_proto; } }
        server { listen 80; server_name c.example; add_header X-C 3; return 301 https://a.example$request_uri; }");
    has(
        &text,
        &[
            "request-headers.set = { X-Forwarded-Proto = \"https\", X-Forwarded-Port = \"443\" }",
            "request-headers.client = [\"X-Real-IP\"]",
            "respond = 403\nresponse-headers.set = { X-A = \"1\" }",
            "respond = 410\nresponse-headers.set = { X-A = \"1\" }",
            "redirect-status = 301\nresponse-headers.set = { X-A = \"1\", X-B = \"2\" }",
            "redirect-status = 301\nresponse-headers.set = { X-C = \"3\" }",
            "files = true\nexpires = \"1h, public\"",
        ],
    );
    has(&left.join("\n"), &["`proxy_set_header X-Forwarded-Proto $http_x_forwarded_proto`"]);
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn fixed_variables_name_servers_and_aliases_name_the_root() {
    let (text, left, config) = one("server { listen 80;
        set $shared shared;
        location /a/ { set $app app; set $port 8080; proxy_pass http://$app:${port}$request_uri; }
        location /b/ { auth_request /check; proxy_pass http://$shared:1; }
        location = /check { internal; set $auth auth; proxy_pass http://$auth:9091/api/verify; }
        location /c/ { set $x a; if ($arg_x) { set $x b; } proxy_pass http://$x; }
        location /d/ { set $app app; proxy_pass http://$app/path; }
        location /static/ { alias /app/static/; }
        location /media { alias /app/media; }
        location /other/ { alias /elsewhere/; }
        location / { proxy_pass http://127.0.0.1:3000; } }");
    has(&text, &["http://app:8080", "http://shared:1", "{ upstream = \"auth-9091\", path = \"/api/verify\" }"]);
    has(&text, &["root = \"/app\"", "path = \"/static/\"\nfiles = true", "path = \"/media\"\nfiles = true"]);
    assert_eq!(config.sites[0].routes.len(), 7, "{text}");
    has(&left.join("\n"), &["proxy_pass http://$x`", "proxy_pass http://$app/path`", "alias /elsewhere/"]);
    let (text, ..) =
        one("server { listen 80; location /static/ { alias /app/static/; } location /x/ { return 404; } }");
    assert!(!text.contains("root ="), "all files of the root would be open: {text}");
}

/// Text that is quoted from nginx's file stands in comments, and must not become a setting.
#[test]
fn nothing_that_is_quoted_leaves_its_comment() {
    let (text, left, _) = one("server { listen 80; server_name a.example; root /srv;
        \"x\\nlisten = [':1']\" on; \"y
workers = 7\" { } location / { if ($foo = \"z
workers = 9\") { return 403; } } }");
    assert!(!text.lines().any(|line| line.starts_with("workers")), "{text}");
    assert!(left.iter().all(|left| !left.contains('\n')) && left.len() > 2, "{left:?}");
}

#[test]
fn files_that_are_missing_go_on_as_before_try_files() {
    let (text, left, _) = one("server { listen 80; server_name a.example; root /srv; index index.php;
        location / { if (!-e $request_filename) { rewrite ^(.*)$ /index.php?q=$1 last; break; } }
        location /b/ { if (!-f $request_filename) { rewrite ^/(.*)$ /b/index.php/$1 last; } }
        location /c/ { if (!-f $request_filename) { rewrite ^/(.*)$ /c/index.php?q=$1 last; } }
        location /d/ { if (!-e $request_filename) { rewrite ^ /d/index.html last; } }
        location = /e { default_type application/json; return 200 '{}'; }
        set $public /srv/public; location /f/ { proxy_pass http://127.0.0.1:1; add_header ETag \"\"; add_header X-G \"\"; }
        location ~ \\.php$ { fastcgi_pass unix:/run/p.sock; include fastcgi_params; } }
        server { listen 80; server_name b.example; set $www /srv/b; root $www/public; location / { proxy_set_header Host $host;
          auth_basic x; auth_basic_user_file users; if (!-f $request_filename) { proxy_pass http://127.0.0.1:9000; break; } } }");
    has(
        &text,
        &[
            "path = \"/\"\nfiles = true\nfallback = \"/index.php?q={path}{query}\"",
            "upstream = \"127.0.0.1-1\"\nkeep-host = false\nresponse-headers.remove = [\"ETag\"]\n\n",
            "path = \"/b/\"\nfiles = true\nfallback = \"/b/index.php{path}\"",
            "root = \"/srv/b/public\"",
            "path = \"/c/\"\nfiles = true\n\n",
            "path = \"/d/\"\nfiles = true\ntry-files = [\"/d/index.html\"]",
            "respond-body = \"{}\"\nresponse-headers.set = { Content-Type = \"application/json\" }",
            "path = \"/@missing-0/\"\ninternal = true\nreplace-prefix = \"/\"\nupstream = \"127.0.0.1-9000\"\nkeep-host = true",
            "fallback = \"/@missing-0{path}\"\nrequire = { user = true, realm = \"x\" }",
        ],
    );
    // An expression without the slash at the begin of the path has no counterpart.
    has(&left.join("\n"), &["nginx.conf:4: `if (!-f $request_filename)`"]);
}
