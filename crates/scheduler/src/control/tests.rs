use alloc::{format, string::String, vec, vec::Vec};

use proptest::prelude::*;

use super::*;
use crate::{admission::ResourceId, time::Instant};

const MS: u64 = 1_000_000;

fn at(ms: u64) -> Instant {
    Instant::from_ns(ms * MS)
}

/// The paper's three types with the windows and bounds of its table 4.
fn paper() -> Settings {
    let window = |(first, ms): (u32, u64)| Some(Window { bound_ns: Some(ms * MS), ..Window::new(first) });
    Settings::new(Method::Probe, [(2, 450), (7, 420), (5, 380)].into_iter().map(window).collect())
}

fn answered(ms: u64) -> Probed {
    Probed::Answered { service_ns: ms * MS }
}

/// The windows of a type after each of the probing requests, as "5 5 4".
fn after(
    control: &mut (dyn Controller + Send),
    resource: ResourceId,
    probes: impl IntoIterator<Item = Probed>,
) -> String {
    let mut seen: Vec<String> = Vec::new();
    for probed in probes {
        control.handle_probed(at(0), resource, probed);
        while control.poll_window(at(0)).is_some() {}
        seen.push(format!("{}", control.window(resource).unwrap()));
    }
    seen.join(" ")
}

#[test]
fn the_papers_window_shrinks_with_the_fifth_late_answer_and_grows_with_the_tenth_in_time() {
    let mut control = paper().build().unwrap();
    let database = ResourceId(2);
    // A service time equal to the bound is late.
    assert_eq!(after(&mut *control, database, [answered(380); 10]), "5 5 5 5 4 4 4 4 4 3");
    assert_eq!(after(&mut *control, database, [answered(379); 11]), "3 3 3 3 3 3 3 3 3 4 4");
    // One late answer takes back the effect of a timely one. A missing answer is late.
    let turns = [Probed::Failed, answered(1)].into_iter().cycle().take(100);
    assert!(after(&mut *control, database, turns).ends_with("4 4"));
    assert_eq!((control.window(ResourceId(0)), control.window(ResourceId(1))), (Some(2), Some(7)));
}

#[test]
fn at_the_operators_limits_the_papers_counter_does_not_run_away() {
    let mut settings = paper();
    settings.windows[0] = Some(Window { least: 1, most: 3, ..settings.windows[0].unwrap() });
    let mut control = settings.build().unwrap();
    let seen = after(&mut *control, ResourceId(0), [Probed::Failed; 1000]);
    assert!(seen.ends_with(" 1 1") && !seen.contains('0'));
    // 14 timely answers bring it back, however long the overload was.
    assert!(after(&mut *control, ResourceId(0), [answered(1); 14]).ends_with("1 2"));
    assert!(after(&mut *control, ResourceId(0), [answered(1); 1000]).ends_with("3 3"));
    assert!(after(&mut *control, ResourceId(0), [answered(450); 14]).ends_with("3 2"));
}

#[test]
fn probing_requests_go_after_a_minute_every_second_and_none_while_one_is_under_way() {
    let mut control = paper().build().unwrap();
    let mut sent: Vec<(u64, u16)> = Vec::new();
    for ms in (0..64_000).step_by(500) {
        while let Some(resource) = control.poll_probe(at(ms)) {
            sent.push((ms, resource.0));
            // The disk does not answer.
            if resource != ResourceId(1) {
                control.handle_probed(at(ms), resource, answered(1));
            }
        }
        assert!(ms < 60_000 || control.poll_timeout().is_some_and(|next| next > at(ms)));
    }
    let of = |resource| sent.iter().filter(|it| it.1 == resource).map(|it| it.0).collect::<Vec<_>>();
    assert_eq!(of(0), [60_000, 61_000, 62_000, 63_000]);
    assert_eq!(of(1), [60_000]);
}

#[test]
fn what_contradicts_itself_is_refused() {
    let good = Window::new(4);
    let refused = |method, window| Settings::new(method, vec![None, Some(window)]).build().unwrap_err();
    let id = ResourceId(1);
    for method in Method::ALL {
        assert_eq!(refused(method, Window { least: 0, ..good }), SettingsError::Least(id));
        assert_eq!(refused(method, Window { least: 5, ..good }), SettingsError::First(id));
        assert_eq!(refused(method, Window { most: 3, ..good }), SettingsError::First(id));
    }
    assert_eq!(refused(Method::Probe, good), SettingsError::Bound(id));
    let without_time = Settings { probe_every_ns: 0, ..paper() };
    assert_eq!(without_time.build().unwrap_err(), SettingsError::Probes);
    assert_eq!(Settings { grow_below: 1, ..paper() }.build().unwrap_err(), SettingsError::Probes);
    assert_eq!(Window::new(5000).most, 5000);
}

