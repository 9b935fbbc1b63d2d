//! Obtains one certificate: an order, a challenge for each name, a key and its certificate.

use std::{sync::Arc, time::Duration};

use instant_acme::{
    Account, AuthorizationStatus, CertificateIdentifier, Identifier, NewOrder, Order, OrderStatus, RetryPolicy,
};

use crate::{
    challenges::{Challenges, Presented},
    config::ChallengeKind,
    error::AcmeError,
};

/// An authority looks from several places, and may be busy.
const PATIENCE: RetryPolicy =
    RetryPolicy::new().initial_delay(Duration::from_millis(500)).backoff(1.5).timeout(Duration::from_secs(120));

/// A certificate that an authority is asked for.
pub(crate) struct Wanted<'a> {
    pub(crate) names: &'a [String],
    pub(crate) profile: Option<&'a str>,
    /// The certificate that the new one takes the place of.
    pub(crate) replaces: Option<CertificateIdentifier<'static>>,
    /// How names are proven, where the authority leaves the choice.
    pub(crate) kind: ChallengeKind,
}

/// Chain and key in one PEM text.
pub(crate) async fn order(
    account: &Account,
    challenges: &Arc<Challenges>,
    wanted: &Wanted<'_>,
) -> Result<String, AcmeError> {
    let mut order = begin(account, wanted).await?;
    // Answered until the authority has made up its mind.
    let presented = present(&mut order, challenges, wanted.kind).await?;
    let ready = order.poll_ready(&PATIENCE).await;
    drop(presented);
    if !matches!(ready, Ok(OrderStatus::Ready)) {
        return Err(match (reasons(&mut order).await, ready) {
            (Some(reasons), _) => AcmeError::Challenge(reasons),
            (None, Err(error)) => error.into(),
            (None, Ok(status)) => AcmeError::Authority(format!("the order is {status:?}")),
        });
    }
    let key = order.finalize().await?;
    let chain = order.poll_certificate(&PATIENCE).await?;
    Ok(format!("{}\n{key}", chain.trim_end()))
}

async fn begin(account: &Account, wanted: &Wanted<'_>) -> Result<Order, AcmeError> {
    let names: Vec<_> = wanted.names.iter().cloned().map(Identifier::Dns).collect();
    let new = || {
        let new = NewOrder::new(&names);
        match wanted.profile {
            Some(profile) => new.profile(profile),
            None => new,
        }
    };
    if let Some(replaced) = wanted.replaces.clone() {
        // An authority that does not know the old certificate, or this part of the protocol, refuses that.
        match account.new_order(&new().replaces(replaced)).await {
            Ok(order) => return Ok(order),
            Err(instant_acme::Error::Api(problem)) if problem.status == Some(429) => {
                return Err(instant_acme::Error::Api(problem).into());
            }
            Err(error) => tracing::debug!(%error, "an order that names the old certificate was refused"),
        }
    }
    Ok(account.new_order(&new()).await?)
}

/// Answers a challenge for each name that the authority has not validated already, and says so.
async fn present(
    order: &mut Order,
    challenges: &Arc<Challenges>,
    kind: ChallengeKind,
) -> Result<Vec<Presented>, AcmeError> {
    let mut presented = Vec::new();
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        let name = authorization.identifier().to_string();
        match authorization.status {
            AuthorizationStatus::Valid => continue,
            AuthorizationStatus::Pending => {}
            other => return Err(AcmeError::Authority(format!("the authorization of {name} is {other:?}"))),
        }
        let Some(mut challenge) = authorization.challenge(kind.of_protocol()) else {
            return Err(AcmeError::Challenge(format!("{name}: it does not offer {kind:?}")));
        };
        let answer = challenge.key_authorization();
        presented.push(match kind {
            ChallengeKind::Http01 => challenges.present_http(&challenge.token, answer.as_str()),
            ChallengeKind::TlsAlpn01 => challenges.present_tls(&name, answer.digest().as_ref())?,
        });
        challenge.set_ready().await?;
    }
    Ok(presented)
}

/// The errors that the authority reports for each name; `None` if there are none.
async fn reasons(order: &mut Order) -> Option<String> {
    let mut reasons = Vec::new();
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        if authorization.refresh().await.is_err() {
            continue;
        }
        let name = authorization.identifier().to_string();
        let errors = authorization.challenges.iter().filter_map(|challenge| challenge.error.as_ref());
        reasons.extend(errors.map(|error| format!("{name}: {}", error.detail.as_deref().unwrap_or("no reason given"))));
    }
    (!reasons.is_empty()).then(|| reasons.join("; "))
}
