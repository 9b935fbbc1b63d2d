//! Simulated runs are marked as such, and can be compared with measured ones.

use super::*;

fn write_simulated(dir: &Path, packets: Option<PacketCounts>) {
    let notes = vec!["TLS is not simulated".to_owned()];
    let simulated = Simulated { model: "packets".to_owned(), name: "packet model".to_owned(), notes };
    write_run(dir, RunRecord { simulated: Some(simulated), ..record() }, |record, _| {
        record.facts = Facts::simulated(SimulatedFacts {
            command: "fair".to_owned(),
            alone: record.facts.alone.clone(),
            link_bytes: packets.map(|_| (6_250_000, 6_250_000)),
            packets,
            most_concurrent: 3,
            took_s: 11.0,
            notes: Vec::new(),
            invalid: Vec::new(),
        });
        true
    });
}

fn columns(report: &Report) -> String {
    let text = terminal::Shown(report).to_string();
    // The heads of all tables, which may come in parts.
    text.lines().filter(|line| line.starts_with("subject")).collect()
}

#[test]
fn a_simulation_says_so_wherever_it_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    write_simulated(dir.path(), None);
    let report = Report::read(dir.path()).unwrap();
    let text = terminal::Shown(&report).to_string();
    for part in
        ["SIMULATED: packet model. Nothing here was measured", "TLS is not simulated", "Published beside simulated"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let page = html::page(&report).unwrap();
    for part in ["Simulated: packet model. Nothing here was measured.", "TLS is not simulated", "any machine"] {
        assert!(page.contains(part), "{part}");
    }
    let subjects = report.figures.iter().flat_map(|plot| &plot.series).filter(|series| series.kind.is_measured());
    assert!(subjects.map(|series| &series.name).all(|name| name.ends_with(", simulated")));
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["simulated"]["model"], "packets");
    assert!(json["cells"][0]["calibration"].is_null());
}

#[test]
fn what_only_a_bed_has_is_left_out_and_not_zero() {
    let dir = tempfile::tempdir().unwrap();
    write_simulated(dir.path(), None);
    let report = Report::read(dir.path()).unwrap();
    let shown = columns(&report);
    for column in ["link use", "queue drops", "retransm.", "SYN", "CPU", "calls", "memory"] {
        assert!(!shown.contains(column), "{column}: {shown}");
    }
    let page = html::page(&report).unwrap();
    assert!(!page.contains("calibrated") && !page.contains("emulation") && !page.contains("Root, the versions"));
    let row = &report.points[0].rows[0];
    assert!(!row.measures.contains_key(&Measure::CpuUs) && !row.measures.contains_key(&Measure::LinkUse));
    assert!(row.measures.contains_key(&Measure::MeanMs) && report.paths.is_empty());

    let dir = tempfile::tempdir().unwrap();
    write_simulated(dir.path(), Some(PacketCounts { dropped: 7, sent_again: 5 }));
    let report = Report::read(dir.path()).unwrap();
    let shown = columns(&report);
    assert!(
        shown.contains("link use") && shown.contains("queue drops") && !shown.contains("CPU") && !shown.contains("SYN"),
        "{shown}"
    );
    let row = &report.points[0].rows[0];
    // Three seeds.
    assert_eq!((row.queue_drops, row.segments_retransmitted), (21, 15));
    assert!((row.measures[&Measure::LinkUse].value - 0.5).abs() < 1e-9);
}

#[test]
fn a_measurement_and_its_simulation_stand_beside_each_other() {
    let (measured, simulated) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write(measured.path(), |_, _| true);
    write_simulated(simulated.path(), None);
    let reports = [&measured, &simulated].map(|dir| Report::read(dir.path()).unwrap());
    let comparison = Comparison::new(&reports);
    let text = comparison.to_string();
    assert!(text.contains("SIMULATED: packet model") && text.contains("run 2, simulated"), "{text}");
    assert!(!text.contains("run 1, simulated") && comparison.only_in_some.is_empty(), "{text}");
    assert!(html::comparison(&comparison).unwrap().contains("Simulated: packet model"));
    let measures: Vec<Measure> = comparison.rows.iter().map(|row| row.measure).collect();
    assert!(measures.contains(&Measure::MeanMs) && !measures.contains(&Measure::CpuUs));
    // Both runs have the same outcomes here.
    assert!(comparison.rows.iter().filter_map(|row| row.differences[1]).all(|difference| difference.relative == 0.0));
}
