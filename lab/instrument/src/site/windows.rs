//! The windows of a gateway that adjusts them, as the gateway itself reports them.

use std::{net::SocketAddr, time::Duration};

use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep_until, timeout};

use super::{config::ONE, plan::Plan, stats::Span, users::fetch};

/// The windows at one time.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct WindowReading {
    /// In seconds from the start of the run.
    pub(super) at_s: f64,
    /// By page.
    pub(super) windows: Vec<Option<u32>>,
}

/// Statistics of a page's windows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Adjusted {
    pub(super) mean: f64,
    pub(super) least: u32,
    pub(super) most: u32,
}

/// Number of readings in a run: every tenth second in a run of half an hour.
const LOOKS: u32 = 180;
const PATIENCE: Duration = Duration::from_secs(10);

/// Reads the windows until the run is over. Does nothing for a gateway without reports.
pub(super) async fn watch(plan: &Plan, admin: Option<SocketAddr>, began: Instant) -> Vec<WindowReading> {
    let mut seen = Vec::new();
    let Some(admin) = admin else { return seen };
    for at_s in (0..plan.seconds).step_by(plan.seconds.div_ceil(LOOKS).max(1) as usize) {
        sleep_until(began + Duration::from_secs(at_s.into())).await;
        if let Ok(Some(said)) = timeout(PATIENCE, fetch(admin, "/api/admission")).await
            && let Some(windows) = read(plan, &said)
        {
            seen.push(WindowReading { at_s: began.elapsed().as_secs_f64(), windows });
        }
    }
    seen
}

/// Parses the admin API's report of `[admission]`.
fn read(plan: &Plan, said: &[u8]) -> Option<Vec<Option<u32>>> {
    #[derive(Deserialize)]
    struct Said {
        stats: Stats,
    }
    #[derive(Deserialize)]
    struct Stats {
        resources: Vec<Resource>,
    }
    #[derive(Deserialize)]
    struct Resource {
        name: String,
        window: Option<u32>,
    }
    let said: Said = serde_json::from_slice(said).ok()?;
    let of = |name: &str| said.stats.resources.iter().find(|resource| resource.name == name)?.window;
    Some(plan.pages.iter().map(|page| of(&page.name).or_else(|| of(ONE))).collect())
}

/// Statistics of a page's windows in a span.
pub(super) fn adjusted(seen: &[WindowReading], page: usize, span: Span) -> Option<Adjusted> {
    let within = seen.iter().filter(|seen| (span.from_s..span.until_s).contains(&seen.at_s));
    let windows: Vec<u32> = within.filter_map(|seen| seen.windows[page]).collect();
    let (least, most) = (*windows.iter().min()?, *windows.iter().max()?);
    let mean = windows.iter().map(|&window| f64::from(window)).sum::<f64>() / windows.len() as f64;
    Some(Adjusted { mean, least, most })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::plan::tests::plan;

    #[test]
    fn windows_are_read_by_the_names_of_pages() {
        let plan = plan(&[]);
        let said = br#"{"settings":{},"stats":{"resources":[{"name":"site","window":null,"running":0},
            {"name":"db","window":8},{"name":"cpu","window":2}]}}"#;
        assert_eq!(read(&plan, said), Some(vec![Some(2), None, Some(8)]));
        let one = br#"{"stats":{"resources":[{"name":"site","window":5}]}}"#;
        assert_eq!(read(&plan, one), Some(vec![Some(5); 3]));
        assert_eq!(read(&plan, b"{}"), None);
    }

    #[test]
    fn what_windows_were_is_of_the_span_alone() {
        let seen = |(at_s, window)| WindowReading { at_s, windows: vec![Some(window)] };
        let seen: Vec<WindowReading> =
            [(1.0, 9), (10.0, 2), (15.0, 3), (19.0, 4), (20.0, 1)].into_iter().map(seen).collect();
        assert_eq!(adjusted(&seen, 0, Span::new(10, 20)), Some(Adjusted { mean: 3.0, least: 2, most: 4 }));
        assert_eq!(adjusted(&seen, 0, Span::new(30, 40)), None);
    }
}
