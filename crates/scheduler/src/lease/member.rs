//! A gateway as a member of its site: joins its admission with its leases.

use alloc::{vec, vec::Vec};

use super::{Ask, CellAsk, CellSettings, ClassSettings, Demand, Division, Holder, Reply, Tally, Times};
use crate::{
    admission::{Admission, ResourceId, Settings},
    class::ClassId,
    share::{Policy, apportion},
    time::Instant,
};

/// A cell, by the slots that it divides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    /// The window of a resource type.
    Resource(ResourceId),
    /// The slots of one class in it, where classes lend nothing ([`Policy::Fixed`]).
    OfClass(ResourceId, ClassId),
    /// The limit of all types together.
    Total,
}

impl Cell {
    /// Whether it divides slots of this resource type that the class may have.
    fn counts(self, resource: ResourceId, class: ClassId) -> bool {
        match self {
            Self::Resource(of) => of == resource,
            Self::OfClass(of, only) => of == resource && only == class,
            Self::Total => false,
        }
    }
}

/// The cells of a site. `adjusted`: whether a controller adjusts the windows of resource types.
pub fn cells(settings: &Settings, adjusted: bool) -> Vec<(Cell, CellSettings)> {
    let policy = settings.policy;
    let division = Division::of(policy);
    let of_class = |class| ClassSettings::of(policy, class);
    let classes: Vec<ClassSettings> = settings.classes.iter().map(of_class).collect();
    let weights: Vec<u32> = settings.classes.iter().map(|class| class.weight.max(1)).collect();
    let mut cells = Vec::new();
    for (window, resource) in settings.windows.iter().zip((0..).map(ResourceId)) {
        let Some(window) = *window else { continue };
        if policy == Policy::Fixed {
            for (share, class) in apportion(window, &weights).into_iter().zip((0..).map(ClassId)) {
                let only = classes.iter().enumerate().map(|(i, it)| ClassSettings {
                    weight: if i == class.index() { it.weight } else { 1 },
                    reserve: 0,
                });
                let settings = CellSettings { window: share, adjusted, division, classes: only.collect() };
                cells.push((Cell::OfClass(resource, class), settings));
            }
        } else {
            cells.push((
                Cell::Resource(resource),
                CellSettings { window, adjusted, division, classes: classes.clone() },
            ));
        }
    }
    if let Some(window) = settings.total {
        cells.push((Cell::Total, CellSettings { window, adjusted: false, division, classes }));
    }
    cells
}

/// The leases of a gateway and its admission. After every event: [`Member::apply`], the decisions of admission,
/// [`Member::observe`], and [`Member::poll_ask`]; again at [`Member::poll_timeout`].
#[derive(Debug)]
pub struct Member {
    holder: Holder,
    cells: Vec<(Cell, CellSettings)>,
    /// The slots that admission was told, and the answer that they are from.
    applied: Vec<Option<u32>>,
    applied_answer: Option<u64>,
    /// Finished since the last ask, by cell.
    finished: Vec<Tally>,
    /// Started since the last ask, by cell and class.
    started: Vec<Vec<u32>>,
    /// Kept to reuse its memory.
    of_classes: Vec<u32>,
}

impl Member {
    /// A gateway that has no lease yet, and lets nothing in before the store has answered or failed.
    pub fn new(now: Instant, times: Times, settings: &Settings, adjusted: bool) -> Self {
        let cells = cells(settings, adjusted);
        let holder = Holder::new(now, times, &alone(&cells));
        Self {
            holder,
            applied: vec![None; cells.len()],
            finished: vec![Tally::default(); cells.len()],
            started: vec![vec![0; settings.classes.len()]; cells.len()],
            cells,
            applied_answer: None,
            of_classes: vec![],
        }
    }

