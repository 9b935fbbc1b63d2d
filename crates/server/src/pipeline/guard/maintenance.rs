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
    config: Maintenance,
    retry_after: HeaderValue,
    closed: AtomicBool,
}

impl Switch {
    /// How long it takes at most until a file that came or went is noticed.
    pub(crate) const INTERVAL: Duration = Duration::from_secs(1);

    pub(crate) fn new(config: &Maintenance) -> Self {
        let seconds = config.retry_after.as_millis().div_ceil(1000) as u64;
        let closed = AtomicBool::new(config.file.exists());
        Self { config: config.clone(), retry_after: seconds.into(), closed }
    }

    /// Looks for the file. It may take as long as the disk takes.
    pub(crate) fn refresh(&self) {
        let closed = self.config.file.exists();
        if self.closed.swap(closed, Relaxed) != closed {
            let state = if closed { "closed: the file exists" } else { "open again: the file is gone" };
            tracing::info!(file = %self.config.file.display(), "maintenance: a site is {state}");
        }
    }

    /// The file that closes the site now.
    pub(crate) fn closed_by(&self) -> Option<&Path> {
        self.closed.load(Relaxed).then_some(&*self.config.file)
    }

    /// Refuses a client while the site is closed.
    pub(super) fn check(&self, request: &Guarded<'_>) -> Ruling {
        if !self.closed.load(Relaxed) || self.config.is_exempt(request.client) {
            return Ruling::GoesOn;
        }
        let mut response = error_page(StatusCode::SERVICE_UNAVAILABLE);
        response.headers_mut().insert(header::RETRY_AFTER, self.retry_after.clone());
        Ruling::Answer(response)
    }
}
