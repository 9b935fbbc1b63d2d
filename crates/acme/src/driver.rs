//! Does what the state machine of each certificate says: one after the other, in one task.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use instant_acme::{Account, CertificateIdentifier};
use parking_lot::Mutex;
use tokio::time::{sleep, timeout};

use crate::{
    account::{self, blocking},
    challenges::Challenges,
    client::Client,
    config::AcmeConfig,
    error::AcmeError,
    managed::{Issued, ManagedCertificate, Status},
    order::{self, Wanted},
    renewal::{Action, Span},
    store::{Failures, Store},
};

/// The clock may be set, and the machine may sleep: the time is looked at this often.
const LONGEST_SLEEP: Duration = Duration::from_secs(600);
/// An order that hangs in spite of the limits of its requests must not hold up the others.
const ORDER_TIMEOUT: Duration = Duration::from_secs(10 * 60);
/// After an authority could not be asked when to renew.
const ASK_AGAIN_S: u64 = 60 * 60;
/// Longest message of an authority that is passed on.
const MAX_MESSAGE_CHARS: usize = 500;

/// The certificates of an authority. Clones share all state.
#[derive(Clone)]
pub struct Acme(Arc<Inner>);

struct Inner {
    config: AcmeConfig,
    client: Client,
    store: Store,
    challenges: Arc<Challenges>,
    certificates: Vec<Arc<ManagedCertificate>>,
    counters: Arc<Counters>,
    chance: Mutex<Chance>,
    account: tokio::sync::Mutex<Option<Account>>,
}

/// Counters since the start.
#[derive(Debug, Default)]
pub struct Counters {
    /// Certificates obtained.
    pub obtained: AtomicU64,
    /// Attempts that failed.
    pub failed: AtomicU64,
}

impl Acme {
    /// Reads what is on disk. `before`, the certificates of the configuration before, keep their state. `seed` decides all
    /// that is up to chance. Blocks.
    ///
    /// # Errors
    /// A file of the configuration cannot be used, or the state cannot be written.
    pub fn open(config: &AcmeConfig, before: Option<&Self>, seed: u64) -> Result<Self, AcmeError> {
        if let Some(before) = before.filter(|before| before.0.config == *config) {
            return Ok(before.clone());
        }
        let store = Store::open(&config.state, &config.directory)?;
        let client = Client::new(config.roots.as_deref())?;
        let before = before.map(|before| &before.0);
        let same = before.filter(|it| it.config.directory == config.directory && it.config.state == config.state);
        let mut chance = Chance(seed);
        let certificates = config.certificates.iter().map(|names| {
            let known = same.and_then(|before| before.certificates.iter().find(|it| it.names() == names));
            known.cloned().unwrap_or_else(|| Arc::new(load(&store, names, &mut chance)))
        });
        Ok(Self(Arc::new(Inner {
            certificates: certificates.collect(),
            config: config.clone(),
            client,
            store,
            challenges: before.map(|before| before.challenges.clone()).unwrap_or_default(),
            counters: before.map(|before| before.counters.clone()).unwrap_or_default(),
            chance: Mutex::new(chance),
            account: tokio::sync::Mutex::default(),
        })))
    }

    /// Whether both are the same, so that a task which drives one drives the other.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The certificate of a set of names, if there is one in the configuration.
    pub fn certificate(&self, names: &[String]) -> Option<&Arc<ManagedCertificate>> {
        self.0.certificates.iter().find(|certificate| **certificate.names() == *names)
    }

    /// The answers to open challenges.
    pub fn challenges(&self) -> &Arc<Challenges> {
        &self.0.challenges
    }

    /// The counters of certificates obtained and attempts that failed.
    pub fn counters(&self) -> &Counters {
        &self.0.counters
    }

    /// How all certificates stand.
    pub fn statuses(&self) -> Vec<Status> {
        self.0.certificates.iter().map(|certificate| certificate.status()).collect()
    }

