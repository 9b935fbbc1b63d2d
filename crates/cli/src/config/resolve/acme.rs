//! Certificates that an authority is asked for.

use std::{env, net::IpAddr, path::PathBuf, sync::Arc};

use http::Uri;
use server::config::{AcmeConfig, Certificate, ChallengeKind, ExternalAccount, Listen, Site};

use super::{
    named_files::{FileKind, path_in},
    resolver::Resolver,
};
use crate::config::{
    problems::Problem,
    raw::{Raw, RawAcme, RawSite},
};

/// The bytes of a key of 128 bits in base64; shorter ones are mistakes.
const LEAST_KEY_BYTES: u64 = 22;

impl Resolver<'_> {
    /// The certificate of a site that asks an authority for it.
    pub(super) fn managed(&mut self, site: &RawSite, names: &[String]) -> Option<Certificate> {
        let written = site.acme.as_ref().filter(|acme| *acme.get_ref())?;
        let mut wrong = |message: String, help: &str| {
            self.problems.push(Problem::new(message, Some(written.span())).help(help));
        };
        if site.tls_cert.is_some() || site.tls_key.is_some() {
            wrong(
                "this site has a certificate in a file already".to_owned(),
                "leave out `acme`, or `tls-cert` and `tls-key`",
            );
        }
        if names.is_empty() {
            if self.shape_is_sound && site.names.iter().flatten().next().is_none() {
                wrong(
                    "an authority needs to know the names of the site".to_owned(),
                    "give it `names`, as in `names = [\"example.org\", \"www.example.org\"]`",
                );
            }
            return None;
        }
        for name in names {
            if name.starts_with('*') {
                wrong(
                    format!("no authority gives out a certificate for `{name}` here: it asks for an entry in the DNS"),
                    "name each host, or get the certificate with another program and give `tls-cert` and `tls-key`",
                );
            } else if name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok() {
                wrong(
                    format!("`{name}` is an address, and certificates are for names here"),
                    "leave it out, or give the site `tls-cert` and `tls-key`",
                );
            }
        }
        Some(Certificate::Acme(names.into()))
    }

    /// The authority, if a site needs one.
    pub(super) fn acme(&mut self, raw: &Raw, sites: &[Site], listen: &[Listen]) -> Option<AcmeConfig> {
        let written = &raw.acme;
        let directory = self.directory(written);
        let challenges = self.challenges(written, listen);
        let contact = self.optional(&written.contact, contact);
        let profile = self.optional(&written.profile, |text| Ok(text.to_owned()));
        let external_account = self.external_account(written);
        let certificates: Vec<Arc<[String]>> = sites
            .iter()
            .filter_map(|site| match &site.certificate {
                Some(Certificate::Acme(names)) => Some(names.clone()),
                _ => None,
            })
            .collect();
        let roots = self.file(&written.ca, FileKind::Authorities);
        if certificates.is_empty() {
            return None;
        }
        let state = match &written.state {
            Some(state) => path_in(self.folder, &state.get_ref().0),
            None => default_state().unwrap_or_else(|| {
                self.problems.push(
                    Problem::new(
                        "there is no place for certificates and keys: neither STATE_DIRECTORY nor HOME is set",
                        None,
                    )
                    .help("give `[acme]` a directory, as in `state = \"/var/lib/serpent/acme\"`"),
                );
                PathBuf::new()
            }),
        };
        Some(AcmeConfig { directory, contact, roots, external_account, profile, challenges, state, certificates })
    }

    fn directory(&mut self, written: &RawAcme) -> String {
        let staging = written.staging.as_ref().filter(|staging| *staging.get_ref());
        if let (Some(staging), Some(directory)) = (staging, &written.directory) {
            self.problems.push(
                Problem::new(
                    "`staging` is a directory of Let's Encrypt, and `directory` names another",
                    Some(staging.span()),
                )
                .also(Some(directory.span()), "given here")
                .help("leave one of them out"),
            );
        }
        let default = if staging.is_some() { AcmeConfig::LETS_ENCRYPT_STAGING } else { AcmeConfig::LETS_ENCRYPT };
        self.setting(None, &written.directory, directory, default.to_owned())
    }

    /// How names are proven: as written, or by whatever the addresses allow.
    fn challenges(&mut self, written: &RawAcme, listen: &[Listen]) -> Vec<ChallengeKind> {
        const BOTH: [ChallengeKind; 2] = [ChallengeKind::TlsAlpn01, ChallengeKind::Http01];
        let possible = |kind: &ChallengeKind| listen.iter().any(|it| it.tls == (*kind == ChallengeKind::TlsAlpn01));
        let Some(list) = &written.challenges else {
            let found: Vec<_> = BOTH.into_iter().filter(possible).collect();
            return if found.is_empty() { BOTH.to_vec() } else { found };
        };
        let mut kinds = Vec::new();
        for one in list {
            let kind = match &*one.get_ref().0 {
                "http-01" => ChallengeKind::Http01,
                "tls-alpn-01" => ChallengeKind::TlsAlpn01,
                other => {
                    self.unread(format!("`{other}` is not one of `tls-alpn-01`, `http-01`"), one);
                    continue;
                }
            };
            kinds.push(kind);
        }
        if list.is_empty() && self.shape_is_sound {
            let problem = Problem::new("without `challenges` no authority believes that a name is yours", None);
            self.problems.push(problem.help("leave the setting out, or name `tls-alpn-01`, `http-01` or both"));
        }
        if kinds.is_empty() { BOTH.to_vec() } else { kinds }
    }

    fn external_account(&mut self, written: &RawAcme) -> Option<ExternalAccount> {
        match (&written.external_account, &written.external_key) {
            (Some(id), Some(key)) => {
                self.file(&Some(key.clone()), FileKind::Secret(LEAST_KEY_BYTES));
                Some(ExternalAccount { id: id.get_ref().0.clone(), key: path_in(self.folder, &key.get_ref().0) })
            }
            (Some(one), None) | (None, Some(one)) => {
                self.problems.push(
                    Problem::new(
                        "an account with the authority needs its key, and a key its account",
                        Some(one.span()),
                    )
                    .help("give both `external-account` and `external-key`, as the authority shows them"),
                );
                None
            }
            (None, None) => None,
        }
    }

    /// Warns where the authority cannot come.
    pub(super) fn reachable(&mut self, raw: &Raw, acme: Option<&AcmeConfig>, listen: &[Listen]) {
        let Some(acme) = acme.filter(|_| self.is_as_written()) else { return };
        let reached = |kind: &ChallengeKind| {
            let (tls, port) = match kind {
                ChallengeKind::TlsAlpn01 => (true, 443),
                ChallengeKind::Http01 => (false, 80),
            };
            listen.iter().any(|it| it.tls == tls && it.address.port() == port && !it.address.ip().is_loopback())
        };
        if acme.challenges.iter().any(reached) {
            return;
        }
        let place = raw.site.iter().find_map(|site| Some(site.get_ref().acme.as_ref()?.span()));
        self.problems.push(
            Problem::warning(
                "the authority comes to port 443 with TLS or to port 80 without, and neither is in `listen`",
                place,
            )
            .help("listen on `:443` and `http://:80`, or have what is in front pass these ports on"),
        );
    }
}

