//! Tests of the scheduling core through its public API: every order on a simulated link.

mod bands;
mod bare_link;
mod bounds;
mod orders;
mod shares;
mod sharing;
