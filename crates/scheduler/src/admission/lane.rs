//! A lane: queues that wait for a common set of slots.

use alloc::{boxed::Box, vec, vec::Vec};
use core::cmp::Ordering;

use super::{queue::Queue, settings::Settings};
use crate::{
    share::{self, Contender, Share, Slots},
    time::Instant,
};

/// Queues with a common set of slots: a resource type with a window of its own, or all that have none.
#[derive(Debug)]
pub(super) struct Lane {
    /// The window of the resource type; `None`: only the limit of all types applies.
    pub window: Option<u32>,
    /// The part of the window that this gateway has by a lease; `None`: all of it.
    pub leased: Option<u32>,
    /// By class.
    pub queues: Vec<Queue>,
    pub waiting: usize,
    /// The sum of the arrival times of the waiting requests, by class.
    pub arrived_ns: Vec<u128>,
    /// By class.
    pub running_of_class: Vec<u32>,
    pub running: u32,
    pub share: Box<dyn Share + Send>,
}

impl Lane {
    fn new(settings: &Settings, window: Option<u32>) -> Self {
        Self {
            window,
            leased: None,
            queues: settings.classes.iter().map(|class| Queue::new(class.order)).collect(),
            waiting: 0,
            arrived_ns: vec![0; settings.classes.len()],
            running_of_class: vec![0; settings.classes.len()],
            running: 0,
            share: settings.policy.build_over(&settings.classes, settings.delay_window_ns),
        }
    }

    /// The slots of the lane at this gateway; `None` without a window of its own.
    pub fn slots(&self) -> Option<u32> {
        self.window.map(|window| self.leased.unwrap_or(window))
    }

    /// Whether one more request may run by the window of the lane.
    pub fn has_room(&self) -> bool {
        self.slots().is_none_or(|slots| self.running < slots)
    }

    /// Compares by (window - running) / window, as exact fractions. A lane without any limit is completely idle.
    /// `total` is the limit of all lanes together.
    pub fn compare_idleness(&self, other: &Self, total: Option<u32>) -> Ordering {
        let idleness = |lane: &Self| match lane.slots().or(total) {
            Some(slots) => (slots.saturating_sub(lane.running), slots.max(1)),
            None => (1, 1),
        };
        let ((free_a, of_a), (free_b, of_b)) = (idleness(self), idleness(other));
        (u64::from(free_a) * u64::from(of_b)).cmp(&(u64::from(free_b) * u64::from(of_a)))
    }

    pub fn choose(&mut self, now: Instant, window: Option<u32>, contenders: &[Contender]) -> Option<share::Choice> {
        self.share.choose(now, &Slots { window, running: &self.running_of_class }, contenders)
    }
}

/// A lane for each resource type with a window, and one for all the others; and the lane of each type.
pub(super) fn lanes(settings: &Settings) -> (Vec<Lane>, Vec<usize>) {
    let mut lanes = Vec::new();
    let mut common = None;
    let lane_of = (settings.windows.iter())
        .map(|&window| match (window, common) {
            (None, Some(lane)) => lane,
            _ => {
                lanes.push(Lane::new(settings, window));
                let lane = lanes.len() - 1;
                if window.is_none() {
                    common = Some(lane);
                }
                lane
            }
        })
        .collect();
    (lanes, lane_of)
}
