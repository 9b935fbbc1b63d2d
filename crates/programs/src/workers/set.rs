//! The pools of worker processes, and the thread that supervises them.

use std::{
    collections::HashMap,
    future::Future,
    io::{self, ErrorKind},
    net::Ipv4Addr,
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::{
    runtime::Handle,
    sync::{mpsc, watch},
    time::Instant,
};

use super::{
    address::{WorkerAddress, free_port, private, socket_path},
    command::{check, shown},
    keeper::Keeper,
    place::{ProcessPlace, WorkerState, WorkerStats},
};
use crate::config::{Priority, ProgramClass, WorkersConfig};

/// The processes of all upstreams with a command. Dropping this stops them.
#[derive(Debug)]
pub struct Workers {
    folder: PathBuf,
    pools: HashMap<Key, Arc<Pool>>,
    /// The classes' names, in their order.
    classes: Vec<String>,
    /// Pools that this started itself, rather than shares with an earlier configuration.
    new: Vec<Key>,
    supervisor: Arc<Supervisor>,
}

/// The identity of a pool over a reload.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    upstream: String,
    /// The class's name, because its index changes when an earlier class is removed.
    class: String,
}

/// The processes of one upstream and class.
#[derive(Debug)]
struct Pool {
    priority: Priority,
    config: WorkersConfig,
    processes: Vec<Arc<ProcessPlace>>,
    /// A message, or dropping the sender, stops the processes.
    stop: watch::Sender<()>,
}

impl Workers {
    /// Starts all processes without waiting for them, and restarts those that end. `folder` holds their
    /// sockets; it is made so that only this server's user may enter it. Blocks for moments. Needs no
    /// runtime.
    ///
    /// # Errors
    /// The command cannot be run, or the folder not be used; the operator has to fix it.
    pub fn start(configs: &[WorkersConfig], classes: &[ProgramClass], folder: &Path) -> io::Result<Self> {
        let supervisor = Arc::new(Supervisor::start()?);
        let (folder, pools) = (folder.to_owned(), HashMap::new());
        let none = Self { folder, pools, classes: Vec::new(), new: Vec::new(), supervisor };
        none.reload(configs, classes)
    }

    /// Makes the processes of a changed configuration: unchanged pools are shared, others are started. Drop
    /// the old value when the new processes are [ready](Self::wait_until_ready) and no request uses the old
    /// ones any more.
    ///
    /// # Errors
    /// Those of [`Workers::start`]; then nothing has changed.
    pub fn reload(&self, configs: &[WorkersConfig], classes: &[ProgramClass]) -> io::Result<Self> {
        for config in configs {
            check(config).map_err(|error| {
                io::Error::new(error.kind(), format!("workers of the upstream {}: {error}", config.upstream))
            })?;
        }
        if !configs.is_empty() {
            private(&self.folder)?;
        }
        let (mut pools, mut new) = (HashMap::new(), Vec::new());
        for config in configs {
            for class in classes {
                let key = Key { upstream: config.upstream.clone(), class: class.name.clone() };
                let same = |pool: &&Arc<Pool>| pool.config == *config && pool.priority == class.priority;
                let pool = match self.pools.get(&key).filter(same) {
                    Some(pool) => pool.clone(),
                    None => {
                        new.push(key.clone());
                        Arc::new(self.pool(config, class)?)
                    }
                };
                pools.insert(key, pool);
            }
        }
        let classes = classes.iter().map(|class| class.name.clone()).collect();
        Ok(Self { folder: self.folder.clone(), pools, classes, new, supervisor: self.supervisor.clone() })
    }

    fn pool(&self, config: &WorkersConfig, class: &ProgramClass) -> io::Result<Pool> {
        let places = (0..config.processes.get()).map(|number| {
            let address = if config.command.iter().any(|word| word.contains("{port}")) {
                let port = free_port()?;
                WorkerAddress::Socket((Ipv4Addr::LOCALHOST, port).into())
            } else {
                WorkerAddress::Unix(socket_path(&self.folder, &config.upstream, &class.name)?)
            };
            let state = watch::Sender::new(WorkerState::Starting);
            Ok(Arc::new(ProcessPlace { number, address, status: Mutex::default(), state }))
        });
        let processes = places.collect::<io::Result<Vec<_>>>()?;
        let (stop, stopped) = watch::channel(());
        for place in &processes {
            let keeper = Keeper {
                name: format!("{} {} {}", config.upstream, class.name, place.number),
                place: place.clone(),
                config: config.clone(),
                class: class.name.clone(),
                priority: class.priority,
                stopped: stopped.clone(),
            };
            self.supervisor.watch(keeper);
        }
        Ok(Pool { priority: class.priority, config: config.clone(), processes, stop })
    }

