//! Asks for leases, on their way from a driver to the task that talks to the store.

use std::sync::Arc;

use scheduler::{
    Instant,
    lease::{Ask, CellSettings},
};

/// The names of a cell and of its classes, by which all gateways of a site know them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellNames {
    /// Of the cell.
    pub cell: String,
    /// Of the classes.
    pub classes: Vec<Arc<str>>,
}

/// An ask to send to the store.
#[derive(Clone, Debug)]
pub struct LeaseAsk {
    /// The line that parts are asked for of, by its name; `None`: slots of the site.
    pub line: Option<String>,
    /// The message to the store.
    pub ask: Ask,
    /// The settings of the cells.
    pub cells: Vec<CellSettings>,
    /// Their names.
    pub names: Vec<CellNames>,
    pub(crate) asked_at: Instant,
}