fn directory(text: &str) -> Result<String, String> {
    let sound = text.parse::<Uri>().is_ok_and(|uri| uri.scheme_str() == Some("https") && uri.host().is_some());
    match sound {
        true => Ok(text.to_owned()),
        false => {
            Err(format!("`{text}` is not the address of a directory: write it as in `https://acme.example/directory`"))
        }
    }
}

fn contact(text: &str) -> Result<String, String> {
    let address = text.strip_prefix("mailto:").unwrap_or(text);
    let sound = address.split_once('@').is_some_and(|(name, host)| !name.is_empty() && host.contains('.'))
        && address.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',');
    match sound {
        true => Ok(address.to_owned()),
        false => Err(format!("`{text}` is not an address of electronic mail: write it as in `admin@example.org`")),
    }
}

/// Where a service manager or the user keeps what programs remember.
fn default_state() -> Option<PathBuf> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
    if let Some(directories) = set("STATE_DIRECTORY") {
        // A service with several has them one after the other.
        return env::split_paths(&directories).next().map(|first| first.join("acme"));
    }
    let base =
        set("XDG_STATE_HOME").map(PathBuf::from).or_else(|| Some(PathBuf::from(set("HOME")?).join(".local/state")));
    base.map(|base| base.join("serpent/acme"))
}
