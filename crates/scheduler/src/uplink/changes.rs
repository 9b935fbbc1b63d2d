//! Changes while jobs are under way: of the settings, of the rate, and of the share between classes.

use alloc::{vec, vec::Vec};

use super::{
    Uplink,
    classes::{ClassShare, Classes, ShareError},
    queue::ClassQueue,
    settings::Settings,
};
use crate::{class::ClassId, job::JobId, share::Policy, time::Instant, units::Rate};

impl Uplink {
    /// Applies changed settings; waiting jobs are ranked again.
    pub fn handle_settings(&mut self, now: Instant, settings: Settings) {
        self.advance(now);
        let followed = (self.settings.needs_fair_sharing(), self.settings.guard_stretch);
        self.classes_follow_rate(now, settings.rate);
        let old_rate = self.settings.simulated_rate();
        self.settings = settings;
        self.link.set(now, settings.rate, settings.pacing);
        self.fair_sharing.handle_rate(old_rate, self.settings.simulated_rate(), self.link.free_at());
        if (self.settings.needs_fair_sharing(), settings.guard_stretch) != followed {
            self.fair_sharing.restart(now, &self.settings, &mut self.jobs);
        }
        self.rank_all_anew();
        self.follow_room();
    }

    /// Changes the rate of the bottleneck.
    pub fn handle_rate(&mut self, now: Instant, rate: Option<Rate>) {
        self.advance(now);
        let late_anew = self.classes_follow_rate(now, rate);
        let old_rate = self.settings.simulated_rate();
        self.settings.rate = rate;
        self.link.set_rate(now, rate);
        self.fair_sharing.handle_rate(old_rate, self.settings.simulated_rate(), self.link.free_at());
        if self.settings.order.needs_rate() || late_anew {
            self.rank_all_anew();
        }
        self.follow_room();
    }

    /// Changes how the link is shared between classes; `None` makes all jobs one class.
    ///
    /// Waiting jobs keep waiting, in their new class: `moves` gives the new class for each old number. A
    /// class that is not in `moves` keeps its number, or becomes the last class if there are fewer now.
    ///
    /// # Errors
    /// The same errors as [`ClassShare::check`]; then nothing has changed.
    pub fn handle_share(
        &mut self,
        now: Instant,
        share: Option<ClassShare>,
        moves: &[ClassId],
    ) -> Result<(), ShareError> {
        if let Some(share) = &share {
            share.check()?;
        }
        self.advance(now);
        self.queues = vec![ClassQueue::default(); share.as_ref().map_or(1, |share| share.classes.len())];
        self.classes = share.map(Classes::new);
        self.waiting = 0;
        for ended in self.groups.clear(&mut self.jobs) {
            self.remove(ended, true);
        }
        let mut waiting = Vec::new();
        for (index, it) in &mut self.jobs {
            it.class = moves.get(it.class.index()).copied().unwrap_or(it.class);
            (it.share_tag_bytes, it.charged_to, it.late, it.queued) = (0, None, false, None);
            if let Some(member) = &mut it.member {
                self.groups.join(member, it.class.index().min(self.queues.len() - 1));
            }
            waiting.extend(it.waiting.take().map(|waiting| (JobId(index as u32), waiting.wanted_bytes)));
        }
        for (job, wanted_bytes) in waiting {
            self.wait(now, job, wanted_bytes);
        }
        Ok(())
    }

    /// The part of each class's waiting responses that is at this gateway, where several share one line
    /// ([`crate::lease::Line`]): in any unit; empty: all of them.
    pub fn handle_parts(&mut self, parts: &[u32]) {
        if let Some(classes) = &mut self.classes {
            classes.handle_parts(parts);
        }
    }

    fn rank_all_anew(&mut self) {
        let concerned = self.jobs.iter().filter(|(_, it)| it.waiting.is_some() || it.queued.is_some());
        for job in concerned.map(|(index, _)| JobId(index as u32)).collect::<Vec<_>>() {
            self.rank_anew(job);
        }
    }

    /// Prepares the classes for a new rate. Returns true if ranks are out of date: lateness depends on the rate.
    fn classes_follow_rate(&mut self, now: Instant, rate: Option<Rate>) -> bool {
        let Some(classes) = &mut self.classes else { return false };
        classes.handle_rate(now, self.settings.rate, rate);
        let late_anew = classes.policy() == Policy::Edf;
        if late_anew {
            self.jobs.iter_mut().for_each(|(_, it)| it.late = false);
        }
        late_anew
    }
}
