use std::io::Write as _;

use workload::wire::WireModel;

use super::*;
use crate::{
    experiment::{Changes, Experiment, SHIPPED},
    setting::DemandSetting,
    subject::Subject,
};

fn setting(text: &str) -> Setting {
    let head = "name = 'x'\ntitle = 'y'\nsubjects = ['nginx']\n[setting]\n";
    Experiment::parse("x.toml", &format!("{head}{text}")).unwrap().points().unwrap().remove(0).setting
}

fn plan(text: &str) -> Result<Plan, LabError> {
    Plan::new(&setting(text), &mut Inputs::default())
}

#[test]
fn what_is_not_said_has_its_default() {
    let plan = plan("").unwrap();
    assert_eq!((plan.duration, plan.drain), (Duration::from_secs(60), Duration::from_secs(60)));
    assert_eq!((plan.groups.len(), plan.bed.paths.len(), plan.bed.gso_segments), (1, 1, 1));
    assert!(plan.bed.paths[0].is_none() && plan.wire == WireModel::PER_CONNECTION);
    assert_eq!(self::plan("link.rate = '100mbit'").unwrap().bed.gso_segments, 4);
    assert_eq!(self::plan("link = { rate = '100mbit', gso-segments = 2 }").unwrap().bed.gso_segments, 2);
}

#[test]
fn a_seed_decides_the_requests_and_who_asks_for_them() {
    let text = "time.seconds = 20\n[[setting.groups]]\nname = 'near'\nshare = 3\n[[setting.groups]]\nname = 'far'\npath.rtt-ms = 50\nclients.abort-after-s = 7";
    let plan = plan(text).unwrap();
    let requests = plan.requests(1).unwrap().unwrap();
    assert_eq!(plan.requests(1).unwrap().unwrap(), requests);
    assert_ne!(plan.requests(2).unwrap().unwrap(), requests);
    let far = requests.iter().filter(|request| request.group == 1).count() as f64 / requests.len() as f64;
    assert!((far - 0.25).abs() < 0.02, "{far}");
    assert_eq!(plan.groups[0].behaviour.abort_after_s, None);
    assert_eq!(plan.groups[1].behaviour.abort_after_s, Some(7.0));
    assert_eq!(plan.bed.paths[1].rtt_ms, 50.0);
}

#[test]
fn every_kind_of_demand_asks_for_files_that_are_there() {
    for text in [
        "demand = { sizes = 'nasa', files = 100, load = 0.5 }",
        "demand = { sizes = 'surge', files = 100, load = 0.5 }",
        "demand = { sizes = { fixed = 5000 }, requests-per-second = 20 }",
        "demand = { sizes = { heavy-tail = { min-bytes = 10, median-bytes = 500, knee-bytes = 9000, body-share = 0.9, alpha = 1.1, max-bytes = 1e6 } }, load = 0.5 }",
        "demand = { kind = 'sessions', files = 100, requests-per-session = 4, think-s = 0.1, load = 0.5 }",
        "demand = { kind = 'users', users = 10, files = 100 }",
    ] {
        let plan = plan(&format!("time.seconds = 5\n{text}")).unwrap();
        let Work { sizes_bytes, mut demand, .. } = plan.work(1).unwrap();
        let mut asked = 0;
        while let Some(at_ns) = demand.poll_timeout() {
            let Some(due) = demand.poll_request(at_ns) else { continue };
            assert_eq!(due.request.size_bytes, sizes_bytes[due.request.file as usize], "{text}");
            // Answered at once.
            due.user.into_iter().for_each(|user| demand.handle_end(user, at_ns));
            asked += 1;
        }
        assert!(asked > 10, "{text}: {asked}");
        assert_eq!(plan.requests(1).unwrap().is_some(), !text.contains("kind"), "{text}");
    }
}

#[test]
fn a_log_is_read_once_for_all_points_that_replay_it() {
    let mut log = tempfile::NamedTempFile::with_suffix(".log").unwrap();
    for n in 0..200 {
        writeln!(log, "h{} - - [01/Jul/1995:00:00:{:02} +0000] \"GET /{n} HTTP/1.0\" 200 {}", n % 7, n / 10, 1000 + n)
            .unwrap();
    }
    let text =
        format!("time.seconds = 10\ndemand = {{ kind = 'trace', file = '{}', load = 0.5 }}", log.path().display());
    let mut inputs = Inputs::default();
    let plans = [1, 2].map(|_| Plan::new(&setting(&text), &mut inputs).unwrap());
    // The file is gone, but still cached.
    drop(log);
    let again = Plan::new(&setting(&text), &mut inputs).unwrap();
    let work = again.work(3).unwrap();
    assert!(!work.notes.is_empty() && !work.sizes_bytes.is_empty());
    assert_eq!(plans[0].requests(3).unwrap(), again.requests(3).unwrap());
    assert!(plan(&text).unwrap_err().to_string().contains("there is no log"));
    // The log may name other groups here, so it must be read again.
    let other = format!("{text}\n[[setting.groups]]\nname = 'others'");
    assert!(Plan::new(&setting(&other), &mut inputs).unwrap_err().to_string().contains("there is no log"));
}

