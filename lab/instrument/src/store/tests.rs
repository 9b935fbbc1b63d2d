use workload::outcome::End;

use super::*;
use crate::{
    bed::Calibration,
    experiment::Experiment,
    record::{Facts, Simulated},
};

fn record() -> RunRecord {
    let text = "name = 'x'\ntitle = 'y'\nsubjects = ['nginx', 'serpent:srpt']\nseeds = [7, 8]\n[sweep]\n'demand.load' = [0.5, 0.8]";
    let experiment = Experiment::parse("x.toml", text).unwrap();
    RunRecord {
        quick: false,
        flags: Vec::new(),
        command: "serpent-lab run x.toml".to_owned(),
        versions: vec!["Linux".to_owned()],
        began_unix_s: 1,
        points: experiment.points().unwrap(),
        subjects: experiment.subjects.clone(),
        seeds: experiment.seeds.clone(),
        experiment,
        simulated: None,
        shard: None,
    }
}

fn cell(number: usize) -> CellRecord {
    let calibration = Calibration {
        rate_bits_per_second: 1e7,
        rate_ratio: 1.0,
        mean_frame_bytes: 1514.0,
        congestion: "cubic".to_owned(),
        paths: Vec::new(),
    };
    let facts = Facts {
        command: "nginx".to_owned(),
        calibration,
        connections: 1,
        most_concurrent: 1,
        took_s: 1.0,
        ..Facts::nothing()
    };
    CellRecord { number, point: 0, subject: 0, seed: 7, facts }
}

fn outcomes(count: u64) -> Vec<Outcome> {
    let outcome = |at_ns| Outcome {
        at_ns,
        file: 1,
        size_bytes: 2,
        group: 0,
        attempts: 1,
        sent_ns: at_ns,
        first_byte_ns: Some(at_ns + 5),
        // Different in each, so that compression is not trivial.
        end_ns: at_ns + at_ns.wrapping_mul(0x9e37_79b9) % 1000,
        body_bytes: 2,
        head_bytes: 250,
        end: End::Done,
    };
    (0..count).map(outcome).collect()
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn what_is_kept_is_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("new/run");
    let writer = Writer::create(&dir, record()).unwrap();
    writer.keep(&cell(3), &outcomes(1000)).unwrap();
    writer.keep(&cell(1), &[]).unwrap();
    assert_eq!(names(&dir), ["cells", "run.json"]);
    assert_eq!(names(&dir.join("cells")), ["0001.json", "0001.ndjson.zst", "0003.json", "0003.ndjson.zst"]);

    let run = Run::open(&dir).unwrap();
    assert_eq!(run.record().points, record().points);
    assert_eq!(run.cells().unwrap().iter().map(|cell| cell.number).collect::<Vec<_>>(), [1, 3]);
    assert!(run.has_cell(3) && !run.has_cell(2));
    assert_eq!(run.outcomes(3).unwrap().collect::<Result<Vec<_>, _>>().unwrap(), outcomes(1000));
    assert_eq!(run.outcomes(1).unwrap().count(), 0);
    assert!(run.outcomes(2).is_err());
}

#[test]
fn cells_are_counted_with_points_outermost_then_seeds_then_subjects() {
    let record = record();
    let cells: Vec<_> = record.cells().map(|cell| (cell.number, cell.point, cell.seed, cell.subject)).collect();
    assert_eq!(cells.len(), 8);
    assert_eq!(cells[..5], [(1, 0, 7, 0), (2, 0, 7, 1), (3, 0, 8, 0), (4, 0, 8, 1), (5, 1, 7, 0)]);
}

#[test]
fn subjects_take_turns_in_being_measured_first() {
    let record = record();
    let order: Vec<_> = record.cells_in_turn().map(|cell| cell.number).collect();
    assert_eq!(order, [1, 2, 4, 3, 6, 5, 7, 8]);
    assert!(record.cells_in_turn().all(|cell| record.cells().nth(cell.number - 1) == Some(cell)));
}

#[test]
fn a_cell_that_was_not_written_to_its_end_is_no_cell() {
    let dir = tempfile::tempdir().unwrap();
    let writer = Writer::create(dir.path(), record()).unwrap();
    fs::write(dir.path().join("cells/0001.json.part"), "{").unwrap();
    fs::write(dir.path().join("cells/0002.ndjson.zst"), "").unwrap();
    assert_eq!(writer.run().cells().unwrap().len(), 0);
    // The cell can be measured again.
    writer.keep(&cell(1), &outcomes(1)).unwrap();
    assert_eq!(writer.run().cells().unwrap().len(), 1);
}

#[test]
fn requests_that_were_cut_off_end_with_an_error_that_says_where() {
    let dir = tempfile::tempdir().unwrap();
    let writer = Writer::create(dir.path(), record()).unwrap();
    writer.keep(&cell(1), &outcomes(20_000)).unwrap();
    let file = dir.path().join("cells/0001.ndjson.zst");
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    let read: Vec<_> = writer.run().outcomes(1).unwrap().collect();
    let (last, whole) = read.split_last().unwrap();
    assert!(whole.len() < 20_000 && whole.iter().all(Result::is_ok));
    assert!(last.as_ref().unwrap_err().to_string().contains("0001.ndjson.zst, line"), "{last:?}");
}

#[test]
fn a_folder_has_one_run_and_a_run_has_one_writer() {
    let dir = tempfile::tempdir().unwrap();
    assert!(Run::open(dir.path()).unwrap_err().to_string().contains("no run.json"));
    let writer = Writer::create(dir.path(), record()).unwrap();
    assert!(Writer::create(dir.path(), record()).unwrap_err().to_string().contains("--resume"));
    assert!(Writer::resume(dir.path()).unwrap_err().to_string().contains("another process"));
    drop(writer);
    Writer::resume(dir.path()).unwrap();
}

#[test]
fn what_was_simulated_is_not_measured_to_its_end_nor_the_other_way_round() {
    let dir = Path::new("results");
    let measured = record();
    let simulated = Simulated { model: "bare".to_owned(), name: "bare link".to_owned(), notes: Vec::new() };
    let simulated = RunRecord { simulated: Some(simulated), ..record() };
    measured.check_resumable(dir, false).unwrap();
    simulated.check_resumable(dir, true).unwrap();
    let refusal = simulated.check_resumable(dir, false).unwrap_err().to_string();
    assert!(
        refusal.contains("is simulated") && refusal.contains("`serpent-lab simulate --resume results`"),
        "{refusal}"
    );
    let refusal = measured.check_resumable(dir, true).unwrap_err().to_string();
    assert!(refusal.contains("is measured") && refusal.contains("`serpent-lab run --resume results`"), "{refusal}");
}

#[test]
fn a_record_of_before_there_were_simulations_is_one_of_a_measurement() {
    let mut json = serde_json::to_value(record()).unwrap();
    assert!(json.as_object_mut().unwrap().get("simulated").is_none(), "and is written as it always was");
    assert_eq!(serde_json::from_value::<RunRecord>(json).unwrap().simulated, None);
}
