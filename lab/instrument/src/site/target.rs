//! A page of the site.

/// A page, for the resource that it mainly needs.
#[derive(Clone, Debug)]
pub(super) struct Page {
    pub(super) name: String,
    /// Path, with a query if there is one.
    pub(super) target: String,
}

impl Page {
    pub(super) fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }
}
