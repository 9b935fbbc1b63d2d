//! Tests of network paths, costs of the server, and the width of lines in a terminal.

use super::*;

#[test]
fn what_paths_were_set_to_be_stands_beside_what_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let mut run = record();
    for (number, point) in run.points.iter_mut().enumerate() {
        let far = if number == 0 { 50 } else { 350 };
        let groups = format!(
            "[[groups]]\nname = 'near'\n[[groups]]\nname = 'far'\npath = {{ rtt-ms = {far}, jitter-ms = 10, loss = 0.03, rate = '1mbit' }}"
        );
        point.setting.groups = toml::from_str::<Setting>(&groups).unwrap().groups;
    }
    write_run(dir.path(), run, |record, _| {
        let set_ms = [50.0, 350.0][record.point];
        // Seeds 1, 2 and 3 have a mean of 2.
        let seed = record.seed as f64;
        record.facts.calibration.paths = serde_json::from_value(json!([
            { "group": 0, "rtt_median_ms": 0.1, "rtt_deviation_ms": 0.01, "packets": 100 },
            { "group": 1, "rtt_median_ms": set_ms + seed - 2.0, "rtt_deviation_ms": 5.0 * seed, "loss": 0.015 * seed,
              "packets": 100, "rate_bits_per_second": 1e6 },
        ]))
        .unwrap();
        let wan = json!({ "groups": [], "strangers": 0, "overflows": 0, "refused": 0, "lateness_p50_us": 1.0,
                          "lateness_p99_us": 100.0 * seed, "lateness_max_us": 900.0 });
        record.facts.wan = Some(serde_json::from_value(wan).unwrap());
        true
    });
    let report = Report::read(dir.path()).unwrap();
    let ways: Vec<(&str, &[String])> = report.paths.iter().map(|row| (&*row.group, &*row.points)).collect();
    let labels = ["load 0.5".to_owned(), "load 0.8".to_owned()];
    assert_eq!(ways, [("near", &labels[..]), ("far", &labels[..1]), ("far", &labels[1..])]);
    let table = crate::report::tables::paths(&report);
    let far = ["far", "load 0.8", "own", "350.0 / 350.0", "10.00 / 10.00", "3.00 % / 3.00 %", "1mbit / 1.00 Mbit/s"];
    assert_eq!(table.rows[2][..7], far);
    assert_eq!(table.rows[2][7..], ["10mbit / 10.00 Mbit/s", "300 / 900"]);
    assert_eq!(table.rows[0][..5], ["near", "all", "own", "0 / 0.1000", "0 / 0.01000"]);
    assert!(terminal::Shown(&report).to_string().contains("350.0 / 350.0"));
    assert!(html::page(&report).unwrap().contains("350.0 / 350.0"));
}

#[test]
fn what_the_server_needed_is_among_the_costs() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), |record, outcomes| {
        record.facts.system_calls = (record.subject == 1).then_some(8 * outcomes.len() as u64);
        record.facts.samples[1].resident_bytes = 5_000_000;
        true
    });
    let table = crate::report::tables::costs(&Report::read(dir.path()).unwrap().points[0]);
    assert_eq!(table.head[12..], ["calls", "memory MB"]);
    assert_eq!(
        (&table.rows[0][12..], &table.rows[1][12..]),
        (&["-", "5.000"].map(str::to_owned)[..], &["8.000", "5.000"].map(str::to_owned)[..])
    );
}

#[test]
fn long_names_of_places_do_not_widen_the_terminals_table() {
    let dir = tempfile::tempdir().unwrap();
    let text = terminal::Shown(&whole(dir.path())).to_string();
    let lines: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("Published")).skip(1).collect();
    let (table, places) = lines.split_at(lines.iter().position(|line| line.starts_with("  [1]")).unwrap());
    assert!(table.iter().all(|line| line.chars().count() <= 120), "{}", table.join("\n"));
    assert!(table[2].contains("mean-ms over ps's"), "{}", table.join("\n"));
    assert!(["[1]", "[2]", "[3]"].iter().all(|end| table.iter().any(|line| line.ends_with(end))));
    assert_eq!((places[0], places[2]), ("  [1] figure 3", "  [3] figure 4"));
    assert!(places[1].starts_with("  [2] section 5: about half"));
}
