//! A controller that never changes a window.

use alloc::vec::Vec;

use super::{
    controller::{Change, Controller},
    settings::Settings,
};
use crate::{admission::ResourceId, time::Instant};

#[derive(Debug)]
pub(super) struct Fixed(Vec<Option<u32>>);

impl Fixed {
    pub fn new(settings: &Settings) -> Self {
        Self(settings.windows.iter().map(|window| Some(window.as_ref()?.first)).collect())
    }
}

impl Controller for Fixed {
    fn poll_window(&mut self, _now: Instant) -> Option<Change> {
        None
    }

    fn window(&self, resource: ResourceId) -> Option<u32> {
        *self.0.get(resource.index())?
    }
}