    /// Admission has got other settings. Where cells are the same, their leases stay.
    pub fn handle_settings(&mut self, now: Instant, settings: &Settings, adjusted: bool) {
        let cells = cells(settings, adjusted);
        if cells != self.cells {
            self.holder.handle_settings(now, &alone(&cells));
        }
        self.applied = vec![None; cells.len()];
        self.finished = vec![Tally::default(); cells.len()];
        self.started = vec![vec![0; settings.classes.len()]; cells.len()];
        (self.cells, self.applied_answer) = (cells, None);
    }

    /// The cells, in the order of asks and answers.
    pub fn cells(&self) -> &[(Cell, CellSettings)] {
        &self.cells
    }

    /// The leases.
    pub fn holder(&self) -> &Holder {
        &self.holder
    }

    /// Tells admission which slots the gateway has now, if that has changed.
    pub fn apply(&mut self, now: Instant, admission: &mut Admission) {
        let answer = self.holder.is_leased(now).then(|| self.holder.seen());
        let new_answer = answer != self.applied_answer;
        self.applied_answer = answer;
        for (at, (cell, _)) in self.cells.iter().enumerate() {
            let slots = self.holder.slots(now, at);
            if self.applied[at] == Some(slots) && !new_answer {
                continue;
            }
            self.applied[at] = Some(slots);
            let parts = self.holder.parts(now, at);
            match *cell {
                Cell::Resource(resource) => admission.handle_lease(resource, slots, parts),
                Cell::OfClass(resource, class) => admission.handle_lease_of_class(resource, class, slots),
                Cell::Total => admission.handle_leased_total(slots, parts),
            }
        }
    }

    /// Looks at what waits and runs, when admission has no decision left to make.
    pub fn observe(&mut self, now: Instant, admission: &Admission) {
        let mut is_measured = false;
        for (at, (cell, _)) in self.cells.iter().enumerate() {
            let (running, waiting) = match *cell {
                Cell::Resource(resource) => admission.load(Some(resource)),
                Cell::OfClass(resource, class) => {
                    (admission.running_of(class, resource), admission.waiting(class, resource))
                }
                Cell::Total => admission.load(None),
            };
            // As a rule no request waits, and there is nothing to be patient about.
            if waiting > 0 || self.holder.is_wanted(at) {
                if !core::mem::replace(&mut is_measured, true) {
                    self.holder.handle_service(service_ns(admission));
                }
                self.of_classes.clear();
                let of_classes = &mut self.of_classes;
                each(*cell, admission, |class, demand| {
                    of_classes.resize(class.index(), 0);
                    of_classes.push(demand.running + demand.waiting);
                });
                self.holder.handle_classes(at, of_classes);
            }
            self.holder.handle_load(now, at, running, waiting as u32);
        }
    }

    /// The ask that is due now. The caller then reports its answer or failure.
    pub fn poll_ask(&mut self, now: Instant, admission: &Admission) -> Option<Ask> {
        if !self.holder.poll_ask(now) {
            return None;
        }
        let classes = admission.settings().classes.len();
        let asks: Vec<CellAsk> = (self.cells.iter().enumerate())
            .map(|(at, (cell, _))| {
                let mut demands = vec![Demand::default(); classes];
                each(*cell, admission, |class, demand| demands[class.index()] = demand);
                let finished = core::mem::take(&mut self.finished[at]);
                let started = core::mem::replace(&mut self.started[at], vec![0; classes]);
                CellAsk {
                    window: self.holder.window(at),
                    finished,
                    holds: self.holder.holds(now, at),
                    demands,
                    started,
                }
            })
            .collect();
        self.holder.handle_asked(now, &asks);
        let slowest_ns = service_ns(admission);
        Some(Ask {
            seen: self.holder.seen(),
            gateways: self.holder.gateways(),
            linger_ns: slowest_ns.saturating_mul(LINGER_MEANS).min(LINGER_MOST_NS),
            keep_ns: 0,
            cells: asks,
        })
    }

    /// A request has started.
    pub fn handle_started(&mut self, resource: ResourceId, class: ClassId) {
        for ((cell, _), started) in self.cells.iter().zip(&mut self.started) {
            if cell.counts(resource, class) || *cell == Cell::Total {
                started[class.index()] += 1;
            }
        }
    }

