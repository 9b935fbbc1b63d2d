//! Adjusts how many requests of each resource are let in at once. [`scheduler::control`] decides; this module
//! passes events to it and its decisions to the scheduler.

use std::{collections::VecDeque, num::NonZeroU32, sync::Arc, time::Duration};

use scheduler::{
    Instant,
    admission::{self as machine, ResourceId},
    class::ClassId,
    control::{Change, Controller, Finished, Load, Method, Probed, Reason, Settings, SettingsError, Window},
    lease::{Others, Tally},
};

use crate::config::{Classes, ResourceConfig};

/// The route under which requests of other gateways are counted.
const OTHERS: u64 = u64::MAX;
/// Most of their requests that are counted at once, because it is done under the lock.
const MOST_TOLD: u32 = 10_000;

/// Changes of windows that are kept.
const MOST_DECISIONS: usize = 30;

/// A change of a window, as it was decided.
#[derive(Clone, Debug, PartialEq)]
pub struct Adjusted {
    /// The resource.
    pub resource: Arc<str>,
    /// How long ago it was.
    pub ago: Duration,
    /// The window before.
    pub from: Option<u32>,
    /// The window after.
    pub to: u32,
    /// Why.
    pub reason: Reason,
}

#[derive(Debug)]
pub(super) struct Windows {
    control: Option<Box<dyn Controller + Send>>,
    settings: Settings,
    /// By resource.
    names: Vec<Arc<str>>,
    changes: Vec<u64>,
    /// The last changes, the newest last, with their times in place of how long ago.
    decisions: VecDeque<(Instant, Adjusted)>,
    /// Numbers the controllers, so that the result of a probing request reaches only the controller that sent
    /// it.
    epoch: u64,
    /// Another gateway adjusts the windows of the site.
    led: bool,
    /// The requests at other gateways, by resource.
    others: Vec<Load>,
}

/// A probing request that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Due {
    pub resource: ResourceId,
    epoch: u64,
}

impl Windows {
    pub fn new(classes: &Classes) -> Result<Self, SettingsError> {
        let settings = settings(classes);
        let names = names(classes);
        let others = vec![Load::default(); names.len()];
        Ok(Self {
            control: build(&settings)?,
            settings,
            changes: vec![0; names.len()],
            decisions: VecDeque::new(),
            names,
            epoch: 0,
            led: false,
            others,
        })
    }

    /// Applies changed settings. A window keeps its adjusted size if its settings are unchanged. Returns
    /// whether a new controller took over, which knows of no probing requests yet.
    pub fn reconfigure(&mut self, classes: &Classes) -> Result<bool, SettingsError> {
        let (mut settings, names) = (settings(classes), names(classes));
        if settings == self.settings && names == self.names {
            return Ok(false);
        }
        let written = settings.clone();
        let place = |name: &Arc<str>| self.names.iter().position(|it| it == name);
        for (window, name) in settings.windows.iter_mut().zip(&names) {
            if let (Some(window), Some(at)) = (window, place(name))
                && self.settings.windows[at] == Some(*window)
                && let Some(now) = self.window(ResourceId(at as u16))
            {
                window.first = now;
            }
        }
        let control = build(&settings)?;
        self.changes = names.iter().map(|name| place(name).map_or(0, |at| self.changes[at])).collect();
        self.others = vec![Load::default(); names.len()];
        (self.control, self.settings, self.names) = (control, written, names);
        self.epoch += 1;
        Ok(true)
    }

    /// Says whether this gateway adjusts the windows, where there are several. When it begins to, it goes on from the
    /// windows in force.
    pub fn set_leads(&mut self, now: Instant, leads: bool, admission: &machine::Admission) {
        if self.led != leads {
            return;
        }
        self.led = !leads;
        self.others.fill(Load::default());
        if leads && self.control.is_some() {
            let mut settings = self.settings.clone();
            for (window, in_force) in settings.windows.iter_mut().zip(&admission.settings().windows) {
                if let (Some(window), Some(in_force)) = (window, in_force) {
                    window.first = (*in_force).clamp(window.least, window.most);
                }
            }
            // These settings were built before, with other first windows.
            if let Ok(control) = build(&settings) {
                self.control = control;
                self.epoch += 1;
            }
            tracing::info!(at_ns = now.as_ns(), "this gateway adjusts the windows of the site from now on");
        }
    }

    /// Whether this gateway adjusts windows.
    pub fn is_active(&self) -> bool {
        self.control.is_some() && !self.led
    }

    /// Takes the requests of other gateways at a resource.
    pub fn handle_others(&mut self, now: Instant, resource: ResourceId, others: &Others) {
        let Some(load) = self.others.get_mut(resource.index()) else { return };
        *load = Load { running: others.running, waiting: others.waiting > 0 };
        let Tally { done, failed, service_us } = others.finished;
        let Some(control) = &mut self.control else { return };
        let service_ns = (service_us * 1000).checked_div(u64::from(done)).unwrap_or(0);
        let finished = |done| Finished { resource, route: OTHERS, service_ns, done };
        for _ in 0..done.min(MOST_TOLD) {
            control.handle_finished(now, &finished(true));
        }
        for _ in 0..failed.min(MOST_TOLD) {
            control.handle_finished(now, &finished(false));
        }
    }

