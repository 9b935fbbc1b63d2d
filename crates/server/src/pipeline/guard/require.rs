//! `require`: only requests that show a password, a key, a certificate or an address go on.

use http::{HeaderValue, Response, StatusCode, header};

use super::ruling::{Checked, Guarded, Ruling};
use crate::{
    classify::{Lacks, Met, Required, Shown},
    config::Require,
};
use files::{FileBody, error_page};

/// When a client may come again whose password was not checked, because too many others wait for that.
const RETRY_AFTER_S: HeaderValue = HeaderValue::from_static("5");

/// Refuses a request that lacks something. A password that was never seen is checked on another thread.
pub(super) fn check(require: &Require, request: &Guarded<'_>) -> Checked<'static> {
    let Guarded { parts, client, certificate_names, classifier, .. } = request;
    let shown = Shown { parts, client: *client, certificate_names: *certificate_names };
    match classifier.require(&require.requirement, shown) {
        Required::Now(met) => Checked::Now(ruling(require, met)),
        Required::Later(met) => {
            let require = require.clone();
            Checked::Later(Box::pin(async move { ruling(&require, met.await) }))
        }
    }
}

fn ruling(require: &Require, met: Met) -> Ruling {
    Ruling::Answer(match met {
        Met::Yes(None) => return Ruling::GoesOn,
        Met::Yes(Some(user)) => return Ruling::GoesOnAs(user),
        Met::No(Lacks::Password) => challenge(&require.basic_challenge),
        Met::No(Lacks::Bearer) => challenge(&require.bearer_challenge),
        Met::No(Lacks::Other) => error_page(StatusCode::FORBIDDEN),
        Met::Busy => {
            let mut response = error_page(StatusCode::SERVICE_UNAVAILABLE);
            response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER_S);
            response
        }
    })
}

fn challenge(challenge: &HeaderValue) -> Response<FileBody> {
    let mut response = error_page(StatusCode::UNAUTHORIZED);
    response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge.clone());
    response
}
