//! Configurations of the shapes that public projects have, and what becomes of them.

mod caddy;
mod guards;
mod haproxy;
mod rewrites;

use super::*;
use server::config::{Config, LogChoice, Origin};

/// The files of a test.
struct Texts(Vec<(&'static str, &'static str)>);

impl Files for Texts {
    fn read(&self, pattern: &str) -> Result<Vec<(String, String)>, String> {
        let (start, end) = pattern.split_once('*').unwrap_or((pattern, ""));
        let named = |name: &str| {
            if pattern.contains('*') { name.starts_with(start) && name.ends_with(end) } else { name == pattern }
        };
        let found: Vec<_> = self
            .0
            .iter()
            .filter(|(name, _)| named(name))
            .map(|(name, text)| (name.to_string(), text.to_string()))
            .collect();
        match found.is_empty() && !pattern.contains('*') {
            true => Err(format!("{pattern} does not exist")),
            false => Ok(found),
        }
    }
}

/// Translates, and checks that Serpent understands the result.
fn translated(files: &[(&'static str, &'static str)]) -> (String, Vec<String>, Config) {
    let translated = match Source::of(files[0].0) {
        Source::Nginx => import::nginx(files[0].0, &Texts(files.to_vec())),
        Source::Caddy => import::caddyfile(files[0].0, &Texts(files.to_vec())),
        Source::HaProxy => import::haproxy(files[0].0, &Texts(files.to_vec()), None),
    };
    let translated = translated.unwrap_or_else(|error| panic!("{error}"));
    let source = (PathBuf::from("/etc/serpent.toml"), translated.text.clone());
    let flags = Overrides { config: Some(source.0.clone()), ..Overrides::default() };
    let (resolved, mut problems) = config::understand(Some(&source), &flags);
    problems.retain(|problem| problem.severity != Severity::Warning);
    assert!(problems.is_empty(), "{}\n{}", Problems::new(Some(source), problems), translated.text);
    (translated.text, translated.left.iter().map(ToString::to_string).collect(), resolved.config)
}

fn one(text: &'static str) -> (String, Vec<String>, Config) {
    translated(&[("nginx.conf", text)])
}

#[track_caller]
fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no `{part}` in:\n{text}");
    }
}

#[test]
fn responses_of_upstreams_are_stored_as_before() {
    let (text, left, config) = one("http {
        proxy_cache_path /var/cache/nginx levels=1:2 keys_zone=pages:10m inactive=1h max_size=1g;
        proxy_cache_valid 200 301 10m;
        proxy_cache_key $scheme$host$request_uri;
        server {
            listen 80;
            location / {
                proxy_pass http://127.0.0.1:3000;
                proxy_cache pages;
                proxy_cache_lock on;
                proxy_cache_use_stale error timeout updating http_503;
                proxy_cache_background_update on;
            }
            location /live/ {
                proxy_pass http://127.0.0.1:3000;
                proxy_cache off;
            }
            location /odd/ {
                proxy_pass http://127.0.0.1:3000;
                proxy_cache pages;
                proxy_cache_valid 404 1m;
                proxy_cache_bypass $cookie_a;
            }
        }
    }");
    let cache = |path: &str| {
        let route = config.sites[0].routes.iter().find(|route| route.name == path).unwrap_or_else(|| panic!("{text}"));
        route.cache.clone()
    };
    let rules = cache("/").unwrap().rules.clone();
    let minutes = |minutes: u64| std::time::Duration::from_secs(60 * minutes);
    assert_eq!(rules.lifetime, Some(minutes(10)), "{text}");
    assert_eq!((rules.stale_if_error, rules.stale_while_revalidate), (minutes(60), minutes(60)));
    assert_eq!(cache("/live/"), None);
    assert_eq!(cache("/odd/"), None, "what some clients get is not stored for all");
    has(&left.join("\n"), &["proxy_cache_path", "proxy_cache_bypass"]);
    assert_eq!(left.len(), 2, "{left:#?}");
}

#[test]
fn a_static_site_with_certbot_and_compression() {
    let (text, left, config) = translated(&[
        (
            "nginx.conf",
            "user www-data;\nworker_processes auto;\npid /run/nginx.pid;\nevents { worker_connections 768; }\n\
             http {\n  sendfile on;\n  include mime.types;\n  default_type application/octet-stream;\n  gzip on;\n\
             gzip_types text/css application/javascript;\n  gzip_min_length 256;\n\
             brotli on;\n  brotli_comp_level 6;\n  brotli_types text/css application/json;\n  brotli_static on;\n\
             access_log /var/log/nginx/access.log;\n  include sites/*.conf;\n}\n",
        ),
        ("mime.types", "types { text/html html htm; application/manifest+json webmanifest; }\n"),
        (
            "sites/a.conf",
            "server {\n  server_name a.example www.a.example; # managed by Certbot\n  root /srv/a;\n  index index.html index.htm;\n\
             location / { try_files $uri $uri/ =404; }\n  location ~* \\.(css|js|png)$ { expires 30d; add_header Vary \"Accept\"; }\n\
             error_page 404 /404.html;\n  error_page 500 502 503 504 /50x.html;\n\
             listen [::]:443 ssl ipv6only=on;\n  listen 443 ssl;\n\
             ssl_certificate /etc/letsencrypt/live/a/fullchain.pem;\n  ssl_certificate_key /etc/letsencrypt/live/a/privkey.pem;\n\
             include options-ssl.conf;\n}\n\
             server {\n  if ($host = www.a.example) {\n    return 301 https://$host$request_uri;\n  }\n\
             if ($host = a.example) {\n    return 301 https://$host$request_uri;\n  }\n  listen 80;\n  server_name a.example www.a.example;\n  return 404;\n}\n",
        ),
        ("options-ssl.conf", "ssl_session_cache shared:le_nginx_SSL:10m;\nssl_protocols TLSv1.2 TLSv1.3;\n"),
    ]);
    assert_eq!(config.sites.len(), 1, "{text}");
    has(
        &text,
        &[
            "listen = [\"https://:443\", \"http://:80\"]",
            "names = [\"a.example\", \"www.a.example\"]",
            "tls-cert = \"/etc/letsencrypt/live/a/fullchain.pem\"",
            "error-pages = { 404 = \"/404.html\", 500 = \"/50x.html\"",
            "codings = [\"br\", \"gzip\"]\ntypes = [\"text/html\", \"text/css\", \"application/json\", \"application/javascript\"]",
            "br-level = 6",
            "min-size = \"256\"",
            "mime-types = { webmanifest = \"application/manifest+json\" }",
            "expires = \"30d\"",
            "index = [\"index.html\", \"index.htm\"]",
            "target = \"/var/log/nginx/access.log\"",
        ],
    );
    assert!(left.iter().any(|left| left.starts_with("sites/a.conf:") && left.contains("without TLS")), "{left:#?}");
    assert!(text.contains("Not needed here: ") && text.contains("ssl_protocols"), "{text}");
}

