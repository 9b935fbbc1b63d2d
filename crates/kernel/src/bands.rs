//! The kernel's priority bands on a network device, so that the kernel sends packets in the scheduler's
//! order.
//!
//! A device gets eight bands, drained in strict order: a packet of band 3 leaves only when bands 0 to 2 are
//! empty. Band 0 carries all unclassified traffic (SYN-ACKs, ARP, ssh, other programs); responses use bands 1
//! to 7. A socket chooses its band with `SO_PRIORITY` = [`Installed::priority`], which leads the kernel
//! straight to the class, without a filter.
//!
//! # What is installed
//!
//! | handle           | what it is                                                                                   |
//! |------------------|----------------------------------------------------------------------------------------------|
//! | `5e7:`           | the queueing discipline with the bands: HTB at the root, or `prio` under a TBF               |
//! | `5e7:1`..`5e7:8` | bands 0 to 7, so that `SO_PRIORITY` of band N is `0x05e7_0000 + N + 1`                       |
//! | `5e7:100`        | HTB only: the link, which has the rate; the bands borrow from it, in the order of `prio`      |
//! | `5e70:`          | `prio` only: the TBF at the root, which has the rate                                         |
//! | `5e71:`..`5e78:` | a FIFO in each band                                                                          |
//!
//! These handles identify our bands; no other discipline is changed or removed unless asked for. The kernel
//! keeps the bands when this process ends or crashes. Then traffic may be slower than the link allows, but
//! the network stays up.
//!
//! # Why HTB before `prio`
//!
//! Both need a shaper, and HTB shapes and orders in one: it chooses the packet at the moment when it may
//! leave. Measured on Linux 6.18 with three senders that each fill the link: the highest band got all of 10
//! and of 100 Mbit/s, and the others nothing. The condition is that a band's own guaranteed rate is next to
//! nothing. It is 128 bit/s here; at the customary 8 kbit/s each starved band leaks 9 kbit/s. Only band 0
//! owns the whole rate: a ping beside a full band 7 at 10 Mbit/s then takes 0.05 ms instead of 0.9 ms. TBF
//! over HTB is as strict, but commits to a packet one packet time before it leaves (1.1 ms). `prio` under TBF
//! is as good; it is used where the kernel has no HTB, and on request.
//!
//! # Limits
//!
//! - The bands must be the bottleneck, or they order nothing: set a rate slightly below the link's true rate.
//! - A super-packet of segmentation offload counts as one packet. Its size is bounded by the device's
//!   `gso_max_segs`, which [`install`] sets and [`remove`] restores. Connections that were open before keep
//!   their old bound.
//! - Packets that already wait keep their band, and a connection's packets wait for each other. Change bands
//!   seldom.
//! - A starved band must hold its waiting packets. When packets of a starved band are dropped for minutes,
//!   TCP gives up the connection (`TCPAbortOnTimeout`). The FIFO of a band holds at least
//!   [`LEAF_LIMIT_PACKETS_MIN`] packets. Monitor [`BandShown::dropped_packets`].
//!
//! Everything here runs `tc` and `ip` of iproute2, in the network namespace of the calling thread.

mod change;
mod error;
mod installed;
pub mod link;
mod memory;
mod observe;
mod plan;
mod show;
mod tool;
mod units;

pub use change::{Removed, install, remove};
pub use error::BandsError;
pub use installed::{BANDS_MAX, BANDS_MIN, How, InstallOptions, Installed, LEAF_LIMIT_PACKETS_MIN, Qdisc, Shape};
pub use show::{BandShown, Shown, find, show};
