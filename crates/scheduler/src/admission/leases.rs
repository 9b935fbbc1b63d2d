//! The slots that this gateway has, where several divide those of a site ([`crate::lease`]).

use super::{Admission, ResourceId};
use crate::class::ClassId;

impl Admission {
    /// Sets the slots of a resource type's window that this gateway has, which may be 0. `parts`: the
    /// part of each class's requests that is at this gateway ([`crate::share::Share::handle_parts`]). Running requests
    /// continue. Does nothing for a type without a window of its own.
    pub fn handle_lease(&mut self, resource: ResourceId, slots: u32, parts: &[u32]) {
        if let Some(Some(_)) = self.settings.windows.get(resource.index()) {
            let lane = &mut self.lanes[self.lane_of[resource.index()]];
            lane.leased = Some(slots);
            lane.share.handle_parts(parts);
        }
    }

    /// Sets the slots of a class in a resource type's window that this gateway has, for [`crate::share::Policy::Fixed`].
    pub fn handle_lease_of_class(&mut self, resource: ResourceId, class: ClassId, slots: u32) {
        if let Some(Some(_)) = self.settings.windows.get(resource.index()) {
            self.lanes[self.lane_of[resource.index()]].share.handle_slots(class, slots);
        }
    }

    /// [`Admission::handle_lease`] for the limit of all types together.
    pub fn handle_leased_total(&mut self, slots: u32, parts: &[u32]) {
        if self.settings.total.is_some() {
            self.leased_total = Some(slots);
            for lane in self.lanes.iter_mut().filter(|lane| lane.window.is_none()) {
                lane.share.handle_parts(parts);
            }
        }
    }

    /// Requests of all classes that run and that wait: of a resource type, or of all types. Types without a window of
    /// their own have one number together.
    pub fn load(&self, resource: Option<ResourceId>) -> (u32, usize) {
        match resource.map(|it| self.lane_of.get(it.index())) {
            Some(Some(&lane)) => (self.lanes[lane].running, self.lanes[lane].waiting),
            Some(None) => (0, 0),
            None => (self.running, self.lanes.iter().map(|lane| lane.waiting).sum()),
        }
    }
}
