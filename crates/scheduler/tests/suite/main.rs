//! The scheduling core from outside: every order on a bare link, driven as a driver does.

mod bands;
mod bare_link;
mod bounds;
mod orders;
mod shares;
mod sharing;
