//! The output of the commands fits 80 columns where there is no terminal. A word that is wider has a line to itself.

mod programs;

use std::{fs, path::Path, process::Command};

use programs::{LAB, serpent};

/// Long titles, notes, labels and places, as experiments that repeat a paper have.
const TINY: &str = "
name = 'tiny'
title = 'Two servers for half a minute, with a title that does not fit one line of a terminal of eighty columns'
source = 'a paper whose title is long, in all of its sections, and in as many figures, from the first to the last'
notes = '''A first paragraph of notes, which is longer than a line of a terminal, as `--set time.seconds=2` shows.

A second one.'''
subjects = ['nginx', 'serpent:srpt']
seeds = [5]
[setting]
link.rate = '10mbit'
demand = { files = 40, load = 0.8 }
time = { seconds = 30, drain-s = 30 }
[[points]]
label = 'connections that are kept open, far away'
set = { 'clients.requests-per-connection' = 0 }
[[points]]
label = 'with losses'
set = { 'groups.0.path.loss' = 0.01 }
[[figures]]
title = 'Of what a simulation does not have'
kind = 'bars'
measure = 'cpu-us'
[[published]]
subject = 'serpent:srpt'
measure = 'gain'
value = 3.0
place = 'section 5, where it is said at such length that no line of a terminal would have the whole of it'
";

fn said(folder: &Path, args: &[&str]) -> String {
    let output = Command::new(LAB).args(args).current_dir(folder).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {text}");
    text
}

#[test]
fn what_the_commands_say_fits_80_columns() {
    serpent();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("tiny.toml"), TINY).unwrap();
    let simulate = ["simulate", "./tiny.toml", "--set", "time.seconds=2", "--out", "all"];
    let gateways = ["simulate", "gateways", "--gateways", "1,2", "--seconds", "1", "--seeds", "1", "--faults"];
    let checked = ["theory", "--check", "--load", "0.5", "--seeds", "3", "--requests", "500"];
    for args in [
        &simulate[..],
        &["report", "all"],
        &["compare", "all", "all"],
        &gateways,
        &["theory"],
        &["theory", "--sizes", "world-cup", "--overload", "w1"],
        &checked,
        &["list"],
    ] {
        let said = said(folder.path(), args);
        let wide = |line: &&str| line.chars().count() > 80 && line.trim().contains(' ');
        assert_eq!(said.lines().find(wide), None, "{args:?}:\n{said}");
    }
    let compared = said(folder.path(), &["compare", "all", "all"]);
    assert!(compared.starts_with("1: all, ") && compared.contains("no confidence intervals"), "one seed: {compared}");
    let report = said(folder.path(), &["report", "all"]);
    let words = report.split_whitespace().collect::<Vec<_>>().join(" ");
    let length = "This is the full form, changed by `--set time.seconds=2`: 2 points and 1 seed, 2 s";
    assert!(words.contains(length), "{words}");
    assert!(words.contains("The following describes the full length. A first paragraph of notes"), "{words}");
    let page = fs::read_to_string(folder.path().join("all/report.html")).unwrap();
    assert!(page.contains("full form, changed by <code>--set time.seconds=2</code>"), "{page}");
}
