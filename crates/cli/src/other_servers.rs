//! Words that other servers have for settings and flags, and the Serpent setting to use instead.

/// The meaning of a word of another server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instead {
    /// A setting of another name.
    Setting(&'static str),
    /// There is none; this is another way to the same end.
    NotSupported(&'static str),
}

use Instead::{NotSupported, Setting};

/// The setting that a word of nginx, Caddy, HAProxy or Apache httpd stands for.
pub fn setting(name: &str) -> Option<Instead> {
    let name = name.to_lowercase().replace('_', "-");
    SETTINGS.iter().find(|(words, _)| words.contains(&&*name)).map(|(_, instead)| *instead)
}

/// The setting of a table that a plausible name stands for there. In other tables the name may be a setting.
pub fn setting_in(place: &str, name: &str) -> Option<&'static str> {
    let table = place.strip_prefix("in ")?;
    IN_TABLES.iter().find(|(known, words, _)| *known == table && words.contains(&name)).map(|(.., setting)| *setting)
}

const IN_TABLES: &[(&str, &[&str], &str)] = &[
    ("`[[site]]`", &["host", "hosts"], "names"),
    ("`[[site]]`", &["path", "dir", "directory"], "root"),
    ("`[[site.route]]`", &["match", "prefix", "url"], "path"),
    ("`[[upstream]]`", &["url", "urls", "host", "address", "to"], "servers"),
    ("`[[upstream]]`", &["health", "health-check", "healthcheck", "check", "probe"], "active"),
    ("`[[class]]`", &["window", "maxconn", "max-running", "concurrency"], "slots"),
    ("`[admission]`", &["policy", "scheduler", "algorithm"], "share"),
    ("`[access-log]`", &["file", "path"], "target"),
    ("`[error-log]`", &["file", "path"], "target"),
    ("`[cluster]`", &["url", "address", "host", "redis", "valkey"], "store"),
    ("`[cluster]`", &["name", "id"], "site"),
    ("`[cluster]`", &["password", "user", "username", "port", "auth"], "store"),
    ("`[uplink]`", &["bandwidth", "speed", "limit", "capacity"], "rate"),
    ("`[acme]`", &["email", "e-mail", "mail"], "contact"),
    ("`[[rule]]`", &["ip", "address", "remote-addr", "network", "src", "from"], "client"),
    ("`[[rule]]`", &["url", "uri", "prefix", "match", "location"], "path"),
    ("`[compression]` and `[site.compression]`", &["gzip", "brotli", "br", "zstd", "encodings", "enabled"], "codings"),
    ("a server of an upstream", &["address", "addr", "host", "server"], "url"),
    ("`active` of an upstream", &["interval", "period"], "every"),
    ("`active` of an upstream", &["url", "uri", "target"], "path"),
    ("`[[upstream]]`", &["timeout", "read-timeout", "response-timeout", "proxy-read-timeout"], "idle-timeout"),
    ("`[[upstream]]`", &["keepalive", "keep-alive", "pool", "connections"], "keep-connections"),
    ("`[[upstream]]`", &["insecure", "skip-verify", "tls-insecure-skip-verify", "verify", "ssl-verify"], "tls-verify"),
    ("`[shared-cache]`", &["folder", "path", "dir", "file", "root"], "directory"),
    ("`[shared-cache]`", &["size", "max-size"], "memory"),
    ("`cache` of a route", &["ttl", "max-age", "valid", "expires", "duration", "time"], "lifetime"),
    ("`[tracing]`", &["target", "url", "to", "collector", "address", "exporter"], "endpoint"),
    ("`[tracing]`", &["ratio", "rate", "sampling", "sampler"], "sample"),
    ("`[[upstream]]`", &["algorithm", "policy", "strategy", "method"], "balance"),
];

/// The flag of `serpent serve` that a flag of another server stands for.
pub fn flag(name: &str) -> Option<&'static str> {
    FLAGS.iter().find(|(words, _)| words.contains(&name)).map(|(_, tip)| *tip)
}

/// The command line that a command, or a flag in its place, of another server stands for.
pub fn command(name: &str) -> Option<&'static str> {
    COMMANDS.iter().find(|(words, _)| words.contains(&name)).map(|(_, tip)| *tip)
}

