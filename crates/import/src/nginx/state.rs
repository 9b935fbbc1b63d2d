//! The state while the files are translated.

use std::collections::{BTreeSet, HashMap};

use crate::{
    draft::{Section, Settings},
    notes::Notes,
    syntax::Directive,
};

/// Directives without a setting: Serpent does this by itself, or its own structure makes it needless.
pub const NEEDLESS: &[&str] = &[
    "aio",
    "brotli_buffers",
    "brotli_static",
    "brotli_window",
    "charset",
    "daemon",
    "default_type",
    "directio",
    "etag",
    "fastcgi_buffer_size",
    "fastcgi_buffering",
    "fastcgi_buffers",
    "fastcgi_busy_buffers_size",
    "fastcgi_max_temp_file_size",
    "fastcgi_next_upstream",
    "fastcgi_pass_header",
    "fastcgi_pass_request_body",
    "fastcgi_pass_request_headers",
    "fastcgi_socket_keepalive",
    "fastcgi_temp_file_write_size",
    "fastcgi_temp_path",
    "early_hints",
    "events",
    "gzip_buffers",
    "gzip_disable",
    "gzip_http_version",
    "gzip_proxied",
    "gzip_static",
    "gzip_vary",
    "http2",
    "if_modified_since",
    "keepalive_requests",
    "large_client_header_buffers",
    "client_header_buffer_size",
    "client_body_buffer_size",
    "log_not_found",
    "lingering_close",
    "master_process",
    "open_file_cache",
    "open_file_cache_errors",
    "open_file_cache_min_uses",
    "open_file_cache_valid",
    "output_buffers",
    "pid",
    "postpone_output",
    "client_body_temp_path",
    "proxy_headers_hash_bucket_size",
    "proxy_headers_hash_max_size",
    "proxy_socket_keepalive",
    "proxy_temp_path",
    "scgi_temp_path",
    "proxy_buffer_size",
    "proxy_buffers",
    "proxy_busy_buffers_size",
    "proxy_cache_convert_head",
    "proxy_cache_lock",
    "proxy_cache_lock_age",
    "proxy_cache_lock_timeout",
    "proxy_cache_revalidate",
    "proxy_http_version",
    "proxy_ssl_server_name",
    "reset_timedout_connection",
    "send_timeout",
    "sendfile",
    "sendfile_max_chunk",
    "server_names_hash_bucket_size",
    "server_names_hash_max_size",
    "server_name_in_redirect",
    "server_tokens",
    "ssl_buffer_size",
    "ssl_ciphers",
    "ssl_conf_command",
    "ssl_dhparam",
    "ssl_ecdh_curve",
    "ssl_early_data",
    "ssl_prefer_server_ciphers",
    "ssl_protocols",
    "ssl_session_cache",
    "ssl_session_tickets",
    "ssl_session_timeout",
    "tcp_nodelay",
    "tcp_nopush",
    "types_hash_bucket_size",
    "types_hash_max_size",
    "use",
    "user",
    "variables_hash_max_size",
    "worker_connections",
    "worker_cpu_affinity",
    "worker_priority",
    "worker_rlimit_nofile",
    "multi_accept",
    "underscores_in_headers",
    "uwsgi_buffer_size",
    "uwsgi_buffering",
    "uwsgi_buffers",
    "uwsgi_busy_buffers_size",
    "uwsgi_max_temp_file_size",
    "uwsgi_next_upstream",
    "uwsgi_pass_header",
    "uwsgi_pass_request_body",
    "uwsgi_pass_request_headers",
    "uwsgi_socket_keepalive",
    "uwsgi_temp_file_write_size",
    "uwsgi_temp_path",
];

/// Directives that a location takes from its server, and that from `http`, unless it has its own.
pub const INHERITED: &[&str] = &[
    "add_header",
    "allow",
    "auth_request",
    "auth_request_set",
    "auth_basic",
    "auth_basic_user_file",
    "autoindex",
    "brotli",
    "brotli_comp_level",
    "brotli_min_length",
    "brotli_types",
    "client_max_body_size",
    "deny",
    "error_page",
    "expires",
    "fastcgi_connect_timeout",
    "fastcgi_hide_header",
    "fastcgi_index",
    "fastcgi_intercept_errors",
    "fastcgi_keep_conn",
    "fastcgi_param",
    "fastcgi_read_timeout",
    "gzip",
    "gzip_comp_level",
    "gzip_min_length",
    "gzip_types",
    "index",
    "limit_conn",
    "limit_req",
    "proxy_buffering",
    "proxy_cache",
    "proxy_cache_background_update",
    "proxy_cache_bypass",
    "proxy_no_cache",
    "proxy_cache_key",
    "proxy_cache_use_stale",
    "proxy_cache_valid",
    "proxy_connect_timeout",
    "proxy_hide_header",
    "proxy_intercept_errors",
    "proxy_next_upstream",
    "proxy_next_upstream_tries",
    "proxy_read_timeout",
    "proxy_redirect",
    "proxy_request_buffering",
    "proxy_set_header",
    "proxy_ssl_verify",
    "root",
    "satisfy",
    "ssl_certificate",
    "ssl_certificate_key",
    "ssl_stapling_file",
    "ssl_client_certificate",
    "ssl_verify_client",
    "try_files",
    "uwsgi_connect_timeout",
    "uwsgi_hide_header",
    "uwsgi_intercept_errors",
    "uwsgi_modifier1",
    "uwsgi_param",
    "uwsgi_read_timeout",
    "access_log",
];