    /// The adjusted window of a resource; `None` if it is not adjusted.
    pub fn window(&self, resource: ResourceId) -> Option<u32> {
        self.control.as_ref()?.window(resource)
    }

    /// How often a resource's window was changed.
    pub fn changes(&self, resource: ResourceId) -> u64 {
        self.changes.get(resource.index()).copied().unwrap_or(0)
    }

    /// The last changes of windows, the newest first.
    pub fn decisions(&self, now: Instant) -> Vec<Adjusted> {
        let told = |(at, decision): &(Instant, Adjusted)| Adjusted {
            ago: Duration::from_nanos(now.as_ns().saturating_sub(at.as_ns())),
            ..decision.clone()
        };
        self.decisions.iter().rev().map(told).collect()
    }

    pub fn handle_finished(&mut self, now: Instant, finished: &Finished) {
        if let Some(control) = self.control.as_mut().filter(|_| !self.led) {
            control.handle_finished(now, finished);
        }
    }

    pub fn handle_probed(&mut self, now: Instant, due: Due, probed: Probed) {
        if let Some(control) = &mut self.control
            && due.epoch == self.epoch
        {
            control.handle_probed(now, due.resource, probed);
        }
    }

    /// The probing request that is due now.
    pub fn poll_probe(&mut self, now: Instant) -> Option<Due> {
        let resource = self.control.as_mut().filter(|_| !self.led)?.poll_probe(now)?;
        Some(Due { resource, epoch: self.epoch })
    }

    /// Adjusts the windows that are due, and returns whether any changed.
    pub fn adjust(&mut self, now: Instant, admission: &mut machine::Admission) -> bool {
        let Some(control) = self.control.as_mut().filter(|_| !self.led) else { return false };
        let classes = admission.settings().classes.len() as u16;
        for (resource, limits) in (0..).map(ResourceId).zip(&self.settings.windows) {
            if limits.is_some() {
                let waiting = (0..classes).any(|class| admission.waiting(ClassId(class), resource) > 0);
                let others = self.others.get(resource.index()).copied().unwrap_or_default();
                let running = admission.running(resource) + others.running;
                control.handle_load(now, resource, Load { running, waiting: waiting || others.waiting });
            }
        }
        let mut changed = false;
        while let Some(change) = control.poll_window(now) {
            let Change { resource, window, reason } = change;
            tracing::debug!(at_ns = now.as_ns(), resource = &*self.names[resource.index()], window, %reason, "window");
            let from = admission.settings().windows.get(resource.index()).copied().flatten();
            admission.handle_window(resource, window);
            if self.decisions.len() == MOST_DECISIONS {
                self.decisions.pop_front();
            }
            let name = self.names[resource.index()].clone();
            self.decisions.push_back((now, Adjusted { resource: name, ago: Duration::ZERO, from, to: window, reason }));
            self.changes[resource.index()] += 1;
            changed = true;
        }
        changed
    }

    pub fn poll_timeout(&self) -> Option<Instant> {
        self.control.as_ref().filter(|_| !self.led).and_then(|control| control.poll_timeout())
    }
}

/// The contradiction in the settings of adjustment, if there is one.
pub(super) fn check(classes: &Classes) -> Result<(), SettingsError> {
    build(&settings(classes)).map(drop)
}

fn build(settings: &Settings) -> Result<Option<Box<dyn Controller + Send>>, SettingsError> {
    match settings.method {
        Method::Fixed => Ok(None),
        _ => settings.build().map(Some),
    }
}

fn settings(classes: &Classes) -> Settings {
    let admission = &classes.admission;
    let adjustment = &admission.adjustment;
    let window = |it: &ResourceConfig| {
        Some(Window { first: it.window?.get(), least: it.least.get(), most: it.most.get(), bound_ns: it.bound.map(ns) })
    };
    Settings {
        probe_every_ns: ns(adjustment.probe_every),
        probe_after_ns: ns(adjustment.probe_after),
        shrink_above: adjustment.shrink_above,
        grow_below: adjustment.grow_below,
        ..Settings::new(
            // With admission off, no request waits and no window is adjusted.
            if admission.enabled { adjustment.method } else { Method::Fixed },
            admission.resources.iter().map(window).collect(),
        )
    }
}

fn names(classes: &Classes) -> Vec<Arc<str>> {
    classes.admission.resources.iter().map(|resource| resource.name.as_str().into()).collect()
}

/// A time in nanoseconds.
pub(super) fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The narrowest possible windows.
pub(super) fn narrowest(classes: &Classes) -> Vec<Option<u32>> {
    let admission = &classes.admission;
    let least = |it: &ResourceConfig| match admission.adjustment.method {
        Method::Fixed => it.window,
        _ => it.window.map(|_| it.least),
    };
    admission.resources.iter().map(|it| least(it).map(NonZeroU32::get)).collect()
}

#[cfg(test)]
impl Windows {
    pub fn adjusted_by(&mut self, control: Box<dyn Controller + Send>) {
        self.control = Some(control);
    }
}
