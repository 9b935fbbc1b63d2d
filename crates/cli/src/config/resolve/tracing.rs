//! `[tracing]`: where the spans of requests go.

use std::time::Duration;

use server::config::{BadEndpoint, TraceParents, TracesConfig, TracesEndpoint};
use toml::Spanned;

use super::{named_files::FileKind, resolver::Resolver, routes::may_be_changed};
use crate::{
    config::{problems::Problem, raw::Raw},
    values::{self, Named as _},
};

const DEFAULT_INTERVAL: Duration = Duration::from_secs(5);

impl Resolver<'_> {
    /// Where the spans of requests go; `None`: nowhere.
    pub(super) fn tracing(&mut self, raw: &Raw) -> Option<TracesConfig> {
        let written = &raw.tracing;
        let endpoint = self.setting(None, &written.endpoint, |text| values::or_off(text, endpoint), None);
        let sampled = written.sample.as_ref().filter(|_| written.endpoint.is_none() && self.shape_is_sound);
        if let Some(sample) = sampled {
            self.problems.push(
                Problem::warning("`sample` has no effect: nothing says where spans go", Some(sample.span()))
                    .help("add `endpoint = \"http://HOST:4318\"`, or leave it out"),
            );
        }
        let mut headers = Vec::new();
        for (key, value) in written.collector_headers.iter().flatten() {
            let name = values::header_name(key.get_ref()).and_then(|name| {
                may_be_changed(&name, false)?;
                match [http::header::HOST, http::header::CONTENT_TYPE].contains(&name) {
                    true => Err(format!("`{name}` is always that of the collector: leave it out")),
                    false => Ok(name),
                }
            });
            match (name, values::header_value(&value.get_ref().0)) {
                (Ok(name), Ok(value)) => headers.push((name, value)),
                (name, read) => {
                    self.problems.extend(name.err().map(|message| Problem::new(message, Some(key.span()))));
                    self.problems.extend(read.err().map(|message| Problem::new(message, Some(value.span()))));
                }
            }
        }
        let config = TracesConfig {
            sample: self.setting(None, &written.sample, values::percent, 1.0),
            parents: self.setting(None, &written.parents, TraceParents::named, TraceParents::Trusted),
            service_name: self.setting(None, &written.service_name, service_name, "serpent".to_owned()),
            headers,
            ca: self.file(&written.ca, FileKind::Authorities),
            interval: self.setting(None, &written.interval, values::duration, DEFAULT_INTERVAL),
            endpoint: endpoint?,
        };
        if let (Some(ca), false) = (&written.ca, config.endpoint.is_tls()) {
            self.problems.push(
                Problem::warning("`ca` has no effect: the collector is asked without TLS", Some(ca.span()))
                    .also(written.endpoint.as_ref().map(Spanned::span), "to speak TLS, begin with `https://`")
                    .help("leave it out, or write `https://` in `endpoint`"),
            );
        }
        Some(config)
    }
}

fn endpoint(text: &str) -> Result<TracesEndpoint, String> {
    TracesEndpoint::new(text).map_err(|error| match error {
        BadEndpoint::NoUrl => format!(
            "`{text}` is not the address of a collector: write `http://HOST:4318`, or `https://`; without a path it is \
             /v1/traces (gRPC, as on port 4317, is not spoken)"
        ),
        // It may have a password in it.
        BadEndpoint::Account => {
            "the address of a collector has no account in it: give `collector-headers = { Authorization = \"...\" }`"
                .to_owned()
        }
    })
}

fn service_name(text: &str) -> Result<String, String> {
    let is_sound = (1..=255).contains(&text.len()) && !text.chars().any(char::is_control);
    is_sound.then(|| text.to_owned()).ok_or_else(|| "the name of a service has 1 to 255 characters".to_owned())
}