#[derive(Clone, Debug)]
enum Happens {
    Finished { resource: u16, route: u64, service_ms: u64, done: bool },
    Load { resource: u16, running: u32, waiting: bool },
    Probed { resource: u16, ms: Option<u64> },
    Asked,
}

fn happens() -> impl Strategy<Value = (u64, Happens)> {
    let finished = (0u16..4, 0u64..3, 0u64..2000, prop::bool::weighted(0.9))
        .prop_map(|(resource, route, service_ms, done)| Happens::Finished { resource, route, service_ms, done });
    let load = (0u16..4, 0u32..60, any::<bool>()).prop_map(|(resource, running, waiting)| Happens::Load {
        resource,
        running,
        waiting,
    });
    let probed = (0u16..4, prop::option::of(0u64..1000)).prop_map(|(resource, ms)| Happens::Probed { resource, ms });
    // Time stands still, goes on, and leaps.
    let ms = prop_oneof![Just(0), 1u64..50, 1u64..2_000, Just(120_000)];
    (ms, prop_oneof![6 => finished, 3 => load, 1 => probed, 1 => Just(Happens::Asked)])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    /// After any events: windows are within the limits, change only through `poll_window`, and every time-out
    /// passes.
    #[test]
    fn every_controller_keeps_to_the_limits(
        method in prop::sample::select(&Method::ALL[..]),
        limits in (1u32..5, 0u32..20, 0u32..20),
        events in prop::collection::vec(happens(), 0..200),
    ) {
        let (least, first, most) = (limits.0, limits.0 + limits.1, limits.0 + limits.1 + limits.2);
        let window = Window { first, least, most, bound_ns: Some(300 * MS) };
        let mut control = Settings::new(method, vec![Some(window), None, Some(Window { bound_ns: Some(1), ..Window::new(3) })]).build().unwrap();
        let mut windows = [Some(first), None, Some(3), None];
        let mut now = at(0);
        for (ms, event) in events {
            now = now.add_ns(ms * MS);
            match event {
                Happens::Finished { resource, route, service_ms, done } => {
                    let resource = ResourceId(resource);
                    control.handle_finished(now, &Finished { resource, route, service_ns: service_ms * MS, done });
                }
                Happens::Load { resource, running, waiting } => {
                    control.handle_load(now, ResourceId(resource), Load { running, waiting });
                }
                Happens::Probed { resource, ms } => {
                    let probed = ms.map_or(Probed::Failed, answered);
                    control.handle_probed(now, ResourceId(resource), probed);
                }
                Happens::Asked => while control.poll_probe(now).is_some() {},
            }
            let mut changes = 0;
            while let Some(change) = control.poll_window(now) {
                let limits = if change.resource == ResourceId(0) { least..=most } else { 1..=1000 };
                prop_assert!(limits.contains(&change.window), "{:?}", change);
                prop_assert_ne!(windows[change.resource.index()], Some(change.window));
                windows[change.resource.index()] = Some(change.window);
                changes += 1;
                prop_assert!(changes < 10, "it does not come to an end");
            }
            for (window, id) in windows.iter().zip((0..).map(ResourceId)) {
                prop_assert_eq!(control.window(id), *window);
            }
            prop_assert!(method != Method::Fixed || changes == 0);
            while control.poll_probe(now).is_some() {}
            prop_assert!(control.poll_timeout().is_none_or(|next| next > now), "{:?} at {:?}", control.poll_timeout(), now);
        }
    }
}

/// A site that always has waiting requests; its throughput depends on the window.
struct Site {
    control: Box<dyn Controller + Send>,
    now_ns: f64,
    window: u32,
    changes: Vec<(u64, u32, Reason)>,
}

impl Site {
    fn new(first: u32) -> Self {
        let control = Settings::new(Method::Knee, vec![Some(Window::new(first))]).build().unwrap();
        Self { control, now_ns: 0.0, window: first, changes: Vec::new() }
    }

    fn now(&self) -> Instant {
        Instant::from_ns(self.now_ns as u64)
    }

    fn tell(&mut self) {
        let (now, load) = (self.now(), Load { running: self.window, waiting: true });
        self.control.handle_load(now, ResourceId(0), load);
        while let Some(change) = self.control.poll_window(now) {
            self.window = change.window;
            self.changes.push((now.as_ns(), change.window, change.reason));
            self.control.handle_load(now, ResourceId(0), Load { running: self.window, waiting: true });
        }
    }