#[test]
fn a_proxy_with_websockets_and_a_group_of_servers() {
    let (text, left, config) = one("http {\n\
        map $http_upgrade $connection_upgrade { default upgrade; '' close; }\n\
        gzip on; brotli on; upstream app { least_conn; server 127.0.0.1:3000 max_fails=3 fail_timeout=10s; server unix:/run/app.sock weight=2; keepalive 32; }\n\
        server { listen 80 default_server; server_name _; client_max_body_size 20m;\n\
          location / { proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Host $host;\n\
            proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $connection_upgrade;\n\
            proxy_set_header X-Real-IP $remote_addr; proxy_set_header X-Env prod; proxy_read_timeout 300; }\n\
          location /api/ { proxy_pass http://app/v1/; proxy_buffering off; client_max_body_size 1g; }\n\
          location = /health { access_log off; return 200 'ok'; }\n\
          location /static { alias /srv/files; }\n\
          location /old/ { rewrite ^/old/(.*)$ /$1 break; proxy_pass http://app; gzip off; brotli off; error_page 404 /x; }\n\
          location /odd/ { rewrite ^/odd/([0-9]+)$ /n/$1 break; proxy_pass http://app; proxy_send_timeout 5; }\n} }\n");
    has(
        &text,
        &[
            "servers = [\"http://127.0.0.1:3000\", { url = \"unix:/run/app.sock\", weight = 2 }]",
            "passive.failures = 3",
            "keep-connections = 32",
            "path = \"/\"\nupstream = \"app\"\nidle-timeout = \"300s\"\nkeep-host = true",
            "request-headers.set = { X-Env = \"prod\" }\nrequest-headers.client = [\"X-Real-IP\"]",
            "replace-prefix = \"/v1/\"",
            "path = \"/old/\"\ncompression = false\nreplace-prefix = \"/\"\nupstream = \"app\"",
            "buffer-response = false",
            "request-body = \"1GiB\"",
            "path-regex = \"^/health$\"",
            "respond = 200\nrespond-body = \"ok\"\naccess-log = \"off\"",
        ],
    );
    for (place, part) in [
        ("nginx.conf:10", "alias"),
        ("nginx.conf:11", "error_page"),
        ("nginx.conf:12", "rewrite"),
        ("nginx.conf:12", "proxy_send_timeout"),
    ] {
        assert!(
            left.iter().any(|left| left.starts_with(&format!("{place}: ")) && left.contains(part)),
            "{place} {part}: {left:#?}"
        );
    }
    let routes = &config.sites[0].routes;
    assert_eq!(routes.len(), 8, "{text}");
    assert!(matches!(routes[0].origin, Origin::Respond(_)), "an exact path goes first");
    has(&text, &["path-regex = \"^/api$\"\nredirect = \"/api/{query}\"\nredirect-status = 301"]);
    assert!(text.find("/api/").unwrap() < text.find("path = \"/\"").unwrap(), "longer prefixes go first");
}

#[test]
fn rules_of_balancing_and_of_retries() {
    let group = |inside: &str, location: &str| {
        let text = format!(
            "http {{ upstream app {{ {inside} }}\nserver {{ listen 80; server_name a.example;\n\
             location / {{ proxy_pass http://app; {location} }} }} }}\n"
        );
        one(text.leak())
    };
    let servers =
        "server 10.0.0.1:80 weight=3 slow_start=30s max_conns=50; server 10.0.0.2:80 backup; server 10.0.0.3:80 down;";
    let retries = "proxy_next_upstream error timeout http_503 non_idempotent; proxy_next_upstream_tries 3;";
    let (text, left, config) = group(&format!("ip_hash; {servers}"), retries);
    has(
        &text,
        &[
            "servers = [{ url = \"http://10.0.0.1:80\", weight = 3 }, { url = \"http://10.0.0.2:80\", backup = true }]",
            "balance = \"hash client\"",
            "slow-start = \"30s\"",
            "max-connections = 50",
            "retries = 2",
            "retry-statuses = [503, 504]",
        ],
    );
    assert!(left.iter().any(|left| left.contains("non_idempotent")), "{left:#?}");
    assert!(left.iter().any(|left| left.contains("a server that is not used")), "{left:#?}");
    assert_eq!(config.upstreams[0].servers.len(), 2);
    for (inside, setting) in [
        ("least_conn;", ""),
        ("random two least_conn;", "balance = \"power-of-two\""),
        ("hash $cookie_id consistent;", "balance = \"hash cookie id\""),
        ("hash $http_x_user;", "balance = \"hash header x-user\""),
        ("hash $request_uri consistent;", "# The query is no part of the key here.\nbalance = \"hash path\""),
        ("sticky cookie srv expires=1h path=/;", "sticky.cookie = \"srv\"\nsticky.lifetime = \"1h\""),
    ] {
        let (text, left, _) = group(&format!("{inside} server 10.0.0.1;"), "proxy_next_upstream off;");
        assert!(text.contains(setting) && text.contains("retries = \"off\""), "{inside}\n{text}");
        assert_eq!(left, [""; 0], "{inside}");
        assert!(setting.contains("balance") || !text.contains("balance"), "{text}");
    }
    let (_, left, _) = group("hash $host$uri; server 10.0.0.1;", "");
    assert!(left.iter().any(|left| left.contains("a key is the client")), "{left:#?}");
}