/// Words of other servers, none of which is a setting here.
pub const SETTINGS: &[(&[&str], Instead)] = &[
    (&["redirects", "redir", "return"], Setting("`redirect` of a `[[site.route]]`")),
    (
        &["alias"],
        NotSupported("name the path in a `[[site.route]]` with `rewrite`, or let an upstream or a program answer"),
    ),
    (&["rewrites"], Setting("`rewrite` of a `[[site.route]]`")),
    (
        &["auth", "auth-basic", "auth-basic-user-file", "basicauth", "basic-auth", "htpasswd", "password"],
        Setting("`require` of a `[[site]]` or a `[[site.route]]`, and `[users]`"),
    ),
    (&["auth-request"], Setting("`forward-auth` of a `[[site]]` or a `[[site.route]]`")),
    (
        &["block", "whitelist", "blacklist", "allowlist", "denylist"],
        Setting("`allow` and `deny` of a `[[site]]` or a `[[site.route]]`"),
    ),
    (
        &["limit-req", "limit-conn", "rate-limit", "ratelimit", "throttle"],
        Setting("`limit` of a `[[site]]` or a `[[site.route]]`"),
    ),
    (&["limit-rate"], Setting("`bytes` in `limit` of a `[[site]]` or a `[[site.route]]`")),
    (
        &["gzip", "brotli", "zstd", "compress", "encode"],
        Setting("`codings = [\"zstd\", \"br\", \"gzip\"]` in `[compression]`"),
    ),
    (&["fastcgi-pass", "php-fastcgi", "php"], Setting("`fastcgi` of a `[[site.route]]`")),
    (&["uwsgi-pass"], Setting("`uwsgi` of a `[[site.route]]`")),
    (
        &["scgi-pass"],
        NotSupported(
            "pass requests to a server that speaks HTTP, FastCGI or uwsgi, or run programs by `cgi` of a route",
        ),
    ),
    (
        &["proxy-cache", "proxy-cache-path", "proxy-cache-valid", "http-cache"],
        Setting("`cache` of a `[[site.route]]`, and `[shared-cache]`"),
    ),
    (&["trace", "traces", "otel", "otlp", "opentelemetry", "jaeger", "zipkin"], Setting("`[tracing]`")),
    (&["redis", "valkey", "sentinel", "gateways"], Setting("`store` and `site` in `[cluster]`")),
    (&["dns", "nameserver", "nameservers", "resolvers"], Setting("`resolver` at the top of the file")),
    (&["sticky-cookie", "session-affinity", "affinity"], Setting("`sticky` of an `[[upstream]]`")),
    (&["proxy-next-upstream", "retry", "max-fails"], Setting("`retries` of an `[[upstream]]`")),
    (&["letsencrypt", "lets-encrypt", "certbot", "auto-https"], Setting("`acme = true` of a `[[site]]`")),
    (
        &["lb-policy", "load-balancing", "least-conn", "ip-hash", "round-robin"],
        Setting("`balance` of an `[[upstream]]`"),
    ),
    (&["error-page", "errorfile", "handle-errors"], Setting("`error-pages` of a `[[site]]`")),
    (&["include", "import"], NotSupported("put everything into one file")),
    (&["group", "daemon", "pid", "chroot"], NotSupported("let the service manager see to it (systemd: `User=`)")),
    (
        &["http3", "quic", "stream", "tcp", "mail"],
        NotSupported("HTTP/1.1 and HTTP/2 over TCP are spoken, nothing else"),
    ),
    (&["websocket", "websockets", "http2"], NotSupported("leave it out: WebSockets and HTTP/2 need no setting")),
    (&["server", "vhost", "virtualhost"], Setting("a `[[site]]`")),
    (
        &["server-name", "server-names", "server-alias", "hostname", "domain", "domains"],
        Setting("`names` of a `[[site]]`"),
    ),
    (&["bind", "port"], Setting("`listen` at the top of the file, as in `listen = [\":80\"]`")),
    (&["document-root", "docroot"], Setting("`root` of a `[[site]]`")),
    (&["file-server", "static"], Setting("`root` of a `[[site]]`, and `files = true` of a route")),
    (&["tls", "ssl", "https"], Setting("`tls-cert` and `tls-key` of a `[[site]]`")),
    (&["ssl-certificate", "ssl-cert", "cert"], Setting("`tls-cert` of a `[[site]]`")),
    (&["ssl-certificate-key", "ssl-key", "private-key"], Setting("`tls-key` of a `[[site]]`")),
    (&["ssl-client-certificate", "client-auth", "mtls"], Setting("`client-ca` of a `[[site]]`")),
    (&["location", "locations", "handle", "handle-path", "routes"], Setting("a `[[site.route]]`")),
    (
        &["proxy-pass", "reverse-proxy", "proxy", "backend", "backends", "default-backend", "use-backend"],
        Setting("`upstream` of a `[[site.route]]`, and an `[[upstream]]` with `servers`"),
    ),
    (&["acl"], Setting("a `[[rule]]`")),
    (
        &["autoindex", "browse", "directory-listing"],
        Setting("`listing = true` in `[files]`, or of a `[[site.route]]` with files"),
    ),
    (&["add-header", "headers", "header-down", "http-response"], Setting("`response-headers` of a `[[site.route]]`")),
    (&["proxy-set-header", "header-up", "http-request"], Setting("`request-headers` of a `[[site.route]]`")),
    (
        &["expires-by-type", "expires-default", "expires-active"],
        Setting("`expires` of a `[[site]]` or a `[[site.route]]`"),
    ),
    (&["client-max-body-size", "max-body-size", "body-limit"], Setting("`request-body` in `[limits]`")),
    (&["maxconn", "worker-connections"], Setting("`connections` in `[limits]`, or `slots` in `[admission]`")),
    (
        &["keepalive-timeout", "client-header-timeout", "client-body-timeout", "send-timeout", "timeouts"],
        Setting("`idle-timeout`, `head-timeout` and `write-timeout` in `[limits]`"),
    ),
    (
        &["proxy-connect-timeout", "proxy-read-timeout", "proxy-send-timeout"],
        Setting("`connect-timeout` and `idle-timeout` of an `[[upstream]]`"),
    ),
    (&["worker-processes", "nbthread", "threads"], Setting("`workers` at the top of the file")),
    (&["health-check", "health-checks", "healthcheck", "check"], Setting("`active` of an `[[upstream]]`")),
    (&["log", "logs", "log-format"], Setting("`[access-log]`")),
    (&["log-level"], Setting("the flag `--log`")),
    (&["frontend"], Setting("`listen` at the top of the file, and a `[[site]]`")),
    (&["global", "defaults", "events", "http"], Setting("the top of the file, and `[limits]`")),
];

