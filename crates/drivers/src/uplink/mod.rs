//! The uplink as the server drives it. Bytes of responses leave in the order that the scheduler decides.
//!
//! The driver (`driver.rs`) has the scheduler behind a short lock, and carries out its decisions. [`Uplink`] is the
//! handle on it for the rest of the server. Gates and flows hold the driver itself.

mod classes;
mod doubt;
pub mod driver;
mod enforcement;
mod error;
#[cfg(target_os = "linux")]
mod limit;
mod line;
mod pace;
mod teller;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use self::driver::Driver;
pub use self::{
    classes::ClassAt,
    driver::UplinkStats,
    enforcement::Enforcement,
    error::UplinkError,
    line::LineStats,
    teller::{Measure, ResponseRank, TellError, Teller},
};
use crate::{
    alarm::Alarm,
    config::{Classes, UplinkConfig},
    lease::LeaseAsk,
};

/// A handle on the one uplink of this process; cheap to clone.
#[derive(Clone, Debug)]
pub struct Uplink {
    driver: Arc<Driver>,
}

impl Uplink {
    /// Checks that the configuration can be enforced here (privileges, a device attached) and starts with an idle uplink.
    ///
    /// # Errors
    ///
    /// In kernel mode, where no device is attached or privileges are missing, and where the kernel cannot keep the order or
    /// the share between classes; and where that share contradicts itself.
    pub fn new(config: &UplinkConfig, classes: impl Into<Classes>) -> Result<Self, UplinkError> {
        Self::with_alarm(config, &classes.into(), Alarm::new())
    }

    fn with_alarm(config: &UplinkConfig, classes: &Classes, alarm: Alarm) -> Result<Self, UplinkError> {
        Ok(Self { driver: Arc::new(Driver::new(config, classes, alarm)?) })
    }

    /// Drives the timer until dropped. Exactly one task runs this, on a runtime that is never blocked.
    pub async fn drive(&self) {
        self.driver.listen().await;
    }

    /// Follows the rate that the kernel holds the server's own device to, for a rate that is found. Exactly one task runs
    /// this, on a runtime that is none of the data path.
    pub async fn follow_limit(&self) {
        #[cfg(target_os = "linux")]
        limit::follow(&self.driver).await;
    }

    /// Begins with a rate that was found earlier, where the rate is found (`auto`) and is not known yet.
    pub fn begin_at(&self, known: scheduler::Rate) {
        self.driver.begin_at(known);
    }

    /// The rate of the link that was found, once it is known well; for [`Uplink::begin_at`] after a restart.
    pub fn known_rate(&self) -> Option<scheduler::Rate> {
        self.driver.known()
    }

    /// The driver, for gates and flows.
    pub fn driver(&self) -> &Arc<Driver> {
        &self.driver
    }

    /// Prepares a listening socket. Accepted sockets inherit the limit of unsent bytes; to set it on each of them costs
    /// a call, and wakes its task for nothing. In kernel mode only connections of HTTP/2 have a limit.
    pub fn prepare_listener(&self, listener: &socket2::Socket) {
        if self.driver.enforcement() == Enforcement::Paced
            && let Some(bytes) = self.driver.unsent_limit_bytes()
        {
            // Where there is no such limit the order suffers a little.
            let _ = kernel::socket::set_notsent_lowat(listener, bytes);
        }
    }

    /// Takes over a changed configuration; responses under way are ranked by it from their next chunk on. Returns the
    /// generation of the classes' numbers from now on.
    ///
    /// # Errors
    ///
    /// As [`Uplink::new`]; nothing is changed then.
    pub fn reconfigure(&self, config: &UplinkConfig, classes: impl Into<Classes>) -> Result<u64, UplinkError> {
        self.driver.handle_config(config, &classes.into())
    }

    /// Wire bytes charged for each class so far, for metrics. They are counted while the uplink is shared between
    /// classes.
    pub fn class_bytes(&self) -> Vec<(Arc<str>, u64)> {
        self.driver.class_bytes()
    }

    /// The responses under way of known size: since when, and their bytes.
    pub fn under_way(&self) -> Vec<(Duration, u64)> {
        self.driver.under_way()
    }

    /// Waits until the store is to be asked for a part of the line that several gateways send through; forever without such
    /// a line. `asked_of` is the line that was asked for last; `None` is returned once the gateway no longer sends through
    /// it. One task calls it, and reports the outcome before it calls again.
    pub async fn line_ask(&self, asked_of: Option<&str>) -> Option<LeaseAsk> {
        self.driver.line_ask(asked_of).await
    }

    /// The store has answered.
    pub fn line_leased(&self, ask: &LeaseAsk, reply: &scheduler::lease::Reply) {
        self.driver.line_leased(ask, reply);
    }

    /// The store has not answered.
    pub fn line_failed(&self) {
        self.driver.line_failed();
    }

    /// The store says that an ask is worth its while.
    pub fn line_notice(&self) {
        self.driver.line_notice();
    }

    /// The line that several gateways send through, if there is one.
    pub fn line_stats(&self) -> Option<LineStats> {
        self.driver.line_stats()
    }

    /// The state of the uplink, for metrics.
    pub fn stats(&self) -> UplinkStats {
        self.driver.uplink_stats()
    }
}

/// For tests that stop the runtime's clock and move it themselves ([`tokio::time::pause`], [`tokio::time::advance`]).
#[cfg(feature = "test-util")]
impl Uplink {
    /// As [`Uplink::new`], with an alarm that only [`Uplink::ring`] rings, in place of [`Uplink::drive`].
    ///
    /// # Errors
    ///
    /// As [`Uplink::new`].
    pub fn by_hand(config: &UplinkConfig, classes: impl Into<Classes>) -> Result<Self, UplinkError> {
        Self::with_alarm(config, &classes.into(), Alarm::ByHand(parking_lot::Mutex::default()))
    }

    /// As [`Uplink::new`], with an alarm by the runtime's clock, also while that is stopped.
    ///
    /// # Errors
    ///
    /// As [`Uplink::new`].
    pub fn by_runtime(config: &UplinkConfig, classes: impl Into<Classes>) -> Result<Self, UplinkError> {
        Self::with_alarm(config, &classes.into(), Alarm::coarse())
    }

    /// When the alarm is due; `None` while it is not set.
    pub fn alarm_at(&self) -> Option<tokio::time::Instant> {
        self.driver.alarm().due()
    }

    /// Rings the alarm. It is unset then, unless the scheduler sets it again.
    pub fn ring(&self) {
        self.driver.alarm().unset();
        self.driver.handle_alarm();
    }
}
