//! The files: the account, and of each certificate its chain and key, and its failures.
//!
//! ```text
//! STATE/                              0700
//!   acme.example.org-0123abcd/        0700, for each authority
//!     account.json                    0600
//!     www.example.org-4567cdef.pem    0600, chain and key: a reader sees both of before or both of after
//!     www.example.org-4567cdef.json   0600, failures since
//! ```

use std::{
    fs,
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use aws_lc_rs::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

use crate::error::AcmeError;

/// Longest part of a file's name that is a host name.
const MAX_NAME_BYTES: usize = 100;

/// The state of one authority. All of it blocks.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    directory: PathBuf,
}

/// The failures of a certificate since the last success.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Failures {
    pub(crate) count: u32,
    pub(crate) last_s: u64,
    pub(crate) retry_s: u64,
}

impl Store {
    /// Opens the state of an authority, by the address of its directory. Makes what is missing.
    pub(crate) fn open(state: &Path, authority: &str) -> Result<Self, AcmeError> {
        let host = authority.split('/').nth(2).unwrap_or_default();
        let directory = state.join(file_name(host, &[authority]));
        let make = |path: &Path| {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
            // It may be there already, with the mode that a service manager has given it.
            fs::set_permissions(path, fs::Permissions::from_mode(0o700))
        };
        make(state).map_err(|error| AcmeError::State(state.to_owned(), error))?;
        make(&directory).map_err(|error| AcmeError::State(directory.clone(), error))?;
        let store = Self { directory };
        // Whether it can be written is found now, not when the authority has issued a certificate.
        store.write("writable", b"").and_then(|()| store.remove("writable"))?;
        Ok(store)
    }

    pub(crate) fn account(&self) -> Result<Option<Vec<u8>>, AcmeError> {
        self.read("account.json")
    }

    pub(crate) fn set_account(&self, json: &[u8]) -> Result<(), AcmeError> {
        self.write("account.json", json)
    }

    pub(crate) fn forget_account(&self) -> Result<(), AcmeError> {
        self.remove("account.json")
    }

    /// Chain and key of a certificate.
    pub(crate) fn certificate(&self, names: &[String]) -> Result<Option<Vec<u8>>, AcmeError> {
        self.read(&format!("{}.pem", certificate_name(names)))
    }

    /// Replaces chain and key of a certificate, and forgets its failures.
    pub(crate) fn set_certificate(&self, names: &[String], pem: &[u8]) -> Result<(), AcmeError> {
        let name = certificate_name(names);
        self.write(&format!("{name}.pem"), pem)?;
        self.remove(&format!("{name}.json"))
    }

    /// Failures since the last success. A file that cannot be read counts as none.
    pub(crate) fn failures(&self, names: &[String]) -> Option<Failures> {
        let json = self.read(&format!("{}.json", certificate_name(names))).ok()??;
        serde_json::from_slice(&json).ok()
    }

    pub(crate) fn set_failures(&self, names: &[String], failures: Failures) -> Result<(), AcmeError> {
        let json = serde_json::to_vec(&failures).unwrap_or_default();
        self.write(&format!("{}.json", certificate_name(names)), &json)
    }

    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, AcmeError> {
        let path = self.directory.join(name);
        match fs::read(&path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(AcmeError::State(path, error)),
        }
    }

    /// Replaces a file whole: after a loss of power it is the old or the new one.
    fn write(&self, name: &str, content: &[u8]) -> Result<(), AcmeError> {
        let path = self.directory.join(name);
        let write = || {
            // A temporary file has mode 0600.
            let mut file = tempfile::NamedTempFile::new_in(&self.directory)?;
            file.write_all(content)?;
            file.as_file().sync_all()?;
            file.persist(&path)?;
            fs::File::open(&self.directory)?.sync_all()
        };
        write().map_err(|error: io::Error| AcmeError::State(path.clone(), error))
    }

    fn remove(&self, name: &str) -> Result<(), AcmeError> {
        let path = self.directory.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(AcmeError::State(path, error)),
            _ => Ok(()),
        }
    }
}

fn certificate_name(names: &[String]) -> String {
    let all: Vec<_> = names.iter().map(String::as_str).collect();
    file_name(&names[0], &all)
}

/// A name that people recognise, and a digest of all that tells it from others.
fn file_name(host: &str, all: &[&str]) -> String {
    let known = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
    let host: String = host.chars().filter(known).take(MAX_NAME_BYTES).collect();
    let digest = digest(&SHA256, all.join("\n").as_bytes());
    let short: String = digest.as_ref()[..4].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{short}", host.trim_start_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("it is there").permissions().mode() & 0o777
    }

    #[test]
    fn only_the_owner_can_read_the_state_and_it_comes_back() {
        let folder = tempfile::tempdir().expect("a directory");
        let state = folder.path().join("state");
        fs::create_dir(&state).expect("made");
        fs::set_permissions(&state, fs::Permissions::from_mode(0o755)).expect("open to all");
        let names = ["www.example.org".to_owned(), "example.org".to_owned()];
        let store = Store::open(&state, "https://acme.example.org:14000/dir").expect("opened");
        assert!(store.account().expect("read").is_none());
        store.set_account(b"account").expect("written");
        store.set_certificate(&names, b"one").expect("written");
        let failures = Failures { count: 3, last_s: 5, retry_s: 7 };
        store.set_failures(&names, failures).expect("written");
        let again = Store::open(&state, "https://acme.example.org:14000/dir").expect("opened");
        assert_eq!(again.account().expect("read").as_deref(), Some(&b"account"[..]));
        assert_eq!(again.certificate(&names).expect("read").as_deref(), Some(&b"one"[..]));
        assert_eq!(again.failures(&names), Some(failures));
        assert!(again.certificate(&names[..1]).expect("read").is_none(), "other names");
        again.set_certificate(&names, b"two").expect("written");
        assert_eq!((store.failures(&names), store.certificate(&names).expect("read")), (None, Some(b"two".to_vec())));
        assert!(Store::open(&state, "https://other.example/dir").expect("opened").account().expect("read").is_none());

        assert_eq!((mode(&state), mode(&again.directory)), (0o700, 0o700));
        let files: Vec<_> =
            fs::read_dir(&again.directory).expect("read").map(|it| it.expect("an entry").path()).collect();
        assert_eq!(files.len(), 2, "{files:?}");
        assert!(files.iter().all(|file| mode(file) == 0o600), "{files:?}");
        again.forget_account().expect("removed");
        assert!(store.account().expect("read").is_none());
    }

    #[test]
    fn a_place_that_cannot_be_written_is_told_of_at_once() {
        let folder = tempfile::tempdir().expect("a directory");
        let file = folder.path().join("file");
        fs::write(&file, "").expect("written");
        let error = Store::open(&file, "https://a/").expect_err("it is a file").to_string();
        assert!(error.contains("file cannot be used"), "{error}");
    }

    #[test]
    fn no_name_leads_out_of_the_directory() {
        for host in ["../../etc", ".hidden", "a/b", "", "*.example.org"] {
            let name = file_name(host, &[host]);
            assert!(!name.contains(['/', '*']) && !name.starts_with('.'), "{name}");
        }
    }
}
