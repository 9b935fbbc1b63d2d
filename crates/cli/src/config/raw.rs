//! Stage one: the sections of the file and their settings, by shape only; stage two (`resolve`) reads the values.

mod upstreams;

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

pub use self::upstreams::{RawActive, RawOutliers, RawPassive, RawServer, RawSticky, RawUpstream, RawWorkers};
use super::section::{Section, sections};
use super::written::{
    FileOrTable, OnOrTable, OrOff, OrText, Pairs, RawCacheControl, RawCutoffs, RawExpires, Setting, TextOr, Values,
    ValuesByName, WindowOrTable, Written, one_or_more, or_text,
};

sections! {
    THESE
    /// The whole file.
    Raw {
        #[serde(deserialize_with = "one_or_more")]
        listen: Option<Vec<Spanned<Written>>>,
        admin: Setting,
        admin_token: Setting,
        workers: Setting,
        #[serde(deserialize_with = "one_or_more")]
        trusted_proxies: Option<Vec<Spanned<Written>>>,
        forwarded_by: Setting,
        #[serde(deserialize_with = "one_or_more")]
        proxy_protocol: Option<Vec<Spanned<Written>>>,
        #[serde(deserialize_with = "one_or_more")]
        resolver: Option<Vec<Spanned<Written>>>,
        default_class: Setting,
        uplink: RawUplink,
        limits: RawLimits,
        cache: RawCache,
        shared_cache: RawSharedCache,
        access_log: RawAccessLog,
        error_log: RawErrorLog,
        tracing: RawTracing,
        files: RawFiles,
        compression: RawCompression,
        acme: RawAcme,
        admission: RawAdmission,
        cluster: Option<Spanned<RawCluster>>,
        users: Option<Spanned<RawUsers>>,
        keys: Option<Spanned<RawKeys>>,
        session: Option<Spanned<RawSession>>,
        attach: Option<Spanned<RawAttach>>,
        site: Vec<Spanned<RawSite>>,
        upstream: Vec<Spanned<RawUpstream>>,
        class: Vec<Spanned<RawClass>>,
        rule: Vec<Spanned<RawRule>>,
    }

    /// `[uplink]`
    RawUplink {
        rate: Setting,
        order: Setting,
        enforce: Setting,
        cutoffs: Option<Spanned<RawCutoffs>>,
        guard: Setting,
        utilisation: Setting,
        segment_overhead: Setting,
        device: Setting,
        keep: Setting,
        share: Setting,
        line: Setting,
    }

    /// `[limits]`
    RawLimits {
        connections: Setting,
        connections_per_client: Setting,
        request_head: Setting,
        request_headers: Setting,
        request_body: Setting,
        body_memory: Setting,
        body_file: Setting,
        body_files: Setting,
        body_directory: Setting,
        handshake_timeout: Setting,
        head_timeout: Setting,
        request_body_rate: Setting,
        idle_timeout: Setting,
        write_timeout: Setting,
        response_rate: Setting,
        http2_streams: Setting,
        shutdown_delay: Setting,
        shutdown_timeout: Setting,
    }

    /// `[shared-cache]`
    RawSharedCache {
        memory: Setting,
        max_object: Setting,
        directory: Setting,
        disk: Setting,
    }

    /// `[cache]`
    RawCache {
        capacity: Setting,
        max_file: Setting,
        revalidate_after: Setting,
        compressed: Setting,
    }

    /// `[access-log]`
    RawAccessLog {
        target: Setting,
        format: Setting,
    }

    /// `[error-log]`
    RawErrorLog {
        target: Setting,
        format: Setting,
    }

    /// `[tracing]`
    RawTracing {
        endpoint: Setting,
        sample: Setting,
        parents: Setting,
        service_name: Setting,
        collector_headers: Option<Pairs>,
        ca: Setting,
        interval: Setting,
    }

    /// `[files]` and `[site.files]`
    RawFiles {
        #[serde(deserialize_with = "one_or_more")]
        index: Option<Vec<Spanned<Written>>>,
        listing: Option<bool>,
        folders_first: Option<bool>,
        dot_files: Option<bool>,
        symlinks: Setting,
        precompressed: Option<bool>,
        cache_control: Option<Vec<RawCacheControl>>,
        mime_types: Option<BTreeMap<Spanned<String>, Spanned<String>>>,
    }

    /// `[compression]` and `[site.compression]`
    RawCompression {
        #[serde(deserialize_with = "one_or_more")]
        codings: Option<Vec<Spanned<Written>>>,
        #[serde(deserialize_with = "one_or_more")]
        types: Option<Vec<Spanned<Written>>>,
        min_size: Setting,
        zstd_level: Setting,
        br_level: Setting,
        gzip_level: Setting,
    }

    /// `[cluster]`
    RawCluster {
        store: Setting,
        site: Setting,
        tls_ca: Setting,
        tls_cert: Setting,
        tls_key: Setting,
    }

    /// `[acme]`
    RawAcme {
        directory: Setting,
        staging: Option<Spanned<bool>>,
        contact: Setting,
        #[serde(deserialize_with = "one_or_more")]
        challenges: Option<Vec<Spanned<Written>>>,
        profile: Setting,
        external_account: Setting,
        external_key: Setting,
        ca: Setting,
        state: Setting,
    }

    /// `[[site]]`
    RawSite {
        #[serde(deserialize_with = "one_or_more")]
        names: Option<Vec<Spanned<Written>>>,
        root: Setting,
        tls_cert: Setting,
        tls_key: Setting,
        ocsp_response: Setting,
        acme: Option<Spanned<bool>>,
        client_ca: Setting,
        https_redirect: Option<Spanned<bool>>,
        hsts: Setting,
        #[serde(deserialize_with = "one_or_more")]
        allow: Option<Vec<Spanned<Written>>>,
        #[serde(deserialize_with = "one_or_more")]
        deny: Option<Vec<Spanned<Written>>>,
        require: Option<Spanned<OrOff<RawRequire>>>,
        forward_auth: Option<Spanned<OrOff<RawForwardAuth>>>,
        cors: Option<Spanned<OrOff<RawCors>>>,
        limit: Option<Spanned<OrOff<RawLimit>>>,
        access_log: Option<Spanned<FileOrTable<RawAccessLog>>>,
        expires: Option<Spanned<RawExpires>>,
        expires_override: Option<Spanned<bool>>,
        expires_field: Option<Spanned<bool>>,
        error_pages: Option<Pairs>,
        response_headers: RawHeaders,
        maintenance: Option<Spanned<OrOff<RawMaintenance>>>,
        route: Vec<Spanned<RawRoute>>,
        files: RawFiles,
        compression: RawCompression,
    }

    /// `[[site.route]]`
    RawRoute {
        path: Setting,
        path_glob: Setting,
        path_regex: Setting,
        method: Option<Spanned<Values>>,
        client: Option<Spanned<Values>>,
        query: Option<ValuesByName>,
        header: Option<ValuesByName>,
        cookie: Option<ValuesByName>,
        unless: Option<Spanned<RawUnless>>,
        upstream: Setting,
        cgi: Option<Spanned<TextOr<RawCgi>>>,
        fastcgi: Option<Spanned<TextOr<RawFastCgi>>>,
        uwsgi: Option<Spanned<TextOr<RawUwsgi>>>,
        files: Option<Spanned<bool>>,
        listing: Option<Spanned<bool>>,
        #[serde(deserialize_with = "one_or_more")]
        try_files: Option<Vec<Spanned<Written>>>,
        fallback: Setting,
        redirect: Setting,
        redirect_status: Setting,
        rewrite: Setting,
        respond: Setting,
        respond_body: Setting,
        respond_type: Setting,
        request_body: Setting,
        replace_prefix: Setting,
        keep_host: Option<Spanned<bool>>,
        buffer_request: Option<Spanned<bool>>,
        buffer_response: Option<Spanned<bool>>,
        early_hints: Option<Spanned<bool>>,
        idle_timeout: Setting,
        total_timeout: Setting,
        error_pages: Option<Spanned<bool>>,
        internal: Option<Spanned<bool>>,
        cache: Option<Spanned<OnOrTable<RawRouteCache>>>,
        resource: Setting,
        admitted: Option<Spanned<bool>>,
        #[serde(deserialize_with = "one_or_more")]
        allow: Option<Vec<Spanned<Written>>>,
        #[serde(deserialize_with = "one_or_more")]
        deny: Option<Vec<Spanned<Written>>>,
        require: Option<Spanned<OrOff<RawRequire>>>,
        forward_auth: Option<Spanned<OrOff<RawForwardAuth>>>,
        cors: Option<Spanned<OrOff<RawCors>>>,
        limit: Option<Spanned<OrOff<RawLimit>>>,
        maintenance: Option<Spanned<bool>>,
        request_headers: RawRequestHeaders,
        response_headers: RawHeaders,
        compression: Option<Spanned<bool>>,
        access_log: Option<Spanned<FileOrTable<RawAccessLog>>>,
        expires: Option<Spanned<RawExpires>>,
        expires_override: Option<Spanned<bool>>,
        expires_field: Option<Spanned<bool>>,
    }

    /// `unless` of a route
    RawUnless {
        path: Option<Spanned<Values>>,
        path_glob: Option<Spanned<Values>>,
        path_regex: Option<Spanned<Values>>,
        method: Option<Spanned<Values>>,
        client: Option<Spanned<Values>>,
        query: Option<ValuesByName>,
        header: Option<ValuesByName>,
        cookie: Option<ValuesByName>,
    }

    /// `cache` of a route, as a table
    RawRouteCache {
        lifetime: Setting,
        stale_while_revalidate: Setting,
        stale_if_error: Setting,
        stale_when_busy: Option<Spanned<bool>>,
        cookies: Option<Spanned<bool>>,
        revalidation_class: Setting,
    }

    /// `require` of a site or route, as a table
    RawRequire {
        user: Option<Spanned<Values>>,
        key: Option<Spanned<Values>>,
        certificate: Option<Spanned<Values>>,
        client: Option<Spanned<Values>>,
        satisfy: Setting,
        realm: Setting,
    }

    /// `forward-auth` of a site or route, as a table
    RawForwardAuth {
        upstream: Setting,
        path: Setting,
        #[serde(deserialize_with = "one_or_more")]
        copy_headers: Option<Vec<Spanned<Written>>>,
        #[serde(deserialize_with = "one_or_more")]
        client_headers: Option<Vec<Spanned<Written>>>,
    }

    /// `cors` of a site or route, as a table
    RawCors {
        #[serde(deserialize_with = "one_or_more")]
        origins: Option<Vec<Spanned<Written>>>,
        #[serde(deserialize_with = "one_or_more")]
        methods: Option<Vec<Spanned<Written>>>,
        #[serde(deserialize_with = "one_or_more")]
        allow_headers: Option<Vec<Spanned<Written>>>,
        #[serde(deserialize_with = "one_or_more")]
        expose_headers: Option<Vec<Spanned<Written>>>,
        credentials: Option<Spanned<bool>>,
        max_age: Setting,
    }

    /// `limit` of a site or route, as a table
    RawLimit {
        rate: Setting,
        burst: Setting,
        #[serde(deserialize_with = "one_or_more")]
        by: Option<Vec<Spanned<Written>>>,
        at_once: Setting,
        bytes: Setting,
        bytes_burst: Setting,
    }

    /// `maintenance` of a site, as a table
    RawMaintenance {
        file: Setting,
        #[serde(deserialize_with = "one_or_more")]
        exempt: Option<Vec<Spanned<Written>>>,
        retry_after: Setting,
    }

    /// `request-headers` of a route
    RawRequestHeaders {
        #[serde(deserialize_with = "one_or_more")]
        remove: Option<Vec<Spanned<Written>>>,
        set: Option<Pairs>,
        add: Option<Pairs>,
        #[serde(deserialize_with = "one_or_more")]
        client: Option<Vec<Spanned<Written>>>,
    }

    /// `response-headers` of a site or route
    RawHeaders {
        #[serde(deserialize_with = "one_or_more")]
        remove: Option<Vec<Spanned<Written>>>,
        set: Option<Pairs>,
        add: Option<Pairs>,
    }

    /// `cgi` of a route, as a table
    RawCgi {
        program: Setting,
        interpreter: Setting,
        environment: Option<Pairs>,
        #[serde(deserialize_with = "one_or_more")]
        pass_environment: Option<Vec<Spanned<Written>>>,
        timeout: Setting,
        response_head: Setting,
        max_running: Setting,
    }

    /// `fastcgi` of a route, as a table
    RawFastCgi {
        address: Setting,
        root: Setting,
        remote_root: Setting,
        #[serde(deserialize_with = "one_or_more")]
        extensions: Option<Vec<Spanned<Written>>>,
        index: Setting,
        environment: Option<Pairs>,
        connect_timeout: Setting,
        timeout: Setting,
        response_head: Setting,
        max_running: Setting,
        keep_connections: Setting,
        keep_for: Setting,
    }

    /// `uwsgi` of a route, as a table
    RawUwsgi {
        address: Setting,
        modifier: Setting,
        environment: Option<Pairs>,
        connect_timeout: Setting,
        timeout: Setting,
        response_head: Setting,
        max_running: Setting,
    }

    /// `[[class]]`
    RawClass {
        name: Setting,
        weight: Setting,
        delay_ratio: Setting,
        reserved: Setting,
        slots: Setting,
        deadline: Setting,
        order: Setting,
        queue: Setting,
        max_wait: Setting,
        cpu_priority: Setting,
        objective: RawObjective,
        refuse: RawRefuse,
    }

    /// `objective` of a class
    RawObjective {
        mean: Setting,
        p50: Setting,
        p90: Setting,
        p95: Setting,
        p99: Setting,
        p999: Setting,
        error_rate: Setting,
        window: Setting,
    }

    /// `refuse` of a class
    RawRefuse {
        status: Setting,
        retry_after: Setting,
        page: Setting,
    }

    /// `[[rule]]`
    RawRule {
        class: Setting,
        name: Setting,
        resource: Setting,
        raises_session: Option<Spanned<bool>>,
        host: Option<Spanned<Values>>,
        destination: Option<Spanned<Values>>,
        client: Option<Spanned<Values>>,
        method: Option<Spanned<Values>>,
        path: Option<Spanned<Values>>,
        path_glob: Option<Spanned<Values>>,
        path_regex: Option<Spanned<Values>>,
        extension: Option<Spanned<Values>>,
        query: Option<ValuesByName>,
        header: Option<ValuesByName>,
        cookie: Option<ValuesByName>,
        certificate: Option<Spanned<Values>>,
        key: Option<Spanned<Values>>,
        user: Option<Spanned<Values>>,
    }

    /// `[admission]`
    RawAdmission {
        share: Setting,
        slots: Setting,
        resources: Option<BTreeMap<Spanned<String>, Spanned<RawResource>>>,
        late: Setting,
        delay_window: Setting,
        windows: Setting,
        probe_every: Setting,
        probe_after: Setting,
        shrink_above: Setting,
        grow_below: Setting,
    }

    /// `resources` of `[admission]`, as tables
    RawWindow {
        window: Setting,
        least: Setting,
        most: Setting,
        bound: Setting,
        probe: Setting,
        host: Setting,
        upstream: Setting,
    }

    /// `[users]`
    RawUsers {
        file: Setting,
    }

    /// `[keys]`
    RawKeys {
        file: Setting,
        header: Setting,
        query: Setting,
    }

    /// `[attach]`
    RawAttach {
        device: Setting,
        rate: Setting,
        #[serde(deserialize_with = "one_or_more")]
        ports: Option<Vec<Spanned<Written>>>,
        #[serde(deserialize_with = "one_or_more")]
        classes: Option<Vec<Spanned<Written>>>,
        cutoffs: Option<Spanned<RawCutoffs>>,
        others: Setting,
        overhead: Setting,
        replace: Option<bool>,
        server_user: Setting,
    }

    /// `[session]`
    RawSession {
        cookie: Setting,
        secret: Setting,
        lifetime: Setting,
        secure: Option<bool>,
    }
}

or_text! {
    RawCgi.program: "a directory or program, or a table with `program`",
    RawFastCgi.address: "the address of an application, or a table with `address`",
    RawUwsgi.address: "the address of an application, or a table with `address`",
}

/// A resource of `[admission]`.
pub type RawResource = WindowOrTable<RawWindow>;

/// Every section, the top of the file first.
pub const SECTIONS: &[&[Section]] = &[THESE, upstreams::THESE];
