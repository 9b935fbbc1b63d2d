//! SURGE, the Scalable URL Reference Generator: a site's files, their popularity, and its users.
//!
//! After Barford and Crovella, "Generating Representative Web Workloads for Network and Server Performance
//! Evaluation" (SIGMETRICS 1998). Also after "Implementation of a New Scheduling Policy in Web Servers",
//! section 4.4.3 and table 1. SURGE combines six laws:
//!
//! 1. sizes of the files on the server: lognormal body, Pareto tail;
//! 2. popularity: Zipf's law;
//! 3. sizes of the requests: Pareto. *Matching* popularity to files satisfies laws 1 to 3 together
//!    ([`Site`]);
//! 4. temporal locality: lognormal stack distances;
//! 5. pages: a base file and its embedded references, with active OFF times between;
//! 6. silence between pages: inactive OFF times.
//!
//! [`crate::demand::Demand::users`] makes such users (closed loop). The open variant, as in "Implementation
//! of SRPT Scheduling in Web Servers", appendix, is a [`crate::sequence::Recipe`] over [`Site::file_set`]. It
//! requests the same stream of files at the times of a Poisson process that is scaled to a load.

mod law;
mod parameters;
mod site;
mod walk;

pub(crate) use self::walk::Walk;
pub use self::{
    law::{LogNormal, Pareto, Weibull},
    parameters::{Surge, SurgeError},
    site::Site,
};
