//! Cutoffs of an attached device from the sizes that it has sent.

use std::fmt;

use crate::{
    attach::{Root, device, root},
    error::AttachError,
    netlink::Netlink,
    program::Running,
    sizes,
};

/// Cutoffs learned from sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relearned {
    /// Responses whose sizes were seen since the device was attached.
    pub responses: u64,
    /// The cutoffs between the ranks of the first class, in bytes; `None` while too few sizes were seen.
    pub cutoffs_bytes: Option<Vec<u32>>,
    /// Whether they differ from those before.
    pub changed: bool,
}

/// Makes the cutoffs of an attached device anew from the sizes of the responses that it has sent.
pub fn relearn(name: &str) -> Result<Relearned, AttachError> {
    let netlink = Netlink::open()?;
    let device = device(&netlink, name)?;
    let Root::Ours(Some(program)) = root(&netlink, &device)? else {
        return Err(AttachError::NotAttached { device: name.into(), found: "no classifier of Serpent's".into() });
    };
    let running = Running::find(program)?;
    let counters = running.counters()?;
    let mut settings = running.settings()?;
    let before = settings;
    let mut first = None;
    for class in settings.classes.iter_mut().filter(|class| class.ranks > 0) {
        let Some(cutoffs) = sizes::learned_cutoffs(&counters.sizes, class.ranks) else { break };
        class.set_cutoffs(&cutoffs);
        first.get_or_insert(cutoffs);
    }
    let changed = settings != before;
    if changed {
        running.set_settings(&settings)?;
    }
    Ok(Relearned { responses: counters.sizes.iter().sum(), cutoffs_bytes: first, changed })
}

impl fmt::Display for Relearned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cutoffs_bytes {
            None => write!(f, "{} responses were seen, too few to learn from; the cutoffs stay", self.responses),
            Some(cutoffs) => {
                let what = if self.changed { "new cutoffs" } else { "the cutoffs stay" };
                write!(f, "{what}, from {} responses, in bytes:", self.responses)?;
                cutoffs.iter().try_for_each(|bytes| write!(f, " {bytes}"))
            }
        }
    }
}