    /// Finishes `requests` requests. `next` maps a number and a window to the seconds since the previous one,
    /// the route, and whether the request was done.
    fn run(&mut self, requests: u64, next: impl Fn(u64, u32) -> (f64, u64, bool)) {
        self.tell();
        for number in 0..requests {
            let (gap, route, done) = next(number, self.window);
            self.now_ns += gap * 1e9;
            let service_ns = (gap * f64::from(self.window) * 1e9) as u64;
            let finished = Finished { resource: ResourceId(0), route, service_ns, done };
            self.control.handle_finished(self.now(), &finished);
            self.tell();
        }
    }
}

/// A database with locks. Its best throughput, 29 requests a second, is with 7 requests at once.
fn locks(window: u32) -> f64 {
    let n = f64::from(window);
    10.0 * n / (1.0 + 0.1 * (n - 1.0) + 0.02 * n * (n - 1.0))
}

#[test]
fn ours_finds_the_knee_from_below_and_from_far_above_and_then_rests() {
    for first in [1, 7, 30, 200] {
        let mut site = Site::new(first);
        site.run(30_000, |_, window| (1.0 / locks(window), 0, true));
        assert!(locks(site.window) > 0.94 * locks(7), "from {first}: {}", site.window);
        let settled = site.changes.len();
        site.run(20_000, |_, window| (1.0 / locks(window), 0, true));
        let later = &site.changes[settled..];
        assert!(later.iter().all(|it| locks(it.1) > 0.85 * locks(7)), "from {first}: {later:?}");
        assert!(later.len() < 1200, "from {first}: {}", later.len());
    }
}

#[test]
fn an_error_that_comes_quickly_is_no_throughput() {
    let mut site = Site::new(4);
    // Beyond 8 at once the site refuses requests, a hundred times as fast.
    site.run(40_000, |number, window| {
        let refused = window > 8 && number % 20 != 0;
        if refused { (0.001, 0, false) } else { (0.1 / f64::from(window.min(8)), 0, true) }
    });
    assert!((4..=9).contains(&site.window), "{}", site.window);
}

#[test]
fn a_route_that_needs_ten_times_the_work_is_no_congestion() {
    // The worst case: expensive requests come mostly while the window is wide, so a narrow one seems to serve
    // more.
    let mut site = Site::new(7);
    site.run(60_000, |number, window| {
        let dear = number * 7 % 10 < if window >= 5 { 8 } else { 2 };
        (if dear { 5.0 } else { 0.5 } / locks(window), u64::from(dear), true)
    });
    assert!(locks(site.window) > 0.94 * locks(7), "{}", site.window);
}

#[test]
fn a_silent_site_ends_the_trial_at_the_time_out_and_teaches_nothing() {
    let mut site = Site::new(4);
    site.run(120, |_, window| (1.0 / locks(window), 0, true));
    let trying = site.window;
    assert_ne!(trying, 4, "a trial is under way");
    let silent = site.control.poll_timeout().unwrap();
    assert!(silent.ns_since(site.now()) < 5_000 * MS);
    site.now_ns = silent.as_ns() as f64;
    site.tell();
    assert_eq!((site.window, site.changes.last().unwrap().2), (4, Reason::Interrupted));
    // A request that waited for 20 s counts for nothing, and no trial begins before such requests are gone.
    let changes = site.changes.len();
    site.now_ns += 20e9;
    for _ in 0..200 {
        let finished = Finished { resource: ResourceId(0), route: 0, service_ns: 20_000 * MS, done: true };
        site.now_ns += 1e6;
        site.control.handle_finished(site.now(), &finished);
        site.tell();
    }
    assert_eq!(site.changes.len(), changes);
    site.run(20_000, |_, window| (1.0 / locks(window), 0, true));
    assert!(locks(site.window) > 0.94 * locks(7), "{}", site.window);
}

/// A site that works in lockstep: all its requests end at the same moment, after the time that `step`
/// returns.
fn in_step(first: u32, steps: u64, step: impl Fn(u32) -> f64) -> Site {
    let mut site = Site::new(first);
    site.tell();
    for _ in 0..steps {
        let (together, seconds) = (site.window, step(site.window));
        site.now_ns += seconds * 1e9;
        for _ in 0..together {
            let finished =
                Finished { resource: ResourceId(0), route: 0, service_ns: (seconds * 1e9) as u64, done: true };
            site.control.handle_finished(site.now(), &finished);
        }
        site.tell();
        // Time-outs between.
        while let Some(at) =
            site.control.poll_timeout().filter(|at| at.as_ns() < (site.now_ns + step(site.window) * 1e9) as u64)
        {
            site.control.poll_window(at);
            site.window = site.control.window(ResourceId(0)).unwrap();
        }
    }
    site
}

