//! The state of a translation of a Caddyfile.

use crate::{
    draft::{Section, Settings},
    notes::Notes,
    syntax::Directive,
};

/// The state of a translation.
#[derive(Default)]
pub struct Translation {
    pub notes: Notes,
    pub limits: Settings,
    pub acme: Settings,
    pub top: Settings,
    pub error_log: Settings,
    pub upstreams: Vec<Section>,
    /// Whether a route asks for a password.
    pub has_users: bool,
    /// A block compresses its responses.
    pub encodes: Option<Directive>,
}

/// Directives that Serpent does not need.
const NEEDLESS: &[&str] = &[
    "debug",
    "default_sni",
    "disable_canonical_uris",
    "http2",
    "metrics",
    "ocsp_stapling",
    "order",
    "persist_config",
    "renew_interval",
    "skip_install_trust",
    "storage_check",
    "storage_clean_interval",
    "tracing",
    "cert_issuer",
    "preferred_chains",
    "key_type",
];

/// Why a directive has no counterpart, and what to do.
fn reason(name: &str) -> &'static str {
    match name {
        "map" | "vars" => "there are no variables; classes and their rules choose by path, host, header and address",
        "templates" => "texts are not changed",
        "intercept" | "handle_response" | "copy_response" | "copy_response_headers" => {
            "what an upstream answers is passed on; `error-pages` takes the place of errors"
        }
        "push" => "no response is sent before it is asked for",
        "method" => "the method of a request stays",
        "acme_server" | "pki" => "there is no authority inside",
        "invoke" => "there are no named routes",
        "fs" => "files are those of the system",
        "storage" => "certificates are in the directory `acme.state`",
        "on_demand_tls" => "certificates are asked for by the names in the file",
        "cache" => "answers of upstreams are not cached",
        "rate_limit" => "a plugin; see `limit` of a site or a route",
        "layer4" => "only HTTP is spoken",
        "frankenphp" | "php_server" | "php" => "PHP runs elsewhere: `fastcgi` of a route hands requests to PHP-FPM",
        "log_append" | "log_name" | "log_credentials" => {
            "the fields of the access log are fixed (docs/reference/access-log.md)"
        }
        "dynamic_dns" | "security" | "authenticate" | "authorize" | "crowdsec" => {
            "plugins of Caddy have no counterpart"
        }
        _ => "it has no counterpart that the translation knows; see the settings in docs/guide/configuration.md",
    }
}

impl Translation {
    /// Names a directive that is left out, or that means something else here.
    pub fn leave(&mut self, directive: &Directive, reason: impl Into<String>) {
        self.notes.leave(directive, reason);
    }

    /// A directive that nothing here translates.
    pub fn other(&mut self, directive: &Directive) {
        self.notes.other(directive, NEEDLESS, reason);
    }
}

/// The directive alone, to be named.
pub fn without_block(directive: &Directive) -> Directive {
    Directive { block: None, ..directive.clone() }
}
