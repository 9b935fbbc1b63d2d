//! Warns of a certificate that clients do not accept, or soon will not.

use std::{
    ops::Range,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rustls_pki_types::CertificateDer;
use server::config::CertificateFiles;
use x509_parser::{
    certificate::X509Certificate,
    prelude::{FromDer as _, oid_registry::Oid},
};

use super::problems::Problem;

/// A certificate of three months is renewed a month before its end; two weeks before it, something is wrong.
const SOON_S: i64 = 14 * 24 * 60 * 60;
/// The extension by which a certificate demands a stapled OCSP response (RFC 7633).
const TLS_FEATURE: &[u64] = &[1, 3, 6, 1, 5, 5, 7, 1, 24];

/// Warnings about the certificate of a server, which is the first of the chain in `files`.
pub(super) fn warnings(
    certificate: &CertificateDer<'_>,
    files: &CertificateFiles,
    span: Option<Range<usize>>,
    now: SystemTime,
) -> Vec<Problem> {
    // The server does not read it either, and serves it.
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return Vec::new() };
    let now = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs().cast_signed());
    let validity = certificate.validity();
    let (begin, end) = (validity.not_before.timestamp(), validity.not_after.timestamp());
    let mut found = Vec::new();
    let mut warn = |what: String, help: &str| {
        let message = format!("the certificate in `{}` {what}", files.chain.display());
        found.push(Problem::warning(message, span.clone()).help(help));
    };
    let date = |at: i64| {
        let at = UNIX_EPOCH + Duration::from_secs(at.max(0).cast_unsigned());
        humantime::format_rfc3339_seconds(at).to_string()
    };
    let days = |seconds: i64| match seconds / (24 * 60 * 60) {
        0 => "less than a day".to_owned(),
        1 => "1 day".to_owned(),
        days => format!("{days} days"),
    };
    if end <= now {
        warn(format!("has expired: it ended {} ago, at {}", days(now - end), date(end)), "renew it; clients refuse it");
    } else if begin > now {
        warn(format!("is not valid before {}", date(begin)), "look whether the clock of this machine is right");
    } else if end - now < SOON_S.min((end - begin) / 3) {
        warn(format!("expires in {}, at {}", days(end - now), date(end)), "renew it, and look why that did not happen");
    }
    let staples = Oid::from(TLS_FEATURE).is_ok_and(|oid| certificate.extensions().iter().any(|it| it.oid == oid));
    if staples && files.ocsp.is_none() {
        warn(
            "demands a stapled OCSP response, and there is none".to_owned(),
            "name its file in `ocsp-response`, or get a certificate without `must-staple`; some clients refuse this one",
        );
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_S: u64 = 24 * 60 * 60;

    /// The warnings about a certificate that is valid for `days`, `day` days after its begin.
    fn said(days: u64, day: f64, staples: bool) -> String {
        let begin = UNIX_EPOCH + Duration::from_secs(20_000 * DAY_S);
        let mut params = rcgen::CertificateParams::new(vec!["a".to_owned()]).unwrap();
        params.not_before = begin.into();
        params.not_after = (begin + Duration::from_secs(days * DAY_S)).into();
        if staples {
            let content = vec![0x30, 3, 2, 1, 5];
            params.custom_extensions.push(rcgen::CustomExtension::from_oid_content(TLS_FEATURE, content));
        }
        let made = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
        let now = begin + Duration::from_secs(DAY_S).mul_f64(day.max(0.0));
        let now = if day < 0.0 { begin - Duration::from_secs(DAY_S) } else { now };
        let files = CertificateFiles { chain: "crt".into(), key: "key".into(), ocsp: None };
        let found = warnings(made.der(), &files, None, now);
        found.iter().map(|problem| problem.message.as_str()).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn an_end_that_is_near_or_over_is_warned_of() {
        assert_eq!(said(90, 60.0, false), "");
        assert_eq!(said(90, 75.9, false), "");
        let soon = said(90, 80.0, false);
        assert_eq!(soon, "the certificate in `crt` expires in 10 days, at 2025-01-02T00:00:00Z");
        assert!(said(90, 89.5, false).contains("expires in less than a day"));
        assert!(said(90, 91.5, false).contains("has expired: it ended 1 day ago, at 2025-01-02"));
        assert_eq!(said(6, 3.9, false), "", "a certificate of few days is always near its end");
        assert!(said(6, 4.1, false).contains("expires in 1 day"));
    }

    #[test]
    fn a_certificate_of_the_future_and_one_that_demands_a_staple_are_warned_of() {
        let _ = said(90, 1.0, true);
        assert!(said(90, -1.0, false).contains("is not valid before 2024-10-04T00:00:00Z"));
        assert!(said(90, 1.0, true).contains("demands a stapled OCSP response"));
    }
}
