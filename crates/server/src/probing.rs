//! Sends the probing requests by which windows are adjusted ([`scheduler::control::Method::Probe`]).

use std::{collections::HashMap, sync::Arc, time::Duration};

use http::uri::Authority;

use crate::{
    admission,
    config::ProbeConfig,
    serve::Shared,
    upstream::{
        Upstreams,
        probe::{Fault, Probe},
    },
};

/// A probing request that takes so many times its bound is given up. It was late long before.
const BOUNDS: u32 = 10;
/// And after this in any case.
const LONGEST: Duration = Duration::from_secs(60);

/// What a resource is probed by.
struct Page {
    upstreams: Arc<Upstreams>,
    config: ProbeConfig,
    probe: Arc<Probe>,
}

/// Sends them as they fall due, for ever.
pub(crate) async fn probe_for_ever(shared: Arc<Shared>) {
    let admission = shared.live.load().admission.clone();
    let mut pages = HashMap::new();
    loop {
        let due = admission.probe().await;
        let live = shared.live.load();
        let resources = &live.classes.admission.resources;
        pages.retain(|name: &Arc<str>, _| resources.iter().any(|it| *it.name == **name));
        let Some(resource) = resources.iter().find(|it| *it.name == *due.resource) else { continue };
        let Some(config) = &resource.probe else { continue };
        let limit = resource.bound.map_or(LONGEST, |bound| bound.saturating_mul(BOUNDS).min(LONGEST));
        let known = pages.get(&due.resource);
        let is_in_force = |page: &&Page| Arc::ptr_eq(&page.upstreams, &live.upstreams) && page.config == *config;
        let host = config.host.as_ref().map(Authority::as_str);
        let probe = match known.filter(is_in_force) {
            Some(page) => page.probe.clone(),
            None => match Probe::of(live.upstreams.clone(), config.upstream, config.path.clone(), host) {
                Ok(probe) => {
                    let probe = Arc::new(probe);
                    let (upstreams, config) = (live.upstreams.clone(), config.clone());
                    pages.insert(due.resource.clone(), Page { upstreams, config, probe: probe.clone() });
                    probe
                }
                Err(error) => {
                    tracing::error!(resource = &*due.resource, %error, "a resource cannot be probed");
                    continue;
                }
            },
        };
        // No more than one for each resource: the next one falls due when this one has its answer.
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
        // A page that is gone, or moved, must not make the window small: that says nothing of the site.
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