/// Eight servers that slow one another down beyond `knee`.
fn servers(window: u32, knee: u32, thrash: f64) -> f64 {
    f64::from(window.min(8)) / (1.0 + thrash * f64::from(window.saturating_sub(knee)))
}

#[test]
fn answers_at_the_same_moment_are_counted_together() {
    for first in [1, 3, 11, 30] {
        let site = in_step(first, 4000, |window| 0.04 * f64::from(window) / servers(window, 20, 0.2));
        assert!((8..=20).contains(&site.window), "from {first}: {}", site.window);
    }
}

#[test]
fn a_window_so_wide_that_the_site_falls_silent_is_not_tried_again_and_again() {
    let site = in_step(10, 2000, |window| 0.018 * f64::from(window) / servers(window, 10, 0.5));
    assert!((7..=10).contains(&site.window), "{}", site.window);
    let wide = site.changes.iter().filter(|it| it.1 >= 40).count();
    assert!(wide <= 2, "{wide} of {:?}", site.changes);
}

#[test]
fn a_first_window_is_approached_from_a_small_one_and_only_as_far_as_it_serves_more() {
    let windows = |first, serves: &dyn Fn(u32) -> f64| {
        let mut site = Site::new(first);
        site.run(350, |_, window| (1.0 / serves(window), 0, true));
        site.changes.iter().map(|it| it.1).collect::<Vec<_>>()
    };
    assert_eq!(windows(40, &|window| f64::from(window))[..5], [4, 8, 16, 32, 40]);
    // A small first window is not approached in steps. No step goes where twice as many requests serve less.
    assert_eq!(windows(3, &locks)[0], 6);
    for first in [9, 60, 1000] {
        let windows = windows(first, &locks);
        assert!(windows[0] == 4 && windows.iter().all(|&window| window <= 8), "from {first}: {windows:?}");
    }
}

#[test]
fn the_approach_keeps_to_the_operators_least() {
    let mut sites = Sites::new(&[Window { least: 6, ..Window::new(30) }]);
    sites.run(0, 400, |_, window, _| 1.0 / f64::from(window), |window| window, true);
    assert_eq!(sites.changes.iter().map(|it| it.1).collect::<Vec<_>>()[..4], [6, 12, 24, 30]);
}

/// Several types, each with its own site. `gap` maps a type, its window and its count of finished requests to
/// the seconds until its next one.
struct Sites {
    control: Box<dyn Controller + Send>,
    now_ns: f64,
    due_ns: Vec<f64>,
    windows: Vec<u32>,
    finished: Vec<u64>,
    changes: Vec<(u16, u32, Reason)>,
}

impl Sites {
    fn new(windows: &[Window]) -> Self {
        let control = Settings::new(Method::Knee, windows.iter().copied().map(Some).collect()).build().unwrap();
        let windows: Vec<u32> = windows.iter().map(|it| it.first).collect();
        let (due_ns, finished) = (vec![0.0; windows.len()], vec![0; windows.len()]);
        Self { control, now_ns: 0.0, due_ns, windows, finished, changes: Vec::new() }
    }

    /// Runs until the type has finished `requests` more. `running` maps a window to the number of running
    /// requests.
    fn run(
        &mut self,
        of: usize,
        requests: u64,
        gap: impl Fn(usize, u32, u64) -> f64,
        running: impl Fn(u32) -> u32,
        waiting: bool,
    ) {
        let until = self.finished[of] + requests;
        while self.finished[of] < until {
            let next = (0..self.windows.len()).min_by(|&a, &b| self.due_ns[a].total_cmp(&self.due_ns[b])).unwrap();
            self.now_ns = self.now_ns.max(self.due_ns[next]);
            let (now, seconds) =
                (Instant::from_ns(self.now_ns as u64), gap(next, self.windows[next], self.finished[next]));
            self.due_ns[next] = self.now_ns + seconds * 1e9;
            self.finished[next] += 1;
            let service_ns = (seconds * f64::from(self.windows[next]) * 1e9) as u64;
            let resource = ResourceId(next as u16);
            self.control.handle_finished(now, &Finished { resource, route: 0, service_ns, done: true });
            loop {
                for (id, &window) in (0..).map(ResourceId).zip(&self.windows) {
                    self.control.handle_load(now, id, Load { running: running(window), waiting });
                }
                let Some(change) = self.control.poll_window(now) else { break };
                self.windows[change.resource.index()] = change.window;
                self.changes.push((change.resource.0, change.window, change.reason));
            }
        }
    }
}

