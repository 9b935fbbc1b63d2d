//! `maintenance`: a site is closed while a file exists.

use std::{
    path::Path,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use http::{HeaderValue, StatusCode, header};

use super::ruling::{Guarded, Ruling};
use crate::config::Maintenance;
use files::error_page;

/// Whether a site is closed. No request asks the disk: another thread does, every [`Switch::INTERVAL`].
#[derive(Debug)]
pub(crate) struct Switch {
    /// The first name of the site.
    site: Box<str>,
    config: Maintenance,
    retry_after: HeaderValue,
    /// The file exists.
    file: AtomicBool,
    /// It was closed at the admin address, of this gateway or another one.
    turned: AtomicBool,
    /// The file exists at another gateway.
    elsewhere: AtomicBool,
}

impl Switch {
    /// How long it takes at most until a file that came or went is noticed.
    pub(crate) const INTERVAL: Duration = Duration::from_secs(1);

    pub(crate) fn new(config: &Maintenance, site: &str) -> Self {
        let seconds = config.retry_after.as_millis().div_ceil(1000) as u64;
        let file = AtomicBool::new(config.file.exists());
        let (turned, elsewhere) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { site: site.into(), config: config.clone(), retry_after: seconds.into(), file, turned, elsewhere }
    }

    /// The first name of the site, or `default`.
    pub(crate) fn site(&self) -> &str {
        &self.site
    }

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        &self.config.file
    }

    /// Whether the file exists here.
    pub(crate) fn has_file(&self) -> bool {
        self.file.load(Relaxed)
    }

    /// Whether it was closed at an admin address.
    pub(crate) fn is_turned(&self) -> bool {
        self.turned.load(Relaxed)
    }

    /// Whether requests are refused.
    pub(crate) fn is_closed(&self) -> bool {
        self.has_file() || self.is_turned() || self.elsewhere.load(Relaxed)
    }

    /// Closes the site, whether the file exists or not, or takes that back.
    pub(crate) fn turn(&self, closed: bool) {
        if self.turned.swap(closed, Relaxed) != closed {
            let state = if closed { "closed" } else { "not closed any more" };
            tracing::info!(site = &*self.site, "maintenance: a site is {state} by the admin address");
        }
    }

    /// Says whether the file exists at any gateway.
    pub(crate) fn hear(&self, exists: bool) {
        if self.elsewhere.swap(exists, Relaxed) != exists {
            let state = if exists { "exists" } else { "is gone" };
            tracing::info!(site = &*self.site, "maintenance: the file {state} at a gateway of the site");
        }
    }

    /// Looks for the file. It may take as long as the disk takes.
    pub(crate) fn refresh(&self) {
        let closed = self.config.file.exists();
        if self.file.swap(closed, Relaxed) != closed {
            let state = if closed { "closed: the file exists" } else { "open again: the file is gone" };
            tracing::info!(file = %self.config.file.display(), "maintenance: a site is {state}");
        }
    }

    /// Refuses a client while the site is closed.
    pub(super) fn check(&self, request: &Guarded<'_>) -> Ruling {
        if !self.is_closed() || self.config.is_exempt(request.client) {
            return Ruling::GoesOn;
        }
        let mut response = error_page(StatusCode::SERVICE_UNAVAILABLE);
        response.headers_mut().insert(header::RETRY_AFTER, self.retry_after.clone());
        Ruling::Answer(response)
    }
}
