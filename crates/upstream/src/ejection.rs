//! Leaves servers alone that do worse than the others.
//!
//! A look every few seconds compares what servers did since the last one. No request waits for it, and requests read
//! nothing but a flag.

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::time::{MissedTickBehavior, interval};

use crate::{
    config::OutlierChecks,
    group::Group,
    outliers::{Counts, Outlier, find},
    server::Health,
};

/// Looks for outliers of an upstream, forever.
pub(crate) async fn look_for_ever(group: Arc<Group>, checks: OutlierChecks) {
    let mut ticks = interval(checks.every.max(Duration::from_millis(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut before = HashMap::new();
    loop {
        ticks.tick().await;
        let servers = group.all();
        servers.iter().for_each(|server| server.state.end_ejection(&group.name, &server.name));
        let mut seen = Vec::new();
        let mut now = HashMap::new();
        for server in &servers {
            let counts = server.state.counts();
            let last = before.get(&server.id).copied().unwrap_or(counts);
            let is_used = server.state.health() == Health::Healthy;
            seen.push(if is_used { counts.since(last) } else { Counts::default() });
            now.insert(server.id, counts);
        }
        before = now;
        let ejected = servers.iter().filter(|server| server.state.health() == Health::Ejected).count();
        let most = servers.len() * checks.most as usize / 100;
        for (at, outlier) in find(&seen, &checks, most.saturating_sub(ejected)) {
            let server = &servers[at];
            let pause = server.state.eject(checks.pause);
            let why = match outlier {
                Outlier::Fails(share) => format!("{:.0} % of its requests failed", share * 100.0),
                Outlier::IsSlow(times) => format!("it takes {times:.1} times as long as the others"),
            };
            tracing::warn!(upstream = &*group.name, server = &*server.name, "{why}, is left alone for {pause:?}");
        }
        for (server, seen) in servers.iter().zip(&seen) {
            if seen.requests >= u64::from(checks.requests) && server.state.health() == Health::Healthy {
                server.state.forgive();
            }
        }
    }
}
