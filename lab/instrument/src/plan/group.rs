//! A group of clients, resolved.

use workload::behaviour::Behaviour;

use crate::setting::{GroupSetting, Setting};

/// A group of clients, resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Its name, share and path.
    pub setting: GroupSetting,
    /// The behaviour of its clients.
    pub behaviour: Behaviour,
}

pub(super) fn groups(setting: &Setting) -> Vec<Group> {
    let one = [GroupSetting::default()];
    let groups = if setting.groups.is_empty() { &one[..] } else { &setting.groups };
    let resolve = |group: &GroupSetting| Group {
        behaviour: group.clients.clone().unwrap_or_else(|| setting.clients.clone()),
        setting: group.clone(),
    };
    groups.iter().map(resolve).collect()
}