    /// Obtains and renews certificates. Never ends; may be dropped at any time.
    pub async fn drive(&self) {
        loop {
            let mut wake_s = u64::MAX;
            for certificate in &self.0.certificates {
                let action = certificate.progress.lock().renewal.poll(now_s());
                match action {
                    Action::Order => self.0.obtain(certificate).await,
                    Action::AskWhen => self.0.ask_when(certificate).await,
                    Action::Wait(_) => {}
                }
                wake_s = wake_s.min(match certificate.progress.lock().renewal.poll(now_s()) {
                    Action::Wait(until_s) => until_s,
                    Action::Order | Action::AskWhen => 0,
                });
            }
            // Part of a second is rounded up.
            let pause = Duration::from_secs(wake_s.saturating_sub(now_s()).max(1));
            sleep(pause.min(LONGEST_SLEEP)).await;
        }
    }
}

impl Inner {
    async fn obtain(&self, certificate: &Arc<ManagedCertificate>) {
        let names = certificate.names().clone();
        let shown = names.join(", ");
        self.client.take_patience();
        let ordered = timeout(ORDER_TIMEOUT, self.order(certificate)).await;
        let ordered = ordered.unwrap_or_else(|_| Err(AcmeError::Authority("it takes too long".to_owned())));
        let issued = ordered.and_then(|pem| Ok((Issued::read(pem.as_bytes())?, pem)));
        let chance = self.chance.lock().next();
        let error = match issued {
            Ok((issued, pem)) => {
                certificate.take(issued, Some(now_s()), chance);
                self.counters.obtained.fetch_add(1, Relaxed);
                tracing::info!(names = shown, "a certificate was obtained");
                let (store, names) = (self.store.clone(), names.clone());
                match blocking(move || store.set_certificate(&names, pem.as_bytes())).await {
                    Ok(()) => return,
                    // It is used all the same, and lost at the next start.
                    Err(error) => {
                        tracing::error!(names = shown, %error, "a certificate could not be written to disk");
                        certificate.progress.lock().last_error = Some(error.to_string());
                        return;
                    }
                }
            }
            Err(error) => clean(&error.to_string()),
        };
        self.counters.failed.fetch_add(1, Relaxed);
        // The next attempt looks at the account and the directory anew.
        *self.account.lock().await = None;
        let failures = {
            let mut progress = certificate.progress.lock();
            progress.renewal.handle_failure(now_s(), self.client.take_patience(), chance);
            progress.last_error = Some(error.clone());
            let (count, last_s, retry_s) = progress.renewal.failures();
            Failures { count, last_s, retry_s }
        };
        let minutes = failures.retry_s.saturating_sub(failures.last_s) / 60;
        match certificate.key() {
            Some(_) => tracing::error!(
                names = shown,
                error,
                next_attempt_minutes = minutes,
                "a certificate could not be renewed; the old one stays"
            ),
            None => tracing::error!(
                names = shown,
                error,
                next_attempt_minutes = minutes,
                "a certificate could not be obtained; until there is one, TLS to these names fails"
            ),
        }
        let store = self.store.clone();
        if let Err(error) = blocking(move || store.set_failures(&names, failures)).await {
            tracing::error!(%error, "failures could not be written to disk; a start will try again at once");
        }
    }

    async fn order(&self, certificate: &ManagedCertificate) -> Result<String, AcmeError> {
        let failures = certificate.progress.lock().renewal.failures().0;
        let kinds = &self.config.challenges;
        let wanted = Wanted {
            names: certificate.names(),
            profile: self.config.profile.as_deref(),
            replaces: identifier(certificate),
            kind: kinds[failures as usize % kinds.len()],
        };
        let account = self.account().await?;
        match order::order(&account, &self.challenges, &wanted).await {
            Err(AcmeError::NoAccount) => {}
            other => return other,
        }
        // The authority has lost the account, as one for tests does at each start.
        *self.account.lock().await = None;
        let store = self.store.clone();
        blocking(move || store.forget_account()).await?;
        order::order(&self.account().await?, &self.challenges, &wanted).await
    }

