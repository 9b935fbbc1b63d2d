//! Upstreams: where requests are sent.

use serde::Deserialize;
use toml::Spanned;

use crate::config::{
    section::{Section, sections},
    written::{OrText, Pairs, Setting, TextOr, Written, one_or_more, or_text},
};

sections! {
    THESE
    /// `[[upstream]]`
    RawUpstream {
        name: Setting,
        #[serde(deserialize_with = "one_or_more")]
        servers: Option<Vec<Spanned<TextOr<RawServer>>>>,
        balance: Setting,
        hash_bound: Setting,
        sticky: Option<Spanned<TextOr<RawSticky>>>,
        slow_start: Setting,
        connect_timeout: Setting,
        idle_timeout: Setting,
        total_timeout: Setting,
        keep_connections: Setting,
        keep_for: Setting,
        max_connections: Setting,
        max_requests: Setting,
        retries: Setting,
        #[serde(deserialize_with = "one_or_more")]
        retry_statuses: Option<Vec<Spanned<Written>>>,
        retry_budget: Setting,
        hedge: Setting,
        hedge_budget: Setting,
        response_head: Setting,
        proxy_protocol: Setting,
        tls_ca: Setting,
        tls_name: Setting,
        tls_cert: Setting,
        tls_key: Setting,
        tls_verify: Option<Spanned<bool>>,
        passive: RawPassive,
        active: Option<Spanned<RawActive>>,
        outliers: Option<Spanned<RawOutliers>>,
        workers: Option<Spanned<RawWorkers>>,
    }

    /// a server of an upstream
    RawServer {
        url: Setting,
        weight: Setting,
        priority: Setting,
        backup: Option<Spanned<bool>>,
    }

    /// `sticky` of an upstream
    RawSticky {
        cookie: Setting,
        secret: Setting,
        lifetime: Setting,
    }

    /// `passive` of an upstream
    RawPassive {
        failures: Setting,
        pause: Setting,
    }

    /// `active` of an upstream
    RawActive {
        path: Setting,
        every: Setting,
        timeout: Setting,
        statuses: Setting,
        rise: Setting,
        fall: Setting,
    }

    /// `outliers` of an upstream
    RawOutliers {
        every: Setting,
        requests: Setting,
        errors: Setting,
        slower: Setting,
        pause: Setting,
        most: Setting,
    }

    /// `[upstream.workers]`
    RawWorkers {
        command: Option<Spanned<Vec<Spanned<Written>>>>,
        directory: Setting,
        environment: Option<Pairs>,
        processes: Setting,
        start_timeout: Setting,
        stop_timeout: Setting,
    }
}

or_text! {
    RawServer.url: "a server as in \"http://10.0.0.1:3000\", or a table with `url`",
    RawSticky.cookie: "the name of a cookie, or a table with `cookie`",
}
