//! The settings of admission, translated for the scheduler.

use std::{fmt, sync::Arc};

use scheduler::{
    admission::{Settings, SettingsError},
    class::Class,
    control,
    share::Policy,
};

use super::windows::{self, ns};
use crate::config::Classes;

/// A contradiction in the settings of admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contradiction {
    /// In the classes, or in the slots shared between them.
    Slots(SettingsError),
    /// In the adjustment of windows.
    Windows(control::SettingsError),
}

impl From<SettingsError> for Contradiction {
    fn from(error: SettingsError) -> Self {
        Self::Slots(error)
    }
}

impl From<control::SettingsError> for Contradiction {
    fn from(error: control::SettingsError) -> Self {
        Self::Windows(error)
    }
}

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slots(error) => error.fmt(f),
            Self::Windows(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Contradiction {}

/// Finds a contradiction in the settings.
pub(super) fn check(classes: &Classes) -> Result<(), Contradiction> {
    let mut settings = settings(classes);
    settings.check()?;
    windows::check(classes)?;
    if classes.admission.enabled {
        settings.windows = windows::narrowest(classes);
        settings.check()?;
    }
    Ok(())
}

/// The scheduler's settings for these classes.
pub(super) fn settings(classes: &Classes) -> Settings {
    let admission = &classes.admission;
    let given = classes.classes.iter().map(|class| class.given);
    if !admission.enabled {
        // Requests that waited when admission was turned off go in at once; no other setting can contradict
        // that.
        let open = given.map(|_| Class::default()).collect();
        return Settings::uncontrolled(open, admission.resources.len(), Policy::Strict);
    }
    Settings {
        classes: given.collect(),
        windows: admission.resources.iter().map(|resource| resource.window.map(Into::into)).collect(),
        total: admission.total.map(Into::into),
        policy: admission.policy,
        late: admission.late,
        delay_window_ns: ns(admission.delay_window),
    }
}

/// The names of classes.
pub(super) fn class_names(classes: &Classes) -> Vec<Arc<str>> {
    classes.classes.iter().map(|class| class.name.as_str().into()).collect()
}

/// The names of resources.
pub(super) fn resource_names(classes: &Classes) -> Vec<Arc<str>> {
    classes.admission.resources.iter().map(|resource| resource.name.as_str().into()).collect()
}