    /// The addresses of an upstream's processes: by class, in the classes' order, then by process.
    pub fn addresses(&self, upstream: &str) -> Vec<Vec<WorkerAddress>> {
        let of = |class: &String| {
            let pool = self.pools.get(&Key { upstream: upstream.to_owned(), class: class.clone() });
            let address = |place: &Arc<ProcessPlace>| place.address.clone();
            pool.map_or_else(Vec::new, |pool| pool.processes.iter().map(address).collect())
        };
        self.classes.iter().map(of).collect()
    }

    /// Waits until every process that this started accepts connections, has ended, or has used up its start
    /// time from now. Unchanged pools are not waited for. Blocks; not for threads of a runtime.
    ///
    /// # Errors
    /// A pool has no ready process; the operator has to fix it. Its processes are still restarted until this
    /// is dropped.
    pub fn wait_until_ready(&self) -> io::Result<()> {
        let new: Vec<_> = self.new.iter().filter_map(|key| Some((key, self.pools.get(key)?.clone()))).collect();
        let pools: Vec<_> = new.iter().map(|(_, pool)| pool.clone()).collect();
        self.supervisor.wait_for(async move {
            let begin = Instant::now();
            for pool in pools {
                for place in &pool.processes {
                    let mut state = place.state.subscribe();
                    let ready = state.wait_for(|state| *state != WorkerState::Starting);
                    let _ = tokio::time::timeout_at(begin + pool.config.start_timeout, ready).await;
                }
            }
        });
        let serves = |pool: &Pool| pool.processes.iter().any(|place| *place.state.borrow() == WorkerState::Ready);
        match new.iter().find(|(_, pool)| !serves(pool)) {
            None => Ok(()),
            Some((key, pool)) => Err(io::Error::new(
                ErrorKind::TimedOut,
                format!(
                    "{} for the class {} of the upstream {}: no process takes connections (see the log)",
                    shown(&pool.config),
                    key.class,
                    key.upstream
                ),
            )),
        }
    }

    /// The statistics of all processes.
    pub fn stats(&self) -> Vec<WorkerStats> {
        let order = |key: &Key| self.classes.iter().position(|class| *class == key.class);
        let mut pools: Vec<_> = self.pools.iter().collect();
        pools.sort_by_key(|(key, _)| (&key.upstream, order(key)));
        let of = |(key, pool): (&Key, &Arc<Pool>)| {
            let stats = |place: &Arc<ProcessPlace>| {
                let status = *place.status.lock();
                WorkerStats {
                    upstream: key.upstream.clone(),
                    class: key.class.clone(),
                    process: place.number,
                    pid: status.pid,
                    state: *place.state.borrow(),
                    since: status.since,
                    restarts: status.restarts,
                }
            };
            pool.processes.iter().map(stats).collect::<Vec<_>>()
        };
        pools.into_iter().flat_map(of).collect()
    }

    /// Stops all processes, shared ones included, and waits for their ends. Blocks for up to the longest
    /// `stop_timeout`; not for threads of a runtime.
    pub fn stop(&self) {
        let pools: Vec<_> = self.pools.values().cloned().collect();
        for pool in &pools {
            pool.stop.send_replace(());
        }
        self.supervisor.wait_for(async move {
            for place in pools.iter().flat_map(|pool| &pool.processes) {
                let _ = place.state.subscribe().wait_for(|state| *state == WorkerState::Stopped).await;
            }
        });
    }
}

/// The thread that supervises the processes.
#[derive(Debug)]
struct Supervisor {
    runtime: Handle,
    /// Each keeper holds a clone; the thread ends when all are dropped.
    alive: mpsc::Sender<()>,
}

impl Supervisor {
    fn start() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (alive, mut nobody) = mpsc::channel::<()>(1);
        let handle = runtime.handle().clone();
        std::thread::Builder::new().name("workers".to_owned()).spawn(move || {
            runtime.block_on(async { while nobody.recv().await.is_some() {} });
        })?;
        Ok(Self { runtime: handle, alive })
    }

    fn watch(&self, keeper: Keeper) {
        let alive = self.alive.clone();
        self.runtime.spawn(async move {
            keeper.keep().await;
            drop(alive);
        });
    }

    fn wait_for(&self, what: impl Future<Output = ()> + Send + 'static) {
        let (done, waits) = std::sync::mpsc::channel::<()>();
        self.runtime.spawn(async move {
            what.await;
            drop(done);
        });
        // An error means that all keepers have ended.
        let _ = waits.recv();
    }
}