    async fn ask_when(&self, certificate: &ManagedCertificate) {
        let asked = async {
            let identifier = identifier(certificate).ok_or(instant_acme::Error::Unsupported("this certificate"));
            let account = self.account().await.map_err(|error| instant_acme::Error::Other(error.into()))?;
            account.renewal_info(&identifier?).await
        };
        let (window, again_s) = match asked.await {
            Ok((info, again)) => {
                let seconds = |time: i64| u64::try_from(time).unwrap_or(0);
                let window = info.suggested_window;
                let (begin, end) = (window.start.unix_timestamp(), window.end.unix_timestamp());
                (Some(Span { begin_s: seconds(begin), end_s: seconds(end) }), Some(again.as_secs()))
            }
            Err(instant_acme::Error::Unsupported(_)) => (None, None),
            Err(error) => {
                tracing::debug!(error = clean(&error.to_string()), "the authority cannot be asked when to renew");
                (None, Some(ASK_AGAIN_S))
            }
        };
        let chance = self.chance.lock().next();
        certificate.progress.lock().renewal.handle_window(window, again_s, now_s(), chance);
    }

    async fn account(&self) -> Result<Account, AcmeError> {
        let mut known = self.account.lock().await;
        if let Some(account) = &*known {
            return Ok(account.clone());
        }
        let account = account::open(&self.config, &self.store, self.client.clone()).await?;
        Ok(known.insert(account).clone())
    }
}

/// A certificate with what is on disk.
fn load(store: &Store, names: &Arc<[String]>, chance: &mut Chance) -> ManagedCertificate {
    let certificate = ManagedCertificate::new(names.clone());
    let kept = store.certificate(names).and_then(|pem| pem.map(|pem| Issued::read(&pem)).transpose());
    match kept {
        Ok(Some(issued)) => certificate.take(issued, None, chance.next()),
        Ok(None) => {}
        Err(error) => tracing::warn!(%error, "a certificate on disk cannot be used; a new one will be obtained"),
    }
    if let Some(Failures { count, last_s, retry_s }) = store.failures(names) {
        certificate.progress.lock().renewal.handle_start(count, last_s, retry_s);
    }
    certificate
}

/// The certificate as the authority calls it (RFC 9773, section 4.1).
fn identifier(certificate: &ManagedCertificate) -> Option<CertificateIdentifier<'static>> {
    let key = certificate.key()?;
    CertificateIdentifier::try_from(key.cert.first()?).ok().map(CertificateIdentifier::into_owned)
}

/// A message without line ends, and of a length that fits into a log.
fn clean(message: &str) -> String {
    let printable = |c: char| if c.is_control() { ' ' } else { c };
    message.chars().map(printable).take(MAX_MESSAGE_CHARS).collect()
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Random numbers from a seed (SplitMix64).
struct Chance(u64);

impl Chance {
    /// A number from 0 up to 1.
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chance_is_between_zero_and_one_and_a_seed_decides_it() {
        let draw = |seed| {
            let mut chance = Chance(seed);
            (0..1000).map(|_| chance.next()).collect::<Vec<_>>()
        };
        let drawn = draw(1);
        assert!(drawn.iter().all(|it| (0.0..1.0).contains(it)));
        let mean = drawn.iter().sum::<f64>() / 1000.0;
        assert!((mean - 0.5).abs() < 0.05, "{mean}");
        assert!(drawn == draw(1) && drawn != draw(2));
    }

    #[test]
    fn a_message_of_an_authority_is_one_line() {
        let long = "a\nb".repeat(1000);
        assert!(clean(&long).len() == MAX_MESSAGE_CHARS && !clean(&long).contains('\n'));
    }
}
