//! This gateway as one of several of a site: its leases, and the asks for the task that talks to the store.

use std::sync::Arc;

use scheduler::{
    Instant,
    admission::{self as machine, Settings, Start},
    control::Method,
    lease::{Cell, CellSettings, Member, Others, Reply, Times},
};

use super::windows::Windows;
use crate::{
    config::Classes,
    lease::{CellNames, LeaseAsk},
};

/// Leases from a store, if the site has several gateways.
#[derive(Debug)]
pub(super) struct Membership {
    member: Member,
    /// An ask that was not fetched yet.
    due: Option<LeaseAsk>,
    /// By cell.
    names: Vec<CellNames>,
}

/// The leases of this gateway, for metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseStats {
    /// How many gateways there are, as far as it is known.
    pub gateways: u32,
    /// Whether leases are in force; otherwise the gateway has its equal part.
    pub leased: bool,
    /// Whether this gateway adjusts the windows of the site.
    pub leads: bool,
    /// Name, slots of this gateway, and all slots of each cell.
    pub cells: Vec<(String, u32, u32)>,
}

impl Membership {
    pub fn new(now: Instant, times: Times, settings: &Settings, classes: &Classes) -> Self {
        let member = Member::new(now, times, settings, is_adjusted(classes));
        let names = names(&member, classes);
        Self { member, due: None, names }
    }

    pub fn reconfigure(&mut self, now: Instant, settings: &Settings, classes: &Classes) {
        self.member.handle_settings(now, settings, is_adjusted(classes));
        self.names = names(&self.member, classes);
    }

    /// Before admission decides.
    pub fn before(&mut self, now: Instant, admission: &mut machine::Admission, windows: &mut Windows) {
        windows.set_leads(now, self.member.holder().leads(now), admission);
        self.member.apply(now, admission);
    }

    /// When admission has no decision left to make. Returns whether there is an ask to fetch.
    pub fn after(&mut self, now: Instant, admission: &machine::Admission, windows: &Windows) -> bool {
        if windows.is_active() {
            for resource in (0..admission.settings().windows.len() as u16).map(machine::ResourceId) {
                if let Some(window) = windows.window(resource) {
                    self.member.handle_window(resource, window);
                }
            }
        }
        self.member.observe(now, admission);
        let Some(ask) = self.member.poll_ask(now, admission) else { return false };
        let cells = self.member.cells().iter().map(|(_, settings)| settings.clone()).collect();
        self.due = Some(LeaseAsk { line: None, ask, cells, names: self.names.clone(), asked_at: now });
        true
    }

    pub fn take_ask(&mut self) -> Option<LeaseAsk> {
        self.due.take()
    }

    pub fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        self.member.poll_timeout(now)
    }

    pub fn handle_started(&mut self, start: &Start) {
        self.member.handle_started(start.resource, start.class);
    }

    pub fn handle_finished(&mut self, finished: &scheduler::control::Finished, class: scheduler::class::ClassId) {
        self.member.handle_finished(finished.resource, class, finished.done, finished.service_ns);
    }

    pub fn handle_reply(
        &mut self,
        now: Instant,
        asked_at: Instant,
        reply: &Reply,
        admission: &mut machine::Admission,
        windows: &mut Windows,
    ) {
        self.member.handle_reply(asked_at, reply);
        windows.set_leads(now, self.member.holder().leads(now), admission);
        if windows.is_active() {
            for resource in (0..admission.settings().windows.len() as u16).map(machine::ResourceId) {
                windows.handle_others(now, resource, &others(self.member.cells(), reply, resource));
            }
        } else {
            for resource in (0..admission.settings().windows.len() as u16).map(machine::ResourceId) {
                if let Some(window) = self.member.window(resource) {
                    admission.handle_window(resource, window);
                }
            }
        }
    }

    pub fn handle_failed(&mut self, now: Instant) {
        self.member.handle_failed(now);
    }

    pub fn handle_notice(&mut self) {
        self.member.handle_notice();
    }

    pub fn stats(&self, now: Instant) -> LeaseStats {
        let holder = self.member.holder();
        let cell = |(at, names): (usize, &CellNames)| (names.cell.clone(), holder.slots(now, at), holder.window(at));
        LeaseStats {
            gateways: holder.gateways(),
            leased: holder.is_leased(now),
            leads: holder.leads(now),
            cells: self.names.iter().enumerate().map(cell).collect(),
        }
    }
}

/// The requests for a resource at other gateways: those of its one cell, or the sum over the cells of its classes.
fn others(cells: &[(Cell, CellSettings)], reply: &Reply, resource: machine::ResourceId) -> Others {
    let mut all = Others::default();
    for ((cell, _), grant) in cells.iter().zip(&reply.cells) {
        if matches!(*cell, Cell::Resource(of) | Cell::OfClass(of, _) if of == resource) {
            all.running += grant.others.running;
            all.waiting += grant.others.waiting;
            all.finished.add(grant.others.finished);
        }
    }
    all
}

fn is_adjusted(classes: &Classes) -> bool {
    classes.admission.enabled && classes.admission.adjustment.method != Method::Fixed
}

fn names(member: &Member, classes: &Classes) -> Vec<CellNames> {
    let of_classes: Vec<Arc<str>> = classes.classes.iter().map(|class| class.name.as_str().into()).collect();
    let resource = |id: machine::ResourceId| &*classes.admission.resources[id.index()].name;
    let name = |cell: Cell| match cell {
        Cell::Resource(id) => format!("resource {}", resource(id)),
        Cell::OfClass(id, class) => format!("resource {} class {}", resource(id), of_classes[class.index()]),
        Cell::Total => "total".to_owned(),
    };
    member.cells().iter().map(|(cell, _)| CellNames { cell: name(*cell), classes: of_classes.clone() }).collect()
}
