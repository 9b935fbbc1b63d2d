//! Classes of requests as the uplink knows them: their numbers, which a reload may change, and their share of the rate.

use std::{collections::VecDeque, num::NonZeroU32, sync::Arc};

use scheduler::{class::ClassId, share::Policy, uplink::ClassShare};

use super::error::{CLASSES_MAX, UplinkError};
use crate::config::{Classes, Enforce, UplinkConfig};

/// Renumberings of classes that are remembered for responses classified before them.
const GENERATIONS: usize = 64;

/// The number of a class, with the generation of that numbering. A response may begin after a reload has renumbered the
/// classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassAt {
    /// The number of the class.
    pub class: ClassId,
    /// The value that `Uplink::reconfigure` returned for this numbering; 0 before the first change.
    pub generation: u64,
}

/// The numbers of classes now, and how older numbers translate into them.
#[derive(Debug)]
pub(super) struct ClassNumbers {
    /// By number. The names are kept whether or not the uplink is shared between the classes.
    pub names: Vec<Arc<str>>,
    /// The class of requests that no rule matches.
    pub default: ClassId,
    pub generation: u64,
    /// For each older generation, the oldest first: the present class of each number.
    translations: VecDeque<Vec<ClassId>>,
}

impl ClassNumbers {
    pub fn new(classes: &Classes) -> Self {
        Self { names: names(classes), default: classes.default, generation: 0, translations: VecDeque::new() }
    }

    /// The present number of a class.
    pub fn translate(&self, class: ClassAt) -> ClassId {
        let ClassAt { class, generation } = class;
        let Some(age) = self.generation.checked_sub(generation).filter(|&age| age > 0) else { return class };
        let moves = usize::try_from(age).ok().and_then(|age| self.translations.len().checked_sub(age));
        moves.and_then(|at| self.translations[at].get(class.index()).copied()).unwrap_or(self.default)
    }

    /// For each present class, its number among these new names. The responses of a class that has no new number move
    /// to the default class.
    pub fn moves(&self, new: &[Arc<str>]) -> Vec<ClassId> {
        let find = |name: &Arc<str>| new.iter().position(|it| it == name);
        self.names.iter().map(|name| find(name).map_or(self.default, |class| ClassId(class as u16))).collect()
    }

    /// Begins a new generation, if the names have changed. `moves` is that of [`ClassNumbers::moves`].
    pub fn renumber(&mut self, names: Vec<Arc<str>>, moves: Vec<ClassId>) {
        if names == self.names {
            return;
        }
        for older in &mut self.translations {
            older.iter_mut().for_each(|class| *class = moves[class.index()]);
        }
        self.translations.push_back(moves);
        if self.translations.len() > GENERATIONS {
            self.translations.pop_front();
        }
        self.generation += 1;
        self.names = names;
    }
}

pub(super) fn names(classes: &Classes) -> Vec<Arc<str>> {
    classes.classes.iter().map(|class| class.name.as_str().into()).collect()
}

/// How the uplink is shared between classes. The reserve of a class is the same fraction of the uplink as of the slots
/// of the site.
pub(super) fn share(config: &UplinkConfig, classes: &Classes) -> Result<Option<ClassShare>, UplinkError> {
    let Some(policy) = classes.uplink_share else { return Ok(None) };
    if config.enforce == Enforce::Kernel {
        if policy != Policy::Strict {
            return Err(UplinkError::ShareNotBandable(policy));
        }
        if classes.classes.len() > CLASSES_MAX {
            return Err(UplinkError::TooManyClasses(classes.classes.len()));
        }
    }
    let admission = &classes.admission;
    let slots = admission.total.or_else(|| admission.resources.iter().filter_map(|it| it.window).max());
    let given = classes.classes.iter().map(|class| class.given).collect();
    let share = ClassShare { policy, classes: given, slots: slots.map(NonZeroU32::get) };
    let keeps = policy == Policy::Fixed
        || policy == Policy::Shared && share.classes.iter().any(|class| class.reserved_slots > 0);
    if config.line.is_some() && keeps {
        return Err(UplinkError::KeptOfLine);
    }
    share.check().map_err(UplinkError::Share)?;
    Ok(Some(share))
}
