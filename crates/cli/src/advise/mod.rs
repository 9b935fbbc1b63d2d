//! `serpent advise ACCESS_LOG`, `serpent advise --nginx`: advice on scheduling for a site, from its access log.

mod args;
mod dates;
mod figures;
mod installed;
mod page;
mod read;
mod tables;
mod terminal;

use std::{
    fs,
    path::Path,
    thread::{self, available_parallelism},
};

use simulator::advise::{Advice, Batch, Outcome, Plan, Question, Survey};
use workload::rate::Rate;

pub use self::args::AdviseArgs;
use self::read::Logs;
use crate::failure::Failure;

/// Reads, simulates, writes the requested files, and returns the text to print.
pub fn advise(args: &AdviseArgs) -> Result<String, Failure> {
    let uplink = Rate::from_bits_per_second(args.uplink.bits_per_second())
        .ok_or_else(|| Failure::Usage(format!("--uplink {} is no rate from 8kbit to 1000gbit", args.uplink)))?;
    let question = Question { seed: args.seed, part: args.window, ..Question::new(uplink) };
    let paths = match args.installed() {
        Some(server) => installed::logs(server, Path::new("/"))?,
        None => args.logs.clone(),
    };
    let logs = Logs::find(&paths, args.format.as_ref().map(|given| given.format.clone()))?;
    let advice = simulate(question, &logs)?;
    if let Some(file) = &args.html {
        write(file, page::page(&advice, &args.command(&paths))?)?;
    }
    if let Some(file) = &args.json {
        let json =
            serde_json::to_string_pretty(&advice).map_err(|error| Failure::Run(format!("no JSON: {error}")))? + "\n";
        if file.as_os_str() == "-" {
            return Ok(json);
        }
        write(file, json)?;
    }
    Ok(terminal::text(&advice))
}

/// Reads the log once for a survey, then once on each processor, which simulates its share of the scenarios.
fn simulate(question: Question, logs: &Logs) -> Result<Advice, Failure> {
    let mut survey = Survey::new(question);
    let read = logs.survey(&mut survey)?;
    let plan = Plan::new(survey).map_err(|error| Failure::Usage(format!("{}: {error}", logs.names())))?;
    let threads = available_parallelism().map_or(1, |threads| threads.get()).min(plan.scenarios());
    let (plan, read) = (&plan, &read);
    let run = |thread: usize| -> Result<Vec<Outcome>, Failure> {
        // Neighbours in the plan need about the same work, so each thread takes every n-th scenario.
        let mut batch = Batch::new(plan, (thread..plan.scenarios()).step_by(threads));
        logs.again(read, |record| batch.add(record))?;
        Ok(batch.finish())
    };
    let outcomes: Result<Vec<Vec<Outcome>>, Failure> = thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|thread| scope.spawn(move || run(thread))).collect();
        let first = run(0);
        let others = others.into_iter().map(|thread| {
            thread.join().unwrap_or_else(|_| Err(Failure::Run("a thread of the simulation broke down".to_owned())))
        });
        std::iter::once(first).chain(others).collect()
    });
    Ok(plan.advise(outcomes?.concat()))
}

fn write(file: &Path, content: String) -> Result<(), Failure> {
    fs::write(file, content).map_err(|error| Failure::Run(format!("cannot write `{}`: {error}", file.display())))
}