/// Why a directive has no counterpart, and what to do.
fn reason(name: &str) -> &'static str {
    match name {
        "map" | "geo" | "split_clients" | "set" | "map_hash_bucket_size" | "map_hash_max_size" => {
            "there are no variables; routes choose by path, method, client, header, cookie and query"
        }
        "if" => "an `if` is translated that has one `return` or `rewrite`",
        "proxy_send_timeout" => "`idle-timeout` of the upstream holds for both directions",
        "scgi_pass" => {
            "SCGI is not spoken; `fastcgi` and `uwsgi` have an application answer, `upstream` passes requests on by HTTP"
        }
        "fastcgi_split_path_info" => "a script ends where its file ends: the first one with one of `extensions`",
        "fastcgi_send_timeout" => "`fastcgi.timeout` holds for both directions",
        "fastcgi_request_buffering" => "a request is read whole before it goes to an application",
        "fastcgi_ignore_client_abort" => "a request ends with its client",
        _ if name.starts_with("fastcgi_cache") => "only files and responses of upstreams are cached",
        "proxy_ignore_headers" => "what a response says about caching is obeyed",
        "limit_rate" | "limit_rate_after" => {
            "`limit.bytes` of a site or a route counts all responses of a client together, and nginx each by itself"
        }
        "limit_req_status" | "limit_conn_status" => "what is beyond a limit gets 429",
        "log_format" => "the forms of the access log are `combined` and `json` (`access-log.format`)",
        "stub_status" => "metrics are at the address of `admin`",
        "resolver" | "resolver_timeout" => "names are looked up by the system",
        "stream" | "mail" => "only HTTP is spoken",
        "load_module" => "there are no modules",
        "ssl_stapling" | "ssl_stapling_verify" | "ssl_trusted_certificate" => {
            "no authority is asked for OCSP responses; `ocsp-response` of a site names a file with one"
        }
        "ssl_crl" => "lists of revoked certificates are not read",
        "sub_filter" | "sub_filter_once" | "sub_filter_types" | "ssi" | "addition_types" => "texts are not changed",
        "worker_shutdown_timeout" => "see `limits.shutdown-timeout`",
        "reuseport" => "each worker has a socket of its own anyway",
        _ if name.ends_with("_by_lua_block") || name.contains("_by_lua") => "there is no Lua",
        "uwsgi_send_timeout" => "`uwsgi.timeout` holds for both directions",
        "uwsgi_request_buffering" => "a request is read whole before it goes to an application",
        "uwsgi_ignore_client_abort" => "a request ends with its client",
        _ if name.starts_with("uwsgi_ssl") => "uwsgi is spoken without TLS",
        _ if name.starts_with("uwsgi_cache") => "only files and responses of upstreams are cached",
        _ if name.starts_with("scgi_") => "it belongs to SCGI, which is not spoken",
        _ => "it has no counterpart that the translation knows; see the settings in docs/guide/configuration.md",
    }
}

/// The state while the files are translated.
#[derive(Default)]
pub struct Translation<'a> {
    pub notes: Notes,
    pub upstreams: Upstreams<'a>,
    /// `limit_req_zone` and `limit_conn_zone`: the rate, if any, and what is counted together, if that has a counterpart.
    pub zones: HashMap<&'a str, (Option<String>, Option<Vec<String>>)>,
    /// `proxy_cache_path`: how long a zone keeps what is not used.
    pub cache_zones: HashMap<&'a str, String>,
    /// `auth_basic_user_file`. There is one for all sites.
    pub users: Option<&'a str>,
    pub limits: Settings,
    pub access_log: Settings,
    pub error_log: Settings,
    /// Names of `log_format` that write JSON.
    pub json_formats: BTreeSet<&'a str>,
    /// `map` and `geo`.
    pub maps: Vec<&'a Directive>,
    /// The variables of those that are translated.
    pub maps_used: BTreeSet<String>,
    /// A guard of the block that is translated, without a counterpart.
    pub unguarded: Option<&'a Directive>,
    /// The same, of paths that no route can take.
    pub unguarded_site: Option<&'a Directive>,
    /// Whether `proxy-protocol` names the proxies.
    pub has_proxy_protocol: bool,
    /// The field in which proxies name their client, if it has no counterpart.
    pub lost_address: Option<&'a Directive>,
    /// Whether the server that is translated has pages for errors.
    pub has_error_pages: bool,
    pub mime_types: Vec<(String, String)>,
}

impl<'a> Translation<'a> {
    /// Names a directive that is left out, or that means something else here.
    pub fn leave(&mut self, directive: &Directive, reason: impl Into<String>) {
        self.notes.leave(directive, reason);
    }

    /// A directive that nothing here translates.
    pub fn other(&mut self, directive: &Directive) {
        self.notes.other(directive, NEEDLESS, reason);
    }
}

/// The upstreams that are used.
#[derive(Default)]
pub struct Upstreams<'a> {
    pub declared: Vec<&'a Directive>,
    pub used: Vec<Used>,
}

/// An upstream that a location sends requests to.
pub struct Used {
    pub name: String,
    pub scheme: &'static str,
    pub section: Section,
}

impl<'a> Upstreams<'a> {
    pub fn declare(&mut self, directive: &'a Directive) {
        self.declared.push(directive);
    }

    pub fn into_sections(self) -> impl Iterator<Item = Section> {
        self.used.into_iter().map(|used| used.section)
    }
}

/// The directives of a name that are in force: those of the innermost block that has any.
pub fn in_force<'a>(levels: &[&'a [Directive]], name: &str) -> Vec<&'a Directive> {
    let of = |level: &&'a [Directive]| level.iter().filter(|directive| directive.name == name).collect::<Vec<_>>();
    levels.iter().rev().map(of).find(|found| !found.is_empty()).unwrap_or_default()
}

/// The only directive of a name that is in force.
pub fn one_in_force<'a>(levels: &[&'a [Directive]], name: &str) -> Option<&'a Directive> {
    in_force(levels, name).last().copied()
}
