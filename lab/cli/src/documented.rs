//! Tests of the commands and experiments in the documents. The parser of the command line reads each command, and
//! commands that need only files are run.

use std::collections::BTreeSet;

use clap::Parser as _;

use self::reader::{Block, blocks, documented};
use crate::{
    args::{Cli, Command},
    simulate, theory,
};

#[path = "../../../crates/cli/src/documented/reader.rs"]
mod reader;

#[test]
fn every_experiment_of_the_documents_is_understood() {
    let is_whole = |block: &&Block| block.file == "docs/guide/lab.md" && block.text.contains("\nsubjects = ");
    let all = blocks();
    let experiments: Vec<&Block> = all.iter().filter(is_whole).collect();
    for block in &experiments {
        let read = toml::from_str::<instrument::experiment::Experiment>(&block.text);
        assert!(read.is_ok(), "{}, line {}: {}", block.file, block.line, read.unwrap_err());
    }
    assert!(experiments.len() >= 2, "are the documents read?");
}

#[test]
fn every_command_of_the_documents_is_one_and_those_that_need_only_files_do_what_they_are_for() {
    let folder = tempfile::tempdir().unwrap();
    let (mut read, mut ran) = (0, BTreeSet::new());
    for documented in documented() {
        let Some(("serpent-lab", line)) = documented.program() else { continue };
        let command = match Cli::try_parse_from(&line) {
            Ok(cli) => cli.command,
            Err(error) => panic!("{}: {}\n{error}", documented.place, line.join(" ")),
        };
        read += 1;
        let has = |flag: &str| documented.words.iter().any(|word| word == flag);
        match command {
            Command::Theory(args) if !has("--check") && !has("--svg") => {
                let said = theory::theory(&args);
                assert!(said.is_ok(), "{}: {:?}", documented.place, said.err());
                ran.insert("theory");
            }
            Command::Simulate(mut args) if has("--quick") => {
                args.out = Some(folder.path().join("simulated"));
                let said = simulate::simulate(&args);
                assert!(said.is_ok(), "{}: {:?}", documented.place, said.err());
                ran.insert("simulate");
            }
            Command::Show { name } => {
                assert!(instrument::experiment::show(&name).is_ok(), "{}", documented.place);
                ran.insert("show");
            }
            Command::List => {
                assert!(instrument::experiment::list().is_ok(), "{}", documented.place);
                ran.insert("list");
            }
            _ => {}
        }
    }
    assert!(read >= 15, "{read}: are the documents read?");
    assert_eq!(ran.into_iter().collect::<Vec<_>>(), ["list", "show", "simulate", "theory"]);
}
