//! The answers to refused requests.

use bytes::Bytes;
use http::{HeaderValue, Response, header};
use scheduler::class::ClassId;

use crate::{classify::ClassifierError, config::Classes};
use files::{FileBody, error_page};

/// The prepared answer of each class.
#[derive(Debug)]
pub(crate) struct Refusals(Vec<Refusal>);

#[derive(Debug)]
struct Refusal {
    status: http::StatusCode,
    retry_after: Option<HeaderValue>,
    page: Option<Bytes>,
}

/// Largest page. Larger ones are unsuitable for many refusals.
const MAX_PAGE_BYTES: u64 = 1024 * 1024;

impl Refusals {
    /// Reads the pages. Blocks.
    pub(crate) fn read(classes: &Classes) -> Result<Self, ClassifierError> {
        let refusals = classes.classes.iter().map(|class| {
            let refusal = &class.refusal;
            let page = refusal.page.as_ref().map(|path| {
                let failed = |message| ClassifierError { path: path.clone(), message };
                match std::fs::metadata(path) {
                    Ok(metadata) if metadata.len() > MAX_PAGE_BYTES => {
                        Err(failed(format!("a page for refused requests may have {MAX_PAGE_BYTES} bytes at most")))
                    }
                    _ => std::fs::read(path).map(Bytes::from).map_err(|error| failed(error.to_string())),
                }
            });
            Ok(Refusal {
                status: refusal.status,
                retry_after: refusal.retry_after.map(|after| HeaderValue::from(after.as_secs_f64().ceil() as u64)),
                page: page.transpose()?,
            })
        });
        Ok(Self(refusals.collect::<Result<_, _>>()?))
    }

    /// The answer to a refused request of a class.
    pub(crate) fn response(&self, class: ClassId) -> Response<FileBody> {
        let Some(refusal) = self.0.get(class.index()).or(self.0.last()) else {
            return error_page(http::StatusCode::SERVICE_UNAVAILABLE);
        };
        let mut response = error_page(refusal.status);
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(after) = &refusal.retry_after {
            headers.insert(header::RETRY_AFTER, after.clone());
        }
        match &refusal.page {
            None => response,
            Some(page) => {
                headers.insert(header::CONTENT_LENGTH, HeaderValue::from(page.len()));
                // The page is the operator's, and may load what it wants.
                headers.remove(header::CONTENT_SECURITY_POLICY);
                response.map(|_| FileBody::from(page.clone()))
            }
        }
    }
}
