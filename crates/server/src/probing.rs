//! Sends the probing requests by which windows are adjusted ([`scheduler::control::Method::Probe`]).

use std::{collections::HashMap, sync::Arc, time::Duration};

use http::uri::Authority;

use crate::{
    admission,
    config::ProbeConfig,
    state::ServerState,
    upstream::{
        Upstreams,
        probe::{Fault, Probe},
    },
};

/// A probing request is given up after this many times its bound. It counts as late long before.
const BOUNDS: u32 = 10;
/// It is given up after this time in any case.
const LONGEST: Duration = Duration::from_secs(60);

/// The page that probes a resource.
struct Page {
    upstreams: Arc<Upstreams>,
    config: ProbeConfig,
    probe: Arc<Probe>,
}

/// Sends probing requests as they fall due, forever.
pub(crate) async fn probe_for_ever(state: Arc<ServerState>) {
    let admission = state.snapshot.load().admission.clone();
    let mut pages = HashMap::new();
    loop {
        let due = admission.probe().await;
        let snapshot = state.snapshot.load();
        let resources = &snapshot.classes.admission.resources;
        pages.retain(|name: &Arc<str>, _| resources.iter().any(|it| *it.name == **name));
        let Some(resource) = resources.iter().find(|it| *it.name == *due.resource) else { continue };
        let Some(config) = &resource.probe else { continue };
        let limit = resource.bound.map_or(LONGEST, |bound| bound.saturating_mul(BOUNDS).min(LONGEST));
        let known = pages.get(&due.resource);
        let is_in_force = |page: &&Page| Arc::ptr_eq(&page.upstreams, &snapshot.upstreams) && page.config == *config;
        let host = config.host.as_ref().map(Authority::as_str);
        let probe = match known.filter(is_in_force) {
            Some(page) => page.probe.clone(),
            None => match Probe::of(snapshot.upstreams.clone(), config.upstream, config.path.clone(), host) {
                Ok(probe) => {
                    let probe = Arc::new(probe);
                    let (upstreams, config) = (snapshot.upstreams.clone(), config.clone());
                    pages.insert(due.resource.clone(), Page { upstreams, config, probe: probe.clone() });
                    probe
                }
                Err(error) => {
                    tracing::error!(resource = &*due.resource, %error, "a resource cannot be probed");
                    continue;
                }
            },
        };
        // There is at most one per resource: the next one falls due after this one's answer.
        tokio::spawn(ask(probe, due, limit));
    }
}

async fn ask(page: Arc<Probe>, due: admission::Probe, limit: Duration) {
    match page.ask(limit).await {
        Ok(answer) if answer.is_page() => due.answered(answer.took),
        Ok(answer) if answer.status.is_server_error() => {
            let status = answer.status.as_u16();
            tracing::warn!(resource = &*due.resource, status, "a probing request was not served");
            due.failed();
        }
        // An error page or a redirect says nothing about the site's load, so it must not shrink the window.
        Ok(answer) => {
            let status = answer.status.as_u16();
            tracing::error!(
                resource = &*due.resource,
                status,
                "there is no page to probe by: see `probe` of the resource"
            );
        }
        Err(error) if error.fault() == Fault::Site => {
            tracing::warn!(resource = &*due.resource, %error, "a probing request has no answer");
            due.failed();
        }
        Err(error) => tracing::error!(resource = &*due.resource, %error, "a resource could not be probed"),
    }
}
