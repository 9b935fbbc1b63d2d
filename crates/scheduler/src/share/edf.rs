//! Earliest deadline first. Late jobs go last; otherwise, under overload, each late job would make the next
//! one late.

use alloc::boxed::Box;

use super::contender::{Choice, Contender, Reason, Share, Slots};
use crate::time::Instant;

#[derive(Clone, Copy, Debug)]
pub(super) struct Edf;

impl Share for Edf {
    fn choose(&mut self, _now: Instant, _slots: &Slots<'_>, contenders: &[Contender]) -> Option<Choice> {
        let never = Instant::from_ns(u64::MAX);
        let first = contenders.iter().min_by_key(|it| (it.late, it.deadline.unwrap_or(never), it.class))?;
        let reason = match (contenders.len(), first.late) {
            (1, _) => Reason::Alone,
            (_, false) => Reason::Deadline,
            (_, true) => Reason::Late,
        };
        Some(Choice { class: first.class, reason })
    }

    fn duplicate(&self) -> Box<dyn Share + Send> {
        Box::new(*self)
    }
}
