//! Strict priority: the first class that contends.

use alloc::boxed::Box;

use super::contender::{Choice, Contender, Reason, Share, Slots};
use crate::time::Instant;

#[derive(Clone, Copy, Debug)]
pub(super) struct Strict;

impl Share for Strict {
    fn choose(&mut self, _now: Instant, _slots: &Slots<'_>, contenders: &[Contender]) -> Option<Choice> {
        let first = contenders.iter().min_by_key(|it| it.class)?;
        let reason = if contenders.len() == 1 { Reason::Alone } else { Reason::Priority };
        Some(Choice { class: first.class, reason })
    }

    fn duplicate(&self) -> Box<dyn Share + Send> {
        Box::new(*self)
    }
}
