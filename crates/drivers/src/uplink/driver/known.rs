//! The rate that was found, over a restart.

use scheduler::{
    Rate,
    pace::{Finder, Pace},
};

use super::Driver;

impl Driver {
    /// Begins with a rate that was found earlier, where the rate is found and is not known yet.
    pub(in super::super) fn begin_at(&self, known: Rate) {
        let wakers = {
            let mut state = self.state.lock();
            let (now, utilisation) = (self.now(), state.config.utilisation);
            match &mut state.pace {
                Some(Pace::Found(finder)) if finder.known().is_none() => {
                    *finder = Finder::with_rate(now, utilisation, known);
                }
                _ => return,
            }
            let rate = state.pace.as_ref().and_then(Pace::rate);
            state.machine.handle_rate(now, rate);
            self.follow_rate(&mut state);
            self.pump(&mut state, now)
        };
        wakers.wake();
    }

    /// The rate of the link that was found, once it is known well.
    pub(in super::super) fn known(&self) -> Option<Rate> {
        match &self.state.lock().pace {
            Some(Pace::Found(finder)) => finder.known(),
            _ => None,
        }
    }
}