#[test]
fn a_handshake_is_shared_by_the_requests_of_its_connection() {
    let control = |text: &str| plan(text).unwrap().wire.control_bytes;
    let whole = WireModel::PER_CONNECTION.control_bytes;
    assert_eq!(control("clients.requests-per-connection = 5"), whole / 5);
    assert_eq!(control("clients.requests-per-connection = 0"), 0);
    assert_eq!(plan("[[setting.groups]]\npath.mss-bytes = 536").unwrap().wire.segment_bytes, 524);
    // The group with most of the requests decides.
    let two = "[[setting.groups]]\nshare = 2\nclients.requests-per-connection = 0\n[[setting.groups]]\nname = 'b'";
    assert_eq!(control(two), 0);
}

#[test]
fn what_cannot_be_measured_is_refused_with_its_key() {
    for (text, part) in [
        ("demand.load = 0", "demand.load"),
        ("demand.load = -0.5", "demand.load"),
        ("demand.requests-per-second = 0", "demand.requests-per-second"),
        ("demand.pattern = 'w11'", "`w11`"),
        ("demand.pattern = '@/no/such/file'", "/no/such/file"),
        ("demand = { files = 0, load = 0.5 }", "demand.files"),
        (
            "demand = { sizes = { heavy-tail = { min-bytes = 10, median-bytes = 5, knee-bytes = 9000, body-share = 0.9, alpha = 1.1, max-bytes = 1e6 } }, load = 0.5 }",
            "heavy-tail",
        ),
        ("demand = { kind = 'users', users = 0 }", "demand.users"),
        ("demand = { kind = 'sessions', requests-per-session = 0.5, think-s = 1, load = 0.5 }", "sessions of 0.5"),
        ("demand = { kind = 'trace', file = 'no-such.log' }", "no-such.log"),
        ("time.seconds = 0", "time.seconds"),
        ("time.seconds = 1e9", "time.seconds"),
        ("time.drain-s = -1", "time.drain-s"),
        ("time = { seconds = 10, warm-up-s = 10 }", "time.warm-up-s"),
        ("link.rate-changes = [[5, '5mbit'], [4, '6mbit']]", "link.rate-changes"),
        ("link.uploads = [{ from-s = 1, until-s = 2 }]", "link.bottleneck"),
        ("link = { bottleneck = 'router', uploads = [{ from-s = 2, until-s = 2 }] }", "until-s"),
        ("link = { bottleneck = 'router', uploads = [{ from-s = -1, until-s = 2 }] }", "from-s"),
        ("link = { bottleneck = 'router', uploads = [{ until-s = 2, streams = 0 }] }", "streams"),
        ("[[setting.groups]]\nshare = 0", "groups"),
        ("[[setting.groups]]\npath.loss = 1.5", "loss"),
    ] {
        let error = plan(text).unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn distance_makes_a_measurement_longer() {
    let near = estimated_s(&setting("time.seconds = 30"));
    let far = estimated_s(&setting("time.seconds = 30\n[[setting.groups]]\npath.rtt-ms = 200"));
    assert!(near > 30.0 && far > near + 2.0, "{near} {far}");
}

#[test]
fn every_shipped_experiment_can_be_done_in_both_forms() {
    let mut inputs = Inputs::default();
    for (name, text) in SHIPPED {
        let full = Experiment::parse(name, text).unwrap();
        let quick = full.clone().changed(&Changes { quick: true, ..Changes::default() }).unwrap();
        for form in [full, quick] {
            for point in form.points().unwrap() {
                // The operator has to provide its log.
                if !matches!(point.setting.demand, DemandSetting::Trace { .. }) {
                    let plan = Plan::new(&point.setting, &mut inputs);
                    plan.unwrap_or_else(|error| panic!("{name}, {}: {error}", point.label));
                }
                for subject in &form.subjects {
                    subject.parse::<Subject>().unwrap().can(&point.setting).unwrap();
                }
            }
        }
    }
}
