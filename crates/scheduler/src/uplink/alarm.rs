//! When the driver is to come again.

use super::Uplink;
use crate::time::Instant;

impl Uplink {
    /// When to call [`Uplink::poll_grant`] again; `None` while no job waits. Between [`Uplink::poll_timeout`] and
    /// [`crate::Pacing::slack_ns`] later.
    ///
    /// Bytes without a grant move the moment of room. As long as it does not pass the time returned here, that time
    /// stays as it is, so a driver sets its timer once for each grant and does not come in vain.
    pub fn poll_alarm(&self) -> Option<Instant> {
        let room_at = self.poll_timeout()?;
        let latest = room_at.add_ns(self.settings.pacing.slack_ns);
        Some(if (room_at..=latest).contains(&self.alarm) { self.alarm } else { latest })
    }

    /// The link or the waiting jobs have changed.
    pub(super) fn follow_room(&mut self) {
        self.alarm = self.poll_alarm().unwrap_or(self.alarm);
    }
}
