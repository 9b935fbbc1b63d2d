//! The servers of upstreams that this process starts itself (`workers` of an upstream).

use std::sync::Arc;

use http::uri::Authority;
use programs::{WorkerAddress, Workers};
use tempfile::TempDir;

use crate::{
    config::{Classes, UpstreamAddress, UpstreamConfig, UpstreamServer, WorkersConfig},
    program_priorities::program_classes,
    start_error::StartError,
};

/// The servers that this process has started.
#[derive(Clone, Debug)]
pub(crate) struct StartedServers {
    pub(crate) upstreams: Arc<[UpstreamConfig]>,
    configs: Arc<[WorkersConfig]>,
    /// `None`: the configuration has no workers.
    pub(crate) workers: Option<Arc<Workers>>,
    /// Whether programs are run with the priorities of classes.
    pub(crate) runs_programs: bool,
    /// The folder of the workers' sockets.
    folder: Option<Arc<TempDir>>,
}

impl StartedServers {
    /// Starts the workers that are new in a configuration, and waits until they are ready. When the server starts,
    /// workers that are not ready in time are tried again later. At a reload they make the reload fail. Blocks.
    pub(crate) fn new(
        upstreams: &[UpstreamConfig],
        configs: &[WorkersConfig],
        classes: &Classes,
        before: Option<&Self>,
    ) -> Result<Self, StartError> {
        let none = Self {
            upstreams: upstreams.into(),
            configs: configs.into(),
            workers: None,
            runs_programs: false,
            folder: None,
        };
        if configs.is_empty() {
            return Ok(none);
        }
        let classes = program_classes(&classes.classes);
        let workers = before.and_then(|before| Some((before.workers.clone()?, before.folder.clone()?)));
        let (workers, folder) = match workers {
            Some((workers, folder)) => (workers.reload(configs, &classes), folder),
            None => {
                let folder = tempfile::Builder::new().prefix("serpent-").tempdir().map_err(StartError::Workers)?;
                let sockets = folder.path().join("workers");
                (Workers::start(configs, &classes, &sockets), Arc::new(folder))
            }
        };
        let workers = workers.map_err(StartError::Workers)?;
        match workers.wait_until_ready() {
            Err(error) if before.is_some() => return Err(StartError::Workers(error)),
            // The log has it.
            _ => {}
        }
        Ok(Self { workers: Some(Arc::new(workers)), folder: Some(folder), runs_programs: true, ..none })
    }

    pub(crate) fn with_classes(&self, classes: &Classes) -> Result<Self, StartError> {
        let runs_programs = self.runs_programs;
        Ok(Self { runs_programs, ..Self::new(&self.upstreams, &self.configs, classes, Some(self))? })
    }

    /// The addresses of the workers: by upstream, class and process.
    pub(crate) fn servers(&self) -> Vec<Vec<Vec<UpstreamServer>>> {
        let Some(workers) = &self.workers else { return Vec::new() };
        let of_class = |class: Vec<WorkerAddress>| class.into_iter().map(server).collect();
        let of_upstream =
            |upstream: &UpstreamConfig| workers.addresses(&upstream.name).into_iter().map(of_class).collect();
        self.upstreams.iter().map(of_upstream).collect()
    }
}

fn server(address: WorkerAddress) -> UpstreamServer {
    let address = match address {
        WorkerAddress::Socket(address) => UpstreamAddress::Socket(address),
        WorkerAddress::Unix(path) => UpstreamAddress::Unix(path),
    };
    UpstreamServer::new(address, None, false, Authority::from_static("localhost"))
}