    /// The site has finished a request.
    pub fn handle_finished(&mut self, resource: ResourceId, class: ClassId, done: bool, service_ns: u64) {
        let tally = match done {
            true => Tally { done: 1, failed: 0, service_us: service_ns / 1000 },
            false => Tally { done: 0, failed: 1, service_us: 0 },
        };
        for ((cell, _), finished) in self.cells.iter().zip(&mut self.finished) {
            if cell.counts(resource, class) {
                finished.add(tally);
            }
        }
    }

    /// The controller of the gateway that leads has adjusted a window.
    pub fn handle_window(&mut self, resource: ResourceId, window: u32) {
        let of = |it: &(Cell, CellSettings)| match it.0 {
            Cell::Resource(of) | Cell::OfClass(of, _) => of == resource,
            Cell::Total => false,
        };
        let weights: Vec<u32> = (self.cells.iter().filter(|it| of(it)))
            .map(|(cell, settings)| match cell {
                Cell::OfClass(_, class) => settings.classes[class.index()].weight,
                _ => 1,
            })
            .collect();
        let mut shares = apportion(window, &weights).into_iter();
        for (at, it) in self.cells.iter().enumerate() {
            if of(it) {
                self.holder.handle_window(at, shares.next().unwrap_or(1));
            }
        }
    }

    /// The window of a resource type over the whole site, as far as it is known.
    pub fn window(&self, resource: ResourceId) -> Option<u32> {
        let of = |(at, (cell, _)): (usize, &(Cell, CellSettings))| match *cell {
            Cell::Resource(of) | Cell::OfClass(of, _) if of == resource => Some(self.holder.window(at)),
            _ => None,
        };
        self.cells.iter().enumerate().filter_map(of).reduce(|sum, more| sum + more)
    }

    /// When to look again if nothing happens before: an ask is due, or the leases end.
    pub fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        [self.holder.poll_timeout(), self.holder.until(now), self.holder.thaws(now)].into_iter().flatten().min()
    }

    /// The store has answered the ask of `asked_at`.
    pub fn handle_reply(&mut self, asked_at: Instant, reply: &Reply) {
        self.holder.handle_reply(asked_at, reply);
    }

    /// An ask has failed, or its answer is late.
    pub fn handle_failed(&mut self, now: Instant) {
        self.holder.handle_failed(now);
    }

    /// The store says that an ask is worth its while.
    pub fn handle_notice(&mut self) {
        self.holder.handle_notice();
    }
}

/// Requests of a gateway that is gone count for this many mean service times, and at most for the time below.
const LINGER_MEANS: u64 = 4;
const LINGER_MOST_NS: u64 = 1_500_000_000;

/// The mean service time of the slowest resource; 0 if nothing is known.
fn service_ns(admission: &Admission) -> u64 {
    let resources = (0..admission.settings().windows.len()).map(|it| ResourceId(it as u16));
    resources.filter_map(|resource| admission.mean_service_ns(resource)).max().unwrap_or(0)
}

fn alone(cells: &[(Cell, CellSettings)]) -> Vec<CellSettings> {
    cells.iter().map(|(_, settings)| settings.clone()).collect()
}

/// Shows the requests of each class that count in a cell.
fn each(cell: Cell, admission: &Admission, mut show: impl FnMut(ClassId, Demand)) {
    let classes = (0..admission.settings().classes.len() as u16).map(ClassId);
    let demand = |class, resource| Demand {
        running: admission.running_of(class, resource),
        waiting: admission.waiting(class, resource) as u32,
    };
    match cell {
        Cell::Resource(resource) => classes.for_each(|class| show(class, demand(class, resource))),
        Cell::OfClass(resource, class) => show(class, demand(class, resource)),
        Cell::Total => {
            for class in classes {
                let stats = admission.class_stats(class);
                show(class, Demand { running: stats.running as u32, waiting: stats.waiting as u32 });
            }
        }
    }
}
