//! The settings of admission.

use alloc::{vec, vec::Vec};
use core::fmt;

use crate::{
    class::{Class, ClassId},
    share::{DELAY_WINDOW_NS, Policy},
};

/// Number of a resource type: its index in the settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceId(pub u16);

impl ResourceId {
    /// The index in a table with a row for each resource type.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Classes, resource types, windows and shares.
///
/// Each type with a window of its own has a queue for each class, and its own share between the classes. All types without
/// a window have one common queue for each class, and one common share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The classes, the most important first.
    pub classes: Vec<Class>,
    /// For each resource type how many of its requests may run on the site at once; `None` for no window of its own.
    pub windows: Vec<Option<u32>>,
    /// How many requests may run on the site at once, whatever their types; `None` for no limit.
    pub total: Option<u32>,
    /// Which class goes first.
    pub policy: Policy,
    /// The treatment of requests that can no longer meet their deadline ([`Policy::Edf`]).
    pub late: Late,
    /// Time over which finished requests count for delays, in nanoseconds ([`Policy::Pwad`], [`Policy::Mdp`],
    /// [`Policy::Ratio`]).
    pub delay_window_ns: u64,
}

/// The treatment of a request that can no longer meet its deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Late {
    /// It goes behind all requests that still can.
    #[default]
    Serve,
    /// It is refused as soon as it is certain to be late.
    Refuse,
}

/// The new numbers of classes and resource types when settings change. A class or type that is not in the list keeps its
/// number, or becomes the last if there are fewer now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moves {
    /// By [`ClassId::index`] of the old settings.
    pub classes: Vec<ClassId>,
    /// By [`ResourceId::index`] of the old settings.
    pub resources: Vec<ResourceId>,
}

/// Why settings cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingsError {
    /// There is no class, or more than 65,535.
    Classes,
    /// There is no resource type, or more than 65,535.
    Resources,
    /// The class has a weight of 0.
    Weight(ClassId),
    /// The class has a delay ratio of 0.
    DelayRatio(ClassId),
    /// The class may never have a request running.
    NeverRuns(ClassId),
    /// The class has a waiting time of 0, so all of its requests would be refused.
    NeverWaits(ClassId),
    /// More slots are reserved for the class than it may ever hold.
    IdleReserve(ClassId),
    /// The resource type has a window of 0.
    Window(ResourceId),
    /// No request may run.
    Total,
    /// The time over which finished requests count is 0.
    DelayWindow,
    /// The policy divides slots, but this resource type has no window, and there is no limit for all types.
    Unlimited(ResourceId),
    /// The reserves leave no slot in the resource type's window for a class without one.
    Reserves(ResourceId),
}

impl Settings {
    /// Every request starts at once.
    pub fn uncontrolled(classes: Vec<Class>, resources: usize, policy: Policy) -> Self {
        Self {
            classes,
            windows: vec![None; resources],
            total: None,
            policy,
            late: Late::default(),
            delay_window_ns: DELAY_WINDOW_NS,
        }
    }

    /// One window for all requests, and one queue for each class.
    pub fn single_window(classes: Vec<Class>, resources: usize, policy: Policy, window: u32) -> Self {
        Self { total: Some(window), ..Self::uncontrolled(classes, resources, policy) }
    }

    /// A window for each resource type.
    pub fn multi_resource(classes: Vec<Class>, policy: Policy, windows: &[u32]) -> Self {
        let windows = windows.iter().copied().map(Some).collect();
        Self { windows, ..Self::uncontrolled(classes, 0, policy) }
    }

    /// Checks that the settings are consistent.
    ///
    /// # Errors
    /// The first inconsistency, and the class or resource type that has it.
    pub fn check(&self) -> Result<(), SettingsError> {
        if !(1..=usize::from(u16::MAX)).contains(&self.classes.len()) {
            return Err(SettingsError::Classes);
        }
        if !(1..=usize::from(u16::MAX)).contains(&self.windows.len()) {
            return Err(SettingsError::Resources);
        }
        for (class, id) in self.classes.iter().zip((0..).map(ClassId)) {
            if class.weight == 0 {
                return Err(SettingsError::Weight(id));
            }
            if class.delay_ratio == 0 {
                return Err(SettingsError::DelayRatio(id));
            }
            if class.most_running == Some(0) {
                return Err(SettingsError::NeverRuns(id));
            }
            if class.most_wait_ns == Some(0) {
                return Err(SettingsError::NeverWaits(id));
            }
            if class.most_running.is_some_and(|most| most < class.reserved_slots) {
                return Err(SettingsError::IdleReserve(id));
            }
        }
        if self.total == Some(0) {
            return Err(SettingsError::Total);
        }
        if self.delay_window_ns == 0 {
            return Err(SettingsError::DelayWindow);
        }
        let reserved: u64 = self.classes.iter().map(|class| u64::from(class.reserved_slots)).sum();
        let open = u64::from(self.classes.iter().any(|class| class.reserved_slots == 0));
        for (window, id) in self.windows.iter().zip((0..).map(ResourceId)) {
            if *window == Some(0) {
                return Err(SettingsError::Window(id));
            }
            match window.or(self.total) {
                None if self.policy.needs_window() => return Err(SettingsError::Unlimited(id)),
                Some(slots) if self.policy == Policy::Shared && reserved + open > u64::from(slots) && reserved > 0 => {
                    return Err(SettingsError::Reserves(id));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Classes => f.write_str("there must be at least one class, and at most 65535"),
            Self::Resources => f.write_str("there must be at least one resource type, and at most 65535"),
            Self::Weight(ClassId(class)) => write!(f, "class {class} has weight 0: the least is 1"),
            Self::DelayRatio(ClassId(class)) => write!(f, "class {class} has a delay ratio of 0: the least is 1"),
            Self::NeverRuns(ClassId(class)) => {
                write!(f, "class {class} may have no request running: allow at least 1, or set no limit")
            }
            Self::NeverWaits(ClassId(class)) => write!(
                f,
                "class {class} may wait for no time at all, not even to be let in: allow at least 1 ns, or set no limit (a \
                 request that is to start at once or be refused has no place in a queue: allow 0 waiting)"
            ),
            Self::IdleReserve(ClassId(class)) => {
                write!(
                    f,
                    "class {class} has more slots reserved than it may have requests running: reserve fewer, or allow more"
                )
            }
            Self::Window(ResourceId(resource)) => {
                write!(f, "resource type {resource} has a window of 0: the least is 1")
            }
            Self::Total => f.write_str("no request may run: allow at least 1, or set no limit"),
            Self::DelayWindow => f.write_str("delays are counted over no time: give them some, such as 120 s"),
            Self::Unlimited(ResourceId(resource)) => write!(
                f,
                "slots are to be shared out, but there is no number of them for resource type {resource}: give it a window, \
                 or a limit for all types"
            ),
            Self::Reserves(ResourceId(resource)) => write!(
                f,
                "the reserves leave no slot of resource type {resource} for a class without one: reserve fewer, or widen \
                 its window"
            ),
        }
    }
}

impl core::error::Error for SettingsError {}
