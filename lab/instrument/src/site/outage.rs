//! Stops the database and starts it again during a run.

use std::{
    io,
    process::{Command, Stdio},
    time::Duration,
};

use serde::Serialize;
use tokio::time::{Instant, sleep_until};

use super::plan::Outage;
use crate::LabError;

/// Controls the database. Dropping it starts the database again, if it is stopped.
#[derive(Debug)]
pub(super) struct Database<'a> {
    cut: Option<&'a Outage>,
    is_stopped: bool,
}

/// When the commands had finished, in seconds from the start of the run.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct OutageTimes {
    pub(super) stopped_s: f64,
    pub(super) started_s: f64,
}

impl<'a> Database<'a> {
    pub(super) fn new(cut: Option<&'a Outage>) -> Self {
        Self { cut, is_stopped: false }
    }

    /// Stops and starts it at the planned times. `None` if no outage is planned.
    pub(super) async fn stop_and_start(&mut self, began: Instant) -> Result<Option<OutageTimes>, LabError> {
        let Some(cut) = self.cut else { return Ok(None) };
        let at = |seconds: u32| began + Duration::from_secs(seconds.into());
        sleep_until(at(cut.from_s)).await;
        // Set before the command runs: a failed command may still have stopped it.
        self.is_stopped = true;
        in_background("--stop-command", &cut.stop).await?;
        let stopped_s = began.elapsed().as_secs_f64();
        sleep_until(at(cut.until_s)).await;
        in_background("--start-command", &cut.start).await?;
        self.is_stopped = false;
        Ok(Some(OutageTimes { stopped_s, started_s: began.elapsed().as_secs_f64() }))
    }
}

impl Drop for Database<'_> {
    fn drop(&mut self) {
        if let Some(cut) = self.cut.filter(|_| self.is_stopped)
            && let Err(error) = run("--start-command", &cut.start)
        {
            eprintln!("the database was stopped, and is not started again: {error}");
        }
    }
}

/// Users continue meanwhile.
async fn in_background(flag: &'static str, line: &str) -> Result<(), LabError> {
    let line = line.to_owned();
    let done = tokio::task::spawn_blocking(move || run(flag, &line)).await;
    done.map_err(|error| LabError::Io(format!("{flag} failed"), io::Error::other(error)))?
}

fn run(flag: &str, line: &str) -> Result<(), LabError> {
    // A started process may continue and hold inherited descriptors.
    let mut command = Command::new("/bin/sh");
    command.args(["-c", line]).stdin(Stdio::null()).stdout(Stdio::null());
    let status = command.status().map_err(LabError::io(format!("{flag} `{line}`")))?;
    if status.success() {
        return Ok(());
    }
    Err(LabError::Io(format!("{flag} `{line}`"), io::Error::other(format!("it failed: {status}"))))
}
