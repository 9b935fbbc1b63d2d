//! The parts of a measurement, and a load on its bed.

use std::{
    net::{Ipv4Addr, SocketAddrV4},
    path::PathBuf,
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
};

use workload::demand::Demand;

use crate::{
    LabError,
    bed::{SERVER, TestBed},
    client::{ClientGroup, Load, LoadResult, TlsServer},
    docroot::{Content, DocRoot},
    plan::Plan,
    subject::{Certificate, Subject},
};

/// The parts of a measurement.
pub(super) struct Measurement<'a> {
    pub(super) plan: &'a Plan,
    pub(super) subject: &'a Subject,
    pub(super) servers: &'a Servers,
    pub(super) root: &'a DocRoot,
    pub(super) content: &'a Content,
    pub(super) certificate: &'a Certificate,
    /// Sizes of the files, by number.
    pub(super) sizes_bytes: &'a [u64],
    pub(super) stop: &'a AtomicBool,
}

/// A load to run: the whole demand, or single requests.
pub(super) struct LoadRun {
    pub(super) demand: Demand,
    pub(super) start: Instant,
    pub(super) until: Duration,
    pub(super) drain: Duration,
    /// The /24 of each group's prefix to connect from. Each load has its own, since a reused port may meet
    /// the server's TIME_WAIT and be reset.
    pub(super) sources: u8,
    /// Whether clients wait without limit, independent of the setting, and never retry.
    pub(super) patient: bool,
}

/// How subjects are started.
#[derive(Clone, Debug)]
pub(crate) struct Servers {
    /// The binary of Serpent to measure.
    pub(crate) serpent: PathBuf,
    /// The port to listen on.
    pub(crate) port: u16,
}

impl Measurement<'_> {
    /// Runs a load on the calling thread, which moves into the clients' namespace.
    pub(super) fn load(&self, bed: &TestBed, load_run: LoadRun) -> Result<LoadResult, LabError> {
        let _inside = bed.client().enter().map_err(LabError::io("cannot enter a namespace"))?;
        let group = |(number, group): (usize, &crate::plan::Group)| {
            let mut behaviour = group.behaviour.clone();
            if load_run.patient {
                (behaviour.abort_after_s, behaviour.retries) = (None, 0);
            }
            ClientGroup {
                sources: {
                    let [a, b, ..] = bed.sources(number).octets();
                    Ipv4Addr::new(a, b, load_run.sources, 0)
                },
                behaviour,
                mss_bytes: group.setting.path.mss_bytes,
            }
        };
        let groups: Vec<ClientGroup> = self.plan.groups.iter().enumerate().map(group).collect();
        let server = SocketAddrV4::new(SERVER, self.servers.port);
        let load = Load {
            demand: load_run.demand,
            groups: &groups,
            server,
            tls: Some(TlsServer { address: server, certificate_der: self.certificate.der() }),
            until: load_run.until,
            drain: load_run.drain,
            content: self.content,
            start: load_run.start,
            stop: self.stop,
        };
        load.drive()
    }
}