/// As Debian has them.
const FASTCGI_PHP: &str = "fastcgi_split_path_info ^(.+?\\.php)(/.*)$;\ntry_files $fastcgi_script_name =404;\n\
    set $path_info $fastcgi_path_info;\nfastcgi_param PATH_INFO $path_info;\nfastcgi_index index.php;\ninclude fastcgi.conf;\n";
const FASTCGI_CONF: &str = "fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;\n\
    fastcgi_param QUERY_STRING $query_string;\nfastcgi_param REQUEST_METHOD $request_method;\n\
    fastcgi_param CONTENT_TYPE $content_type;\nfastcgi_param CONTENT_LENGTH $content_length;\n\
    fastcgi_param SCRIPT_NAME $fastcgi_script_name;\nfastcgi_param REQUEST_URI $request_uri;\n\
    fastcgi_param DOCUMENT_URI $document_uri;\nfastcgi_param DOCUMENT_ROOT $document_root;\n\
    fastcgi_param SERVER_PROTOCOL $server_protocol;\nfastcgi_param REQUEST_SCHEME $scheme;\n\
    fastcgi_param HTTPS $https if_not_empty;\nfastcgi_param GATEWAY_INTERFACE CGI/1.1;\n\
    fastcgi_param SERVER_SOFTWARE nginx/$nginx_version;\nfastcgi_param REMOTE_ADDR $remote_addr;\n\
    fastcgi_param REMOTE_PORT $remote_port;\nfastcgi_param REMOTE_USER $remote_user;\n\
    fastcgi_param SERVER_ADDR $server_addr;\nfastcgi_param SERVER_PORT $server_port;\n\
    fastcgi_param SERVER_NAME $server_name;\nfastcgi_param REDIRECT_STATUS 200;\nfastcgi_param HTTP_HOST $host;\n";

