//! The account with the authority: kept on disk, made when there is none.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use instant_acme::{Account, AccountCredentials, ExternalAccountKey, NewAccount};
use serde::{Deserialize, Serialize};

use crate::{
    client::Client,
    config::{AcmeConfig, ExternalAccount},
    error::AcmeError,
    store::Store,
};

/// The account, as it is on disk.
#[derive(Deserialize, Serialize)]
struct Stored {
    contact: Option<String>,
    credentials: AccountCredentials,
}

/// The account that is on disk, or a new one.
pub(crate) async fn open(config: &AcmeConfig, store: &Store, client: Client) -> Result<Account, AcmeError> {
    let contact = config.contact.as_ref().map(|contact| format!("mailto:{contact}"));
    let contacts: Vec<_> = contact.iter().map(String::as_str).collect();
    let builder = Account::builder_with_http(Box::new(client));
    let reader = store.clone();
    let kept = blocking(move || reader.account()).await?;
    if let Some(json) = kept {
        let stored: Stored =
            serde_json::from_slice(&json).map_err(|_| AcmeError::Authority("the account on disk is damaged".into()))?;
        let known = stored.contact;
        // They are written again below, if the contact has changed.
        let copy: Stored = serde_json::from_slice(&json).map_err(|error| AcmeError::Authority(error.to_string()))?;
        let account = builder.from_credentials(stored.credentials).await?;
        if known != config.contact {
            account.update_contacts(&contacts).await?;
            save(store, Stored { contact: config.contact.clone(), credentials: copy.credentials }).await?;
        }
        return Ok(account);
    }
    let external = match config.external_account.clone() {
        Some(external) => Some(blocking(move || key(&external)).await?),
        None => None,
    };
    let new = NewAccount { contact: &contacts, terms_of_service_agreed: true, only_return_existing: false };
    let (account, credentials) = builder.create(&new, config.directory.clone(), external.as_ref()).await?;
    save(store, Stored { contact: config.contact.clone(), credentials }).await?;
    tracing::info!(directory = config.directory, "an account was made with the certificate authority");
    Ok(account)
}

async fn save(store: &Store, stored: Stored) -> Result<(), AcmeError> {
    let json = serde_json::to_vec(&stored).map_err(|error| AcmeError::Authority(error.to_string()))?;
    let store = store.clone();
    blocking(move || store.set_account(&json)).await
}

/// The key of an account elsewhere.
fn key(external: &ExternalAccount) -> Result<ExternalAccountKey, AcmeError> {
    let wrong = |message: String| AcmeError::File(external.key.clone(), message);
    let text = std::fs::read_to_string(&external.key).map_err(|error| wrong(error.to_string()))?;
    let key = URL_SAFE_NO_PAD.decode(text.trim().trim_end_matches('='));
    let key = key.map_err(|_| wrong("it is not a key in base64 for URLs".to_owned()))?;
    Ok(ExternalAccountKey::new(external.id.clone(), &key))
}

/// Runs what blocks on another thread.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, AcmeError> + Send + 'static,
) -> Result<T, AcmeError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(AcmeError::Authority(error.to_string())))
}
