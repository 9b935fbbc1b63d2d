//! Groups of responses.

use std::sync::atomic::Ordering;

use scheduler::{JobId, Path, Size, priority::GroupId};

use super::Driver;
use crate::uplink::ClassAt;

impl Driver {
    /// A group for the responses of one connection.
    pub fn new_group(&self) -> GroupId {
        GroupId(self.groups.fetch_add(1, Ordering::Relaxed))
    }

    /// A response begins that is in no group.
    pub fn handle_started(&self, class: ClassAt, size: Size, path: Option<Path>) -> JobId {
        self.handle_started_in(None, class, size, path)
    }
}