fn fastcgi(config: &Config, route: usize) -> &server::config::FastCgiConfig {
    match &config.sites[0].routes[route].origin {
        Origin::FastCgi(fastcgi) => fastcgi,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_php_application_as_debian_has_it() {
    let (text, left, config) = translated(&[
        (
            "nginx.conf",
            "server {\n  listen 80;\n  server_name blog.example;\n  root /srv/blog;\n  index index.php index.html;\n\
             location / { try_files $uri $uri/ /index.php?$args; }\n\
             location ~ \\.php$ {\n    include snippets/fastcgi-php.conf;\n    fastcgi_pass unix:/run/php/php8.2-fpm.sock;\n  }\n\
             location ~ /\\.ht { deny all; }\n}\n",
        ),
        ("snippets/fastcgi-php.conf", FASTCGI_PHP),
        ("fastcgi.conf", FASTCGI_CONF),
    ]);
    assert_eq!(left, Vec::<String>::new());
    has(
        &text,
        &[
            "fastcgi = \"unix:/run/php/php8.2-fpm.sock\"",
            "deny = [\"0.0.0.0/0\", \"::/0\"]",
            "fallback = \"/index.php\"",
            "index = [\"index.php\", \"index.html\"]",
        ],
    );
    assert_eq!(config.sites[0].routes.len(), 3, "{text}");
    assert_eq!(fastcgi(&config, 0).extensions, ["php"]);
}

#[test]
fn php_elsewhere_and_its_parameters() {
    let (text, left, config) = one("upstream php { server php:9000; }\n\
        server {\n  listen 80;\n  root /srv/www/public;\n  index index.php;\n  client_max_body_size 20m;\n\
        location / { try_files $uri /index.php$is_args$args; }\n\
        location ~ ^/index\\.php(/|$) {\n    fastcgi_pass php;\n    fastcgi_split_path_info ^(.+\\.php)(/.*)$;\n\
          if (!-f $document_root$fastcgi_script_name) { return 404; }\n    fastcgi_param HTTP_PROXY \"\";\n\
          fastcgi_param SCRIPT_FILENAME /var/www/html/public$fastcgi_script_name;\n    fastcgi_param APP_ENV prod;\n\
          fastcgi_param PHP_VALUE \"upload_max_filesize=20M\";\n    fastcgi_param HTTPS on;\n    fastcgi_param X_COUNTRY $geoip_country_code;\n\
          fastcgi_read_timeout 300;\n    fastcgi_connect_timeout 2s;\n    fastcgi_buffers 16 16k; fastcgi_keep_conn on;\n    fastcgi_hide_header X-Powered-By;\n\
          fastcgi_cache APP;\n    internal;\n  }\n}\n");
    has(
        &text,
        &[
            "fastcgi.address = \"php:9000\"",
            "fastcgi.remote-root = \"/var/www/html/public\"",
            "APP_ENV = \"prod\"",
            "fastcgi.timeout = \"300s\"",
            "fastcgi.connect-timeout = \"2s\"",
            "fastcgi.keep-connections = 4",
            "response-headers.remove = [\"X-Powered-By\"]",
            "fallback = \"/index.php\"",
            "fastcgi_buffers",
        ],
    );
    let environment: Vec<_> = fastcgi(&config, 0).environment.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(environment, ["APP_ENV", "HTTPS", "PHP_VALUE"]);
    for (line, reason) in [(17, "has no variables"), (22, "only files and responses of upstreams are cached")] {
        let place = format!("nginx.conf:{line}: ");
        assert!(
            left.iter().any(|left| left.starts_with(&place) && left.contains(reason)),
            "{place}{reason}: {left:#?}"
        );
    }
    assert_eq!(left.len(), 2, "{left:#?}");
}

#[test]
fn php_of_other_shapes() {
    // A query of its own, several applications, and scripts that only the application's machine has.
    let (text, left, config) = one(
        "upstream pool { server 127.0.0.1:9000; server 127.0.0.1:9001; }\nserver {\n  listen 80;\n\
        root /srv/drupal;\n  try_files $uri /index.php?q=$uri&$args;\n  location ~ \\.(php|phtml)$ { fastcgi_pass pool; fastcgi_index start.php; }\n}\n",
    );
    has(
        &text,
        &[
            "fallback = \"/index.php?q={path}{query}\"",
            "fastcgi.address = \"127.0.0.1:9000\"",
            "fastcgi.index = \"start.php\"",
        ],
    );
    assert_eq!(fastcgi(&config, 0).extensions, ["php", "phtml"]);
    assert!(left.len() == 1 && left[0].contains("the others are left out"), "{left:#?}");

    let (text, left, _) = one(
        "server {\n  listen 80;\n  location / { fastcgi_pass app:9000; fastcgi_param SCRIPT_FILENAME /app$fastcgi_script_name; }\n\
        location /a { fastcgi_pass $app; }\n  location /b { fastcgi_pass app; }\n  location /c { scgi_pass app; }\n}\n",
    );
    has(&text, &["fastcgi.remote-root = \"/app\""]);
    for reason in ["variables cannot choose it", "has a port", "SCGI is not spoken"] {
        assert!(left.iter().any(|left| left.contains(reason)), "{reason}: {left:#?}");
    }

    let (_, left, _) = one(
        "server {\n  listen 80;\n  location ~ \\.php$ { fastcgi_pass unix:/run/php.sock; }\n  location = /x { return 204; }\n}\n",
    );
    assert!(left[0].contains("nothing says where the scripts are"), "{left:#?}");

    // Nothing runs the script, so its text is not sent.
    let (text, left, _) = one(
        "server {\n  listen 80;\n  root /srv/www;\n  index index.php index.html;\n  error_page 404 /index.php;\n}\n",
    );
    assert!(!text.contains("index = "), "{text}");
    assert!(left.iter().any(|left| left.contains("its text must not be sent")), "{left:#?}");
    assert!(left.len() == 2 && left.iter().any(|left| left.contains("this is a script")), "{left:#?}");
}

#[test]
fn passwords_addresses_and_limits() {
    let (text, left, config) = one("http {\n  limit_req_zone $binary_remote_addr zone=login:10m rate=5r/m;\n\
        limit_conn_zone $binary_remote_addr zone=addr:10m;\n  limit_req_zone $server_name zone=all:1m rate=100r/s;\n\
        limit_req_zone $binary_remote_addr$http_x_tenant zone=tenant:1m rate=7r/s;\n\
        limit_req_zone $cookie_id zone=cookie:1m rate=8r/s;\n\
        server {\n    listen 192.0.2.1:8080;\n    server_name admin.example;\n    root /srv/admin;\n\
          auth_basic \"The office\";\n    auth_basic_user_file /etc/nginx/htpasswd;\n    satisfy any;\n    allow 10.0.0.0/8;\n    deny all;\n\
          limit_conn addr 20;\n\
          location /login { limit_req zone=login burst=10 nodelay; limit_req zone=all; }\n\
          location /all { limit_req zone=all; limit_conn addr 5; }\n          location /tenant { limit_req zone=tenant; }\n\
          location /cookie { limit_req zone=cookie; }\n\
          location /open/ { auth_basic off; allow all; }\n    location /lan/ { allow 192.168.0.0/16; deny all; }\n } }\n");
    has(
        &text,
        &[
            "file = \"/etc/nginx/htpasswd\"",
            "realm = \"The office\"",
            "satisfy = \"any\"",
            "client = [\"10.0.0.0/8\"]",
            "limit = { at-once = 20 }",
            "limit = { rate = \"5/m\", burst = 11 }",
            "limit = { rate = \"100/s\", burst = 1, by = \"all\" }",
            "limit = { rate = \"7/s\", burst = 1, by = [\"client\", \"header x-tenant\"] }",
            "require = \"off\"",
            "allow = [\"192.168.0.0/16\"]",
            "listen = [\"192.0.2.1:8080\"]",
        ],
    );
    for part in ["zone=all:1m", "limit_conn addr 5", "limit_req zone=all", "`$cookie_id`", "without the field"] {
        assert!(left.iter().any(|left| left.contains(part)), "{part}: {left:#?}");
    }
    assert!(!text.contains("8/s"), "{text}");
    assert!(config.sites[0].access.require.is_some());
}

#[test]
fn redirects_and_rewrites() {
    let (text, left, config) =
        one("server {\n  listen 80;\n  server_name old.example;\n  return 301 https://new.example$request_uri;\n}\n\
        server {\n  listen 80;\n  server_name new.example;\n  root /srv/new;\n\
          rewrite ^/user/([0-9]+)$ /users/$1 last;\n  rewrite ^/feed$ https://feeds.example/all? permanent;\n\
          rewrite ^/(?!static)(.*)$ /index.html last;\n\
          location /download/ { rewrite ^/download/(.*)/media/(.*)\\..*$ /dl/$1/$2.mp3 break; }\n\
          location = /gone { return 410; }\n  location /moved { return 302 /there; }\n\
          if ($http_user_agent ~* bot) { return 403; }\n}\n");
    has(
        &text,
        &[
            "redirect = \"https://new.example{uri}\"",
            "redirect-status = 301",
            "rewrite = \"/users/{1}{query}\"",
            "redirect = \"https://feeds.example/all\"",
            "respond = 410",
            "redirect = \"/there\"",
            "rewrite = \"/dl/{1}/{2}.mp3{query}\"",
            "path-regex = \"^/(.*)$\"\nunless = { path-regex = \"^/(?:static)\" }\nrewrite = \"/index.html{query}\"",
        ],
    );
    assert!(
        text.find("regex = \"(?i)bot\"").unwrap() < text.find("respond = 410").unwrap(),
        "before all locations: {text}"
    );
    assert_eq!((left.len(), config.sites.len()), (0, 2), "{left:#?}");
}

#[test]
fn a_mirror_that_lists_its_folders() {
    let (text, _, config) = one(
        "server {\n  listen 80 default_server;\n  root /srv/mirror;\n  autoindex on;\n  autoindex_exact_size off;\n\
        location /iso/ { limit_rate 1m; }\n  location /incoming/ { autoindex off; }\n  location ~ ^/debian/dists/ { add_header Cache-Control no-cache; }\n}\n",
    );
    has(&text, &["listing = true", "files = true\nlisting = false", "expires = \"no-cache\"", "limit_rate 1m"]);
    assert!(config.sites[0].files.listing);
}

#[test]
fn logs_of_sites_locations_and_receivers() {
    let (text, left, config) = one("error_log /var/log/nginx/error.log info;\nhttp {\n\
        log_format main '$remote_addr \"$request\"';\n  log_format api escape=json '{}';\n\
        access_log /var/log/nginx/access.log main buffer=32k;\n\
        server { listen 80; server_name a.example; root /srv/a;\n    access_log /var/log/nginx/a.log; error_log /var/log/nginx/a-error.log;\n\
          location /img/ { access_log off; log_not_found off; location ~ \\.png$ { expires 1h; } }\n\
          location /api/ { proxy_pass http://127.0.0.1:1; access_log /var/log/nginx/api.json api; access_log syslog:server=10.0.0.1; }\n  }\n\
        server { listen 80; server_name b.example; root /srv/b;\n    access_log syslog:server=10.0.0.1:5514,facility=local3,tag=web combined if=$loggable; }\n\
        server { listen 80; server_name c.example; root /srv/c; access_log /var/log/nginx/$host.log; }\n\
        server { listen 80; server_name d.example; root /srv/d; access_log /var/log/nginx/access.log; }\n}\n");
    has(
        &text,
        &[
            "[access-log]\ntarget = \"/var/log/nginx/access.log\"",
            "[error-log]\ntarget = \"/var/log/nginx/error.log\"",
            "access-log = \"/var/log/nginx/a.log\"",
            "access-log = { target = \"/var/log/nginx/api.json\", format = \"json\" }",
            "access-log = \"syslog:server=10.0.0.1:5514,facility=local3,tag=web,rfc=3164\"",
        ],
    );
    for (place, part) in [
        ("nginx.conf:1", "--log info"),
        ("nginx.conf:7", "one log of messages"),
        ("nginx.conf:9", "logged once"),
        ("nginx.conf:12", "no conditions"),
        ("nginx.conf:13", "no variables"),
    ] {
        let is_there = |left: &String| left.starts_with(&format!("{place}: ")) && left.contains(part);
        assert!(left.iter().any(is_there), "{place} {part}: {left:#?}");
    }
    let off = config.sites[0].routes.iter().filter(|route| route.access_log == LogChoice::Off).count();
    assert_eq!(off, 2, "a location in a location has its log: {text}");
    assert_eq!(config.sites[3].access_log, LogChoice::Outer);
}

#[test]
fn how_long_caches_keep_responses() {
    let (text, left, config) = one(
        "http {\n  map $sent_http_content_type $by_type { default off; text/html epoch; text/css max; ~image/ 30d; ~*font 1d; }\n\
        server { listen 80; server_name a.example; root /srv/a;\n    expires $by_type;\n\
          location /assets/ { expires 1y; add_header Cache-Control \"public, immutable\"; autoindex on; location /assets/raw/ { } }\n\
          location /app/ { proxy_pass http://127.0.0.1:1; }\n    location /api/ { proxy_pass http://127.0.0.1:1; expires off; }\n\
          location /own/ { add_header Cache-Control \"no-store\"; }\n\
          location /modified/ { expires modified +1h30m; }\n  }\n}\n",
    );
    has(
        &text,
        &[
            "expires = { default = \"off\", \"text/html\" = \"no-cache\", \"text/css\" = \"max\", \"image/*\" = \"30d\" }",
            "expires = \"365d, public, immutable\"",
            "expires-override = true",
            "expires = \"off\"",
            "Cache-Control = \"no-store\"",
            "expires = \"90m\"",
            "path = \"/assets/raw/\"\nfiles = true\nlisting = true\nexpires = \"365d, public, immutable\"",
        ],
    );
    assert_eq!(text.matches("listing = true").count(), 2, "{text}");
    assert!(left.iter().any(|left| left.contains("~*font") && left.contains("image/*")), "{left:#?}");
    assert!(left.iter().any(|left| left.contains("modified") && left.contains("not from the change")), "{left:#?}");
    assert!(config.sites[0].expires.is_some());
}

#[test]
fn errors_have_files_and_texts_without_a_root_too_and_an_origin_keeps_its_own() {
    let (text, left, config) = one("server {\n  listen 8080;\n  location / { proxy_pass http://backend:5000; }\n\
        location /old/ { proxy_pass http://backend:5000; proxy_intercept_errors on; }\n\
        error_page 500 502 /50x.html;\n  location = /50x.html { root /usr/share/nginx/html; internal; }\n\
        error_page 503 @closed;\n  location @closed { root /srv/www; rewrite ^ /503.json break; }\n\
        error_page 404 @none;\n  location @none { return 404 'Nothing here'; }\n\
        error_page 403 @app;\n  location @app { proxy_pass http://backend:5000; }\n}\n");
    has(
        &text,
        &[
            "500 = \"file:/usr/share/nginx/html/50x.html\"",
            "502 = \"file:/usr/share/nginx/html/50x.html\"",
            "503 = \"file:/srv/www/503.json\"",
            "404 = \"text:Nothing here\"",
            "path = \"/\"\nupstream = \"backend-5000\"\nkeep-host = false\nerror-pages = false\n",
        ],
    );
    assert_eq!(text.matches("error-pages = false").count(), 2, "{text}");
    assert!(left.iter().any(|left| left.contains("error_page 403")) && left.len() == 1, "{left:#?}");
    assert_eq!(config.sites[0].error_pages.len(), 4);
}

#[test]
fn a_location_with_a_name_is_a_route_that_no_client_asks_for() {
    let (text, left, config) = one("server {\n  listen 8080;\n  root /srv/static;\n\
        location / { try_files $uri $uri/ @app; }\n  location /media/ { error_page 404 = @app; }\n\
        location @app { proxy_pass http://127.0.0.1:8000; proxy_set_header Host $host; }\n\
        location /private/ { internal; }\n  location @lost { try_files /a /b; }\n}\n");
    has(
        &text,
        &[
            "path = \"/@app/\"\ninternal = true\nreplace-prefix = \"/\"\nupstream = \"127.0.0.1-8000\"\nkeep-host = true\n",
            "path = \"/\"\nfiles = true\nfallback = \"/@app{path}\"\n",
            "path = \"/media/\"\nfiles = true\nfallback = \"/@app{path}\"\n",
            "path = \"/private/\"\nfiles = true\ninternal = true\n",
        ],
    );
    assert!(left.len() == 1 && left[0].contains("@lost"), "{left:#?}");
    assert!(config.sites[0].routes.iter().filter(|route| route.internal).count() == 2);
}

#[test]
fn a_host_that_is_sent_elsewhere_has_a_site_of_its_own() {
    let (text, left, config) =
        one("server {\n  listen 443 ssl;\n  server_name example.org www.example.org;\n  root /srv/www;\n\
        ssl_certificate a.pem;\n  ssl_certificate_key a.key;\n\
        if ($host = www.example.org) { return 301 https://example.org$request_uri; }\n}\n\
        server {\n  listen 443 ssl;\n  server_name shop.example old.example older.example;\n  root /srv/shop;\n\
        ssl_certificate a.pem;\n  ssl_certificate_key a.key;\n\
        if ($host != 'shop.example') { return 302 https://shop.example$request_uri; }\n\
        if ($host = none.example) { return 404; }\n  if ($http_user_agent ~* bot) { return 403; }\n}\n");
    has(
        &text,
        &[
            "names = [\"example.org\"]\nroot = \"/srv/www\"",
            "names = [\"www.example.org\"]\ntls-cert = \"a.pem\"\ntls-key = \"a.key\"\n",
            "path = \"/\"\nredirect = \"https://example.org{uri}\"\nredirect-status = 301\n",
            "names = [\"shop.example\"]\nroot = \"/srv/shop\"",
            "names = [\"old.example\", \"older.example\"]\n",
        ],
    );
    assert_eq!(left.len(), 1, "{left:#?}");
    assert!(left[0].contains("none.example"), "{left:#?}");
    assert_eq!(config.sites.len(), 4);
}

#[test]
fn an_application_of_one_page() {
    let (text, left, config) = one(
        "server {\n  listen 8080;\n  location / {\n    root /usr/share/nginx/html;\n    index index.html index.htm;\n    try_files $uri $uri/ /index.html;\n  }\n\
        location /api { proxy_pass http://backend:5000; }\n  error_page 500 502 503 504 /50x.html;\n  location = /50x.html { root /usr/share/nginx/html; }\n}\n",
    );
    has(
        &text,
        &[
            "root = \"/usr/share/nginx/html\"",
            "try-files = [\"/index.html\"]",
            "servers = [\"http://backend:5000\"]",
            "path = \"/api\"",
            "error-pages = { 500 = \"/50x.html\"",
        ],
    );
    assert_eq!(left, Vec::<String>::new());
    assert_eq!(config.listen[0].address.port(), 8080);
}

#[test]
fn grpc_and_client_certificates() {
    let (text, _, config) = one("server {\n  listen 443 ssl http2;\n  server_name grpc.example;\n\
        ssl_certificate a.pem;\n  ssl_certificate_key a.key;\n  ssl_stapling on;\n  ssl_stapling_file a.ocsp;\n  ssl_client_certificate ca.pem;\n  ssl_verify_client on;\n\
        location / { grpc_pass grpc://127.0.0.1:50051; }\n  location /web/ { proxy_pass https://web.internal; }\n}\n");
    has(
        &text,
        &[
            "servers = [\"h2c://127.0.0.1:50051\"]",
            "buffer-request = false",
            "client-ca = \"ca.pem\"",
            "ocsp-response = \"a.ocsp\"",
            "require = { certificate = true }",
            "`tls-verify = false` turns that off",
        ],
    );
    assert_eq!(config.upstreams.len(), 2);
}

#[test]
fn several_sites_of_which_one_answers_for_all_other_names() {
    let (text, left, config) = one("http { server { listen 80; server_name a.example; root /srv/a; }\n\
        server { listen 80 default_server; return 444; }\n\
        server { listen 80; server_name .b.example ~^www\\d+\\.c\\.example$; root /srv/b; }\n\
        server { listen 8080; server_name a.example; root /srv/other; } }\n");
    assert!(left.iter().any(|left| left.contains("return 444")), "{left:#?}");
    assert_eq!(config.sites[0].names, Vec::<String>::new(), "{text}");
    assert!(
        left.iter().any(|left| left.starts_with("nginx.conf:4: `server`") && left.contains("one site")),
        "{left:#?}"
    );
    assert!(left.iter().any(|left| left.contains("~^www")), "{left:#?}");
    has(&text, &["names = [\"b.example\", \"*.b.example\"]", "listen = [\":80\", \":8080\"]"]);
    assert!(config.sites.iter().any(|site| site.names == ["a.example"]));
}

#[test]
fn lua_streams_and_modules_are_named() {
    let (text, left, _) = one("load_module modules/ngx_http_lua_module.so;\nstream { server { listen 5432; } }\n\
        http { server { listen 80; root /srv;\n  location /lua { content_by_lua_block { ngx.say(\"a } b\") } }\n} }\n"
        .replace("a } b", "ab")
        .leak());
    for part in ["there are no modules", "only HTTP is spoken", "there is no Lua"] {
        assert!(left.iter().any(|left| left.contains(part)), "{part}: {left:#?}");
    }
    has(&text, &["root = \"/srv\""]);
}

#[test]
fn what_is_no_configuration_is_told_with_its_place() {
    for (text, place, part) in [
        ("http {\n  server {\n", "nginx.conf:3", "a `}` is missing"),
        ("http {\n  listen 80\n}\n", "nginx.conf:2", "`listen` has no end"),
        ("}\n", "nginx.conf:1", "closes no block"),
        ("a \"b\n", "nginx.conf:1", "this quote has no end"),
        ("include nginx.conf;\n", "nginx.conf:1", "nested too deep"),
        ("\n\ninclude missing.conf;\n", "nginx.conf:3", "missing.conf does not exist"),
    ] {
        let error = import::nginx("nginx.conf", &Texts(vec![("nginx.conf", text)])).unwrap_err().to_string();
        assert!(error.starts_with(place) && error.contains(part), "{text:?}: {error}");
    }
}

#[test]
fn a_server_for_single_sign_on_is_asked() {
    let (text, left, config) = one("http { server { listen 80; server_name app.example;\n\
         auth_request /verify; auth_request_set $user $upstream_http_remote_user;\n\
         location / { proxy_pass http://127.0.0.1:3000; proxy_set_header Remote-User $user; proxy_set_header X-Other $user; }\n\
         location /public/ { auth_request off; proxy_pass http://127.0.0.1:3000; }\n\
         location = /verify { internal; proxy_pass http://127.0.0.1:9091/api/verify; proxy_pass_request_body off;\n\
           proxy_set_header Content-Length \"\"; proxy_set_header X-Original-URL $scheme://$http_host$request_uri; }\n\
         } }\n");
    let site = &config.sites[0];
    let auth = site.access.forward_auth.as_ref().unwrap();
    assert_eq!(config.upstreams[auth.upstream].name, "127.0.0.1-9091", "{text}");
    assert_eq!((auth.path.as_str(), auth.copy.len()), ("/api/verify", 0), "{text}");
    assert_eq!(site.routes.len(), 3, "the location that is asked is no route: {text}");
    assert!(site.routes[..2].iter().all(|route| route.access.forward_auth.is_none()), "{text}");
    assert_eq!(site.routes[2].access.forward_auth.as_ref().unwrap().copy, ["remote-user"], "{text}");
    assert!(left.iter().any(|line| line.contains("X-Original-URL") && line.contains("`-Uri`")), "{left:?}");
    assert!(left.iter().any(|line| line.contains("X-Other")), "{left:?}");
}

#[test]
fn a_file_that_closes_a_site() {
    let (text, left, config) =
        one("server { listen 80; root /srv/a; if (-f /run/closed) { return 503; } location / { } }\n\
        server { listen 80; server_name b.example; root /srv/b; if (-f $document_root/closed) { return 503; } }\n");
    assert_eq!(config.sites[0].maintenance.as_ref().unwrap().file, Path::new("/run/closed"), "{text}");
    assert!(config.sites[1].maintenance.is_none(), "{text}");
    assert_eq!(left.len(), 1, "{left:?}");
    assert!(left[0].contains("$document_root/closed"), "{left:?}");
}

fn routes(config: &Config, path: &str) -> Vec<String> {
    let of_path = config.sites[0].routes.iter().filter(|route| route.pattern.as_str() == path);
    of_path.map(|route| format!("{} {}", route.filter, matches!(route.origin, Origin::Respond(_)))).collect()
}

#[test]
fn conditions_of_nginx_become_routes_for_some_requests() {
    let (text, left, config) = one("http {\n\
        map $http_user_agent $bad { default 0; ~*scraper 1; '' 1; }\n\
        map $uri $new { /old /new; ~^/p/(\\d+)$ /posts/$1; }\n\
        geo $office { default 0; 10.0.0.0/8 1; }\n\
        server { listen 80; root /srv;\n\
          if ($bad) { return 403; }\n\
          if ($new) { return 301 $new; }\n\
          if ($request_method !~ ^(GET|HEAD|POST)$) { return 405; }\n\
          if ($http_cookie_x = 1) { rewrite ^/beta/(.*)$ /b/$1 last; }\n\
          location /admin/ { if ($office = 0) { return 403; } }\n\
          location /api/ { limit_except GET { deny all; } proxy_pass http://127.0.0.1:3000; }\n\
          location / { }\n} }\n");
    has(
        &text,
        &[
            "header = { user-agent = { regex = \"(?i)scraper\" } }\nrespond = 403",
            "unless = { header = { user-agent = { regex = \".\" } } }\nrespond = 403",
            "path-regex = \"^/old$\"\nredirect = \"/new\"\nredirect-status = 301",
            "redirect = \"/posts/{1}\"",
            "unless = { method = [\"GET\", \"HEAD\", \"POST\"] }\nrespond = 405",
            "rewrite = \"/b/{1}{query}\"",
            "path = \"/admin/\"\nunless = { client = [\"10.0.0.0/8\"] }\nrespond = 403",
            "path = \"/api/\"\nunless = { method = [\"GET\", \"HEAD\"] }\nrespond = 403",
        ],
    );
    assert_eq!(routes(&config, "/admin/"), ["unless client 10.0.0.0/8 true", " false"], "{text}");
    assert_eq!(left, Vec::<String>::new(), "{text}");
    assert!(config.sites[0].maintenance.is_none());
}

#[test]
fn what_a_guard_without_a_counterpart_guards_is_closed() {
    let closed = |inside: &str| {
        let text = format!(
            "http {{ map $http_a$http_b $both {{ default 1; }}\nserver {{ listen 80; root /srv;\n{inside}\n}} }}\n"
        );
        one(text.leak())
    };
    for inside in [
        "location /private/ { if ($both) { return 403; } }",
        "location /private/ { if ($invalid_referer) { return 403; } proxy_pass http://127.0.0.1:3000; }",
        "location /private/ { access_by_lua_block { x } }",
        "location /private/ { alias /srv/elsewhere/; deny all; }",
        "location /private/ { auth_basic Staff; auth_basic_user_file /etc/htpasswd; root /elsewhere; }",
        "location /private/ { auth_request /nowhere; }",
        "location /private/ { limit_except GET { allow 10.0.0.0/8; deny all; } }",
        "location /private/ { auth_jwt realm; }",
    ] {
        let (text, left, config) = closed(inside);
        assert_eq!(routes(&config, "/private/"), [" true"], "{inside}\n{text}");
        has(&text, &["# CLOSED: nginx guards it", "respond = 403"]);
        assert!(left.iter().any(|left| left.starts_with("nginx.conf:3: ") && left.contains("CLOSED")), "{left:?}");
    }
    for inside in [
        "if ($both) { return 403; } location /a/ { }",
        "location ~ ^/(.)\\1/ { deny all; }",
        "auth_request /nowhere; location /a/ { }",
        "access_by_lua_file guard.lua;",
    ] {
        let (text, left, config) = closed(inside);
        let file = config.sites[0].maintenance.as_ref().map(|maintenance| maintenance.file.clone());
        assert_eq!(file.as_deref(), Some(Path::new("/")), "the whole site: {inside}\n{text}");
        assert!(left.iter().any(|left| left.contains("CLOSED")), "{left:?}");
    }
    let (text, left, config) = closed("location /a/ { if ($both) { return 301 /b; } } location /c/ { deny all; }");
    assert!(!text.contains("CLOSED") && !left.is_empty(), "a redirect guards nothing: {text}");
    assert_eq!(routes(&config, "/c/"), [" false"], "{text}");
}

#[test]
fn a_map_chooses_the_server() {
    let (text, left, config) = one("http {\n\
        map $cookie_canary $backend { default stable; yes canary; ~^v3 next; }\n\
        upstream stable { server 10.0.0.1:80; } upstream canary { server 10.0.0.2:80; } upstream next { server 10.0.0.3:80; }\n\
        server { listen 80; location / { proxy_pass http://$backend; proxy_read_timeout 9s; client_max_body_size 2m; }\n\
          location /staff/ { auth_request /nowhere; proxy_pass http://$backend/a/; } } }\n");
    let of = |path: &str| {
        let of_path = config.sites[0].routes.iter().filter(|route| route.pattern.as_str() == path);
        let to = |origin: &Origin| match origin {
            Origin::Upstream { upstream, .. } => config.upstreams[*upstream].name.clone(),
            _ => "closed".to_owned(),
        };
        of_path.map(|route| format!("{}: {}", route.filter, to(&route.origin))).collect::<Vec<_>>()
    };
    let expected = ["cookie canary /(?i:^(?:yes)$)/: canary", "cookie canary /^v3/: next", ": stable"];
    assert_eq!(of("/"), expected, "{text}");
    assert_eq!(of("/staff/"), [": closed"], "{text}");
    assert!(config.sites[0].routes.iter().filter(|route| route.request_body_bytes.is_some()).count() == 3, "{text}");
    assert!(!left.iter().any(|left| left.contains("map")), "{left:?}");
    let (_, left, _) = one("http { map $cookie_a $b { default x; '' y; }\nupstream x { server 10.0.0.1:80; }\n\
        server { listen 80; root /srv; location /a/ { proxy_pass http://$b; } } }\n");
    assert!(left.iter().any(|left| left.contains("proxy_pass http://$b")), "{left:?}");
}

#[test]
fn a_location_in_a_location_has_its_guards() {
    let (text, _, config) = one("server { listen 80; root /srv;\n\
        location /staff/ { allow 10.0.0.0/8; deny all; location /staff/files/ { autoindex on; } } }\n");
    let route = config.sites[0].routes.iter().find(|route| route.pattern.as_str() == "/staff/files/");
    let access = &route.unwrap_or_else(|| panic!("{text}")).access;
    assert!(!access.addresses.is_empty(), "{text}");
}

#[test]
fn applications_behind_uwsgi_are_routes() {
    let (text, left, config) = one(
        "upstream shop { server unix:/run/shop.sock; }\nserver {\n  listen 80;\n  uwsgi_param QUERY_STRING $query_string;\n\
        uwsgi_param PATH_INFO $document_uri;\n  uwsgi_param UWSGI_SCRIPT shop;\n  uwsgi_param X_CITY $city;\n\
        location / { uwsgi_pass uwsgi://127.0.0.1:3031; uwsgi_read_timeout 5m; uwsgi_modifier1 30; uwsgi_buffers 8 8k; }\n\
        location /shop/ { uwsgi_pass shop; }\n  location /tls/ { uwsgi_pass suwsgi://127.0.0.1:1; }\n}\n",
    );
    has(&text, &["uwsgi.address = \"127.0.0.1:3031\"", "uwsgi.modifier = 30", "uwsgi.timeout = \"5m\""]);
    has(&text, &["uwsgi.address = \"unix:/run/shop.sock\"", "uwsgi.environment = { UWSGI_SCRIPT = \"shop\" }"]);
    assert!(left.iter().any(|left| left.contains("no variables")), "{left:#?}");
    assert!(left.iter().any(|left| left.contains("without TLS")), "{left:#?}");
    // A location whose application has no counterpart is closed, not answered by another route.
    has(&text, &["path = \"/tls/\"\nrespond = 403"]);
    assert_eq!(config.sites[0].routes.len(), 4);
}
