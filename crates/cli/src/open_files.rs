//! Connections and the open files that they need: how many fit, and whether those asked for do.

use rustix::process::{Resource, getrlimit, setrlimit};
use server::config::{Config, Limits};

/// Descriptors that are open beside those of connections.
const OTHERS: u64 = 256;

/// The number of connections that `auto` stands for: the default, or fewer where the system allows fewer open files.
pub fn connections_that_fit(passes_on: bool) -> usize {
    that_fit(getrlimit(Resource::Nofile).maximum, passes_on)
}

fn that_fit(allowed: Option<u64>, passes_on: bool) -> usize {
    let most = Limits::default().connections;
    let Some(allowed) = allowed else { return most };
    let fit = allowed.saturating_sub(OTHERS.min(allowed / 2)) / Descriptors::sockets(passes_on);
    usize::try_from(fit).unwrap_or(most).clamp(1, most)
}

/// Raises the soft limit on open files as far as it may be raised. A warning is due when not even the sockets fit.
pub fn allow(config: &Config) {
    let connections = config.limits.connections;
    let passes_on = !config.upstreams.is_empty();
    let Descriptors { least: sockets, most: wanted } = Descriptors::of(connections, passes_on);
    let mut limit = getrlimit(Resource::Nofile);
    let maximum = limit.maximum;
    let Some(current) = limit.current.filter(|current| *current < wanted) else { return };
    let raised = maximum.map_or(wanted, |maximum| maximum.min(wanted)).max(current);
    limit.current = Some(raised);
    let allowed = if setrlimit(Resource::Nofile, limit).is_ok() { raised } else { current };
    let upstreams = if passes_on { ", with those to upstreams," } else { "" };
    let fit = that_fit(maximum, passes_on);
    if connections <= fit && fit < Limits::default().connections && allowed == raised {
        tracing::info!("{connections} connections{upstreams} fit into the {allowed} open files that are allowed");
    } else if allowed < sockets {
        tracing::warn!(
            "{connections} connections{upstreams} need {sockets} open files, and only {allowed} are allowed: lower \
             `limits.connections` (`auto` takes as many as fit), or raise the limit (ulimit -n, LimitNOFILE=)"
        );
    }
}

/// The descriptors that connections hold open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Descriptors {
    /// With their sockets alone.
    least: u64,
    /// With the files that they may have beside.
    most: u64,
}

impl Descriptors {
    /// A connection holds a socket and, while a large response is sent, a file. Where requests are passed on it holds
    /// another socket, to the upstream, and two files: for the kept parts of the request and of the response.
    fn of(connections: usize, passes_on: bool) -> Self {
        let sockets = Self::sockets(passes_on);
        let files = if passes_on { 2 } else { 1 };
        let each = |count: u64| (connections as u64).saturating_mul(count).saturating_add(OTHERS);
        Self { least: each(sockets), most: each(sockets + files) }
    }

    /// Those of one connection.
    fn sockets(passes_on: bool) -> u64 {
        if passes_on { 2 } else { 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_is_passed_on_needs_another_socket_and_two_files() {
        assert_eq!(Descriptors::of(1000, false), Descriptors { least: 1256, most: 2256 });
        assert_eq!(Descriptors::of(1000, true), Descriptors { least: 2256, most: 4256 });
        assert_eq!(Descriptors::of(usize::MAX, true).most, u64::MAX);
    }

    #[test]
    fn as_many_connections_fit_as_have_their_sockets() {
        for (allowed, passes_on, fit) in [
            (None, true, 16_384),
            (Some(1 << 20), true, 16_384),
            (Some(20_000), false, 16_384),
            (Some(20_000), true, 9872),
            (Some(4096), false, 3840),
            (Some(256), true, 64),
            (Some(0), true, 1),
        ] {
            assert_eq!(that_fit(allowed, passes_on), fit, "{allowed:?} {passes_on}");
            let needed = Descriptors::of(fit, passes_on).least;
            assert!(allowed.is_none_or(|allowed| needed <= allowed || allowed < 2 * OTHERS), "{allowed:?} {passes_on}");
        }
    }
}
