//! Cells that must not be trusted change no number.

use super::*;

/// All numbers of a report except those of single measurements.
fn numbers(report: &Report) -> serde_json::Value {
    let mut points = serde_json::to_value(&report.points).unwrap();
    for row in points.as_array_mut().unwrap().iter_mut().flat_map(|point| point["rows"].as_array_mut().unwrap()) {
        row["invalid"].take();
    }
    json!([points, report.published, report.figures, report.paths])
}

#[test]
fn a_measurement_that_must_not_be_trusted_moves_no_number() {
    let (with, without) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let spoilt = |record: &CellRecord| [2, 3, 12].contains(&record.number);
    write(without.path(), |record, _| !spoilt(record));
    write(with.path(), |record, outcomes| {
        if spoilt(record) {
            record.facts.invalid.push("the server ended during the run".to_owned());
            record.facts.alone[0].least_ms = 0.1;
            record.facts.calibration.rate_bits_per_second = 1.0;
            record.facts.samples[2].established = 1_000_000;
            record.facts.system_calls = Some(1 << 40);
            outcomes.truncate(20);
            outcomes.iter_mut().for_each(|outcome| outcome.end_ns += 1_000_000_000_000);
        }
        true
    });
    let [with, without] = [&with, &without].map(|dir| Report::read(dir.path()).unwrap());
    assert_eq!(numbers(&with), numbers(&without));
    assert_eq!((with.cells.len(), with.missing.len(), with.invalid().count()), (12, 0, 3));
    assert_eq!(with.points[0].rows[1].seeds, [2, 3]);
    assert_eq!(with.points[0].rows[1].invalid, [(1, vec!["the server ended during the run".to_owned()])]);
    assert_eq!(with.points[0].rows[1].measures[&Measure::Gain].seeds, 1, "seed 1 lacks SRPT, seed 2 lacks PS");
    assert_eq!(
        with.cells.iter().filter(|cell| !cell.is_sound()).map(|cell| cell.number).collect::<Vec<_>>(),
        [2, 3, 12]
    );

    let comparison = Comparison::new(&[without, with]);
    assert!(comparison.judged() > 20 && comparison.only_in_some.is_empty());
    let mut differences = comparison.rows.iter().filter_map(|row| row.differences[1]);
    assert!(
        differences.all(|difference| difference.relative == 0.0 && difference.ratio.is_none_or(|r| r.value == 1.0))
    );
}

#[test]
fn a_point_without_a_measurement_that_can_be_trusted_has_no_numbers() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), |record, outcomes| {
        if record.point == 0 {
            record.facts.invalid.push("the server did not start".to_owned());
            record.facts.alone.clear();
            outcomes.clear();
        }
        true
    });
    let report = Report::read(dir.path()).unwrap();
    assert!(report.points[0].rows.iter().all(|row| row.measures.is_empty() && row.seeds.is_empty()));
    assert!(report.points[0].ideal.is_empty() && report.cells.iter().all(|cell| cell.notes.is_empty()));
    let text = terminal::Shown(&report).to_string();
    assert!(text.contains("load 0.5: no measurement of it can be trusted"), "{text}");
    assert!(text.contains("NOT VALID, left out: load 0.5, srpt, seed 3: the server did not start"), "{text}");
    let page = html::page(&report).unwrap();
    assert!(page.contains("load 0.5: no measurement of it can be trusted") && !page.contains("NaN"));
}