#[test]
fn a_slow_type_whose_windows_cannot_be_told_apart_does_not_hold_up_a_fast_one() {
    let mut sites = Sites::new(&[Window::new(1), Window::new(24)]);
    let gap = |of, window: u32, _| match of {
        0 => 0.025 / f64::from(window.min(8)),
        _ => 0.1 / libm::pow(f64::from(window), 0.04),
    };
    // The slow type finishes one request for eight to thirty of the fast one.
    sites.run(0, 8000, gap, |window| window, true);
    assert!(sites.windows[0] >= 8, "{:?}", sites.changes);
    assert!(sites.changes.iter().any(|it| it.0 == 1), "it has its turn");
}

#[test]
fn the_noise_of_another_type_does_not_drown_a_gain() {
    let tried = |types: usize| {
        let still = Window { most: 4, least: 4, ..Window::new(4) };
        let mut sites = Sites::new(&[&[Window::new(1)][..], &vec![still; types - 1]].concat());
        // For the first type a window twice as wide serves 25 % more; the others vary at random.
        let gap = |of: usize, window: u32, number: u64| match of {
            0 => 0.01 / libm::pow(f64::from(window), 0.32),
            _ => {
                let drawn = (number * 3 + of as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                let drawn = (drawn ^ (drawn >> 31)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 11;
                -0.008 * libm::log((drawn as f64 + 1.0) / (1u64 << 53) as f64)
            }
        };
        while sites.windows[0] < 8 || sites.finished[0] < 100 {
            sites.run(0, 10, gap, |window| window, true);
            assert!(sites.finished[0] < 100_000, "{:?}", sites.changes);
        }
        sites.finished[0]
    };
    let (alone, beside) = (tried(1), tried(3));
    assert!(2 * beside < 3 * alone, "{alone} alone, {beside} beside two others");
}

#[test]
fn windows_far_apart_that_cannot_be_told_apart_are_left_for_nearer_ones_soon() {
    // A window without waiting requests for long, and now requests wait: it may be far too wide.
    let mut sites = Sites::new(&[Window { most: 8, ..Window::new(8) }]);
    sites.run(0, 400, |_, window, _| 1.0 / f64::from(window), |window| window, true);
    sites.run(0, 4000, |_, _, _| 0.03, |_| 2, false);
    sites.changes.clear();
    // Every wider window gains just the amount that it must pay.
    sites.run(0, 3000, |_, window, _| 0.02 / libm::pow(f64::from(window), 0.04), |window| window, true);
    let tried: Vec<u32> = sites.changes.iter().map(|it| it.1).collect();
    assert!(tried.starts_with(&[2, 8]) && tried.iter().any(|it| ![2, 8].contains(it)), "{tried:?}");
}

#[test]
fn whether_anybody_waits_is_judged_by_the_trial_and_not_by_its_beginning() {
    let mut sites = Sites::new(&[Window::new(4)]);
    let gap = |_, window: u32, _| 0.02 * libm::pow(f64::from(window) / 4.0, 0.16);
    sites.run(0, 62, gap, |window| window, false);
    assert_eq!(sites.changes.len(), 0);
    sites.run(0, 6500, gap, |window| window, true);
    // A narrower window that serves 4.6 % more is better while requests wait, and is not while none wait.
    assert!(sites.changes.iter().any(|it| it.2 == Reason::Better), "{:?}", sites.changes);
}

#[test]
fn a_window_that_rests_because_nobody_waits_is_looked_at_when_somebody_does() {
    let mut sites = Sites::new(&[Window { most: 54, ..Window::new(54) }]);
    sites.run(0, 600, |_, window, _| 1.0 / f64::from(window), |window| window, true);
    sites.run(0, 1500, |_, _, _| 0.03, |_| 2, false);
    let rests = (sites.changes.len(), sites.windows[0]);
    sites.run(0, 2000, |_, _, _| 0.03, |_| 2, false);
    assert_eq!((sites.changes.len(), sites.windows[0]), (rests.0, 54));
    // All slots are taken, and the site is slow.
    sites.run(0, 1500, |_, window, _| 1.0 / locks(window), |window| window, true);
    assert!(sites.windows[0] < 20, "{:?}", sites.changes);
}