const COMMANDS: &[(&[&str], &str)] = &[
    (
        &["start", "run", "up", "http", "file-server", "-p", "--port", "-l", "--listen", "--root", "--bind"],
        "'serpent serve DIR --listen :80' serves a directory on port 80",
    ),
    (
        &["proxy", "reverse-proxy", "gateway", "--upstream"],
        "'serpent serve --upstream http://127.0.0.1:3000' passes requests on",
    ),
    (&["-c", "--config", "-f", "--conf"], "'serpent serve --config FILE' serves what a file says"),
    (
        &["-t", "-T", "--test", "test", "configtest", "validate", "lint", "--check"],
        "'serpent check FILE' says what is wrong with a file, and where",
    ),
    (
        &["-s", "reload", "restart", "stop", "quit", "status"],
        "'kill -HUP PID' has a running server read its file anew, 'kill PID' stops it after the last response",
    ),
    (&["adapt", "convert", "migrate"], "'serpent import FILE' translates nginx.conf, Caddyfiles and haproxy.cfg"),
    (&["version", "-v", "--v"], "'serpent --version' says which version this is"),
];

const FLAGS: &[(&[&str], &str)] = &[
    (&["-t", "--test", "--check", "--dry-run"], "'serpent check FILE' says what is wrong with a file, and where"),
    (&["-f", "--conf", "--config-file"], "the file is given by '--config FILE'"),
    (
        &["--tls", "--ssl", "--https"],
        "'--listen https://:443 --tls-cert FILE --tls-key FILE' speaks TLS; in a file a site can have 'acme = true'",
    ),
    (
        &["--domain", "--domains", "--server-name", "--name", "--vhost"],
        "names of sites stand in a file: 'names' of '[[site]]'",
    ),
    (&["--browse", "--autoindex", "--list", "--index"], "'--listing' lists directories that have no index file"),
    (&["--gzip", "-g", "--compress", "--brotli"], "a file has it: 'codings' in '[compression]'"),
    (&["--spa", "--single", "-s", "--fallback", "--try-files"], "a file has it: 'try-files' of '[[site.route]]'"),
    (&["--cors"], "a file has it: 'cors' of '[[site]]'"),
    (&["--user", "--group", "-u"], "let the service manager see to it (systemd: 'User=')"),
    (
        &["--port", "-p", "-P", "--bind", "-b", "--address", "--addr", "-a", "--host", "--ip", "--interface"],
        "'--listen :80' listens on port 80 of all addresses, '--listen 127.0.0.1:80' on that of one",
    ),
    (
        &["--root", "-r", "--dir", "-d", "--directory", "--path", "--folder", "--document-root"],
        "the directory is given without a flag, as in 'serpent serve ./public'",
    ),
    (
        &["--proxy", "--backend", "--reverse-proxy", "--to", "--target", "--forward"],
        "'--upstream http://127.0.0.1:3000' passes requests on",
    ),
    (&["--cert", "--certificate", "--ssl-cert"], "the certificate is given by '--tls-cert FILE'"),
    (&["--key", "--ssl-key"], "the private key is given by '--tls-key FILE'"),
    (&["--rate", "--bandwidth", "--limit-rate"], "'--uplink 10mbit' gives the rate of the uplink"),
    (&["--threads", "--processes"], "'--workers 4' gives the number of threads"),
    (&["--verbose", "-v", "--log-level", "--debug", "--quiet", "-q"], "'--log debug' says more, '--log error' less"),
    (&["--daemon", "--background"], "serpent stays in the foreground: a service manager starts it in the background"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_means_one_thing() {
        let mut words: Vec<_> = SETTINGS.iter().flat_map(|(words, _)| *words).collect();
        words.extend(FLAGS.iter().flat_map(|(words, _)| *words));
        let count = words.len();
        words.sort();
        words.dedup();
        assert_eq!(words.len(), count);
        assert_eq!(setting("Proxy_Pass"), setting("proxy-pass"));
        assert!(matches!(setting("proxy_pass"), Some(Setting(_))) && setting("listen").is_none());
    }
}
