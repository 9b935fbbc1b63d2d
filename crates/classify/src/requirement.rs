//! Requirements: a request that does not meet them is refused.
//!
//! Rules only choose a class. A requirement refuses a request, and uses the same users, keys and certificates.

use std::{net::IpAddr, pin::Pin};

use http::{header::AUTHORIZATION, request::Parts};
use ipnet::IpNet;

use crate::{
    classifier::Classifier,
    passwords::{Check, Credentials},
};

/// The properties that a request must have. `None`: any. An empty list of names stands for any name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requirement {
    /// Networks, one of which has the client's address.
    pub clients: Option<Vec<IpNet>>,
    /// Names in a trusted client certificate.
    pub certificates: Option<Vec<String>>,
    /// Levels of key values.
    pub keys: Option<Vec<String>>,
    /// Users, with their password.
    pub users: Option<Vec<String>>,
    /// Whether one of these is enough; otherwise all of them are needed.
    pub any: bool,
}

/// The properties of a request.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    /// Method, target, header.
    pub parts: &'a Parts,
    /// The client's address, as told by trusted proxies.
    pub client: IpAddr,
    /// The names in the client's trusted certificate; `None`: it has none.
    pub certificate_names: Option<&'a [Box<str>]>,
}

/// Whether a request shows what it has to, now or after a password check, which runs on another thread.
pub enum Required {
    /// Here.
    Now(Met),
    /// To be awaited within a tokio runtime; it may be dropped at any time.
    Later(Pin<Box<dyn Future<Output = Met> + Send>>),
}

/// Whether a request shows what it has to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Met {
    /// It does; with the user, if a password was needed.
    Yes(Option<Box<str>>),
    /// It does not.
    No(Lacks),
    /// The password was not checked, because too many checks are waiting.
    Busy,
}

/// The first thing that a request lacks and a client can send, if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lacks {
    /// A user's name and password.
    Password,
    /// A key in `Authorization: Bearer`.
    Bearer,
    /// Something that HTTP cannot ask for: an address, a certificate, a key in a field of its own.
    Other,
}

impl Classifier {
    /// Whether a request shows what is required.
    pub fn require(&self, required: &Requirement, shown: Shown<'_>) -> Required {
        let Requirement { clients, certificates, keys, users, any } = required;
        // The cheap ones first. A password costs milliseconds, so it is last, and only checked if it decides.
        let before_password = [
            clients.as_ref().map(|nets| (nets.iter().any(|net| net.contains(&shown.client)), Lacks::Other)),
            certificates.as_ref().map(|names| (shows_certificate(names, shown), Lacks::Other)),
            keys.as_ref().map(|levels| self.shows_key(levels, shown)),
        ];
        let mut lacks = None;
        for (holds, lacking) in before_password.into_iter().flatten() {
            match (holds, *any) {
                (true, true) => return Required::Now(Met::Yes(None)),
                (false, false) => return Required::Now(Met::No(lacking)),
                (true, false) => {}
                (false, true) => lacks = Some(lacking),
            }
        }
        match (users, lacks) {
            (Some(users), _) => self.shows_password(users, shown),
            (None, Some(lacks)) => Required::Now(Met::No(lacks)),
            (None, None) => Required::Now(Met::Yes(None)),
        }
    }

    fn shows_key(&self, levels: &[String], shown: Shown<'_>) -> (bool, Lacks) {
        let Some((keys, config)) = self.keys.as_ref().zip(self.config.keys.as_ref()) else {
            return (false, Lacks::Other);
        };
        let level = keys.level_of(shown.parts, config.header.as_ref(), config.query.as_deref());
        let holds = level.is_some_and(|level| is_listed(levels, |wanted| wanted == level));
        let is_bearer = config.header.as_ref() == Some(&AUTHORIZATION);
        (holds, if is_bearer { Lacks::Bearer } else { Lacks::Other })
    }

    fn shows_password(&self, users: &[String], shown: Shown<'_>) -> Required {
        let credentials = Credentials::basic(&shown.parts.headers);
        let (Some(passwords), Some(credentials)) = (&self.passwords, credentials) else {
            return Required::Now(Met::No(Lacks::Password));
        };
        let user: Box<str> = credentials.user().into();
        let is_user = is_listed(users, |wanted| *wanted == *user);
        let met = move |right: bool| if right && is_user { Met::Yes(Some(user)) } else { Met::No(Lacks::Password) };
        if let Some(right) = passwords.known(&credentials) {
            return Required::Now(met(right));
        }
        // The password is checked even for a user who is not listed; otherwise the time would reveal the listed users.
        let check = passwords.clone().check(credentials, shown.client);
        Required::Later(Box::pin(async move {
            match check.await {
                Check::Right => met(true),
                Check::Wrong => met(false),
                Check::Busy => Met::Busy,
            }
        }))
    }
}

fn shows_certificate(names: &[String], shown: Shown<'_>) -> bool {
    let has = |name: &String, shown: &[Box<str>]| shown.iter().any(|it| it.eq_ignore_ascii_case(name));
    shown.certificate_names.is_some_and(|shown| is_listed(names, |name| has(name, shown)))
}

/// Whether a list has a name; an empty list stands for any.
fn is_listed(names: &[String], is_it: impl Fn(&String) -> bool) -> bool {
    names.is_empty() || names.iter().any(is_it)
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use http::Request;

    use super::*;
    use crate::config::{ClassifierConfig, KeysConfig};

    /// `htpasswd -s`, password `secret`.
    const USERS: &str = "ann:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\nbob:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n";

    fn classifier(folder: &Path, header: &'static str) -> Classifier {
        fs::write(folder.join("users"), USERS).unwrap();
        fs::write(folder.join("keys"), format!("gold {}\n", crate::keys::hash(b"golden"))).unwrap();
        let header = Some(http::HeaderName::from_static(header));
        Classifier::new(ClassifierConfig {
            users: Some(folder.join("users")),
            keys: Some(KeysConfig { file: folder.join("keys"), header, query: None }),
            ..ClassifierConfig::default()
        })
        .unwrap()
    }

    fn any_name() -> Option<Vec<String>> {
        Some(Vec::new())
    }

    fn list<T: std::str::FromStr>(values: &[&str]) -> Option<Vec<T>> {
        Some(values.iter().map(|value| value.parse().ok().unwrap()).collect())
    }

    async fn met(
        classifier: &Classifier,
        required: &Requirement,
        fields: &[(&str, &str)],
        names: Option<&[&str]>,
    ) -> Met {
        let mut request = Request::get("/");
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let parts = request.body(()).unwrap().into_parts().0;
        let names: Option<Vec<Box<str>>> = names.map(|names| names.iter().map(|name| (*name).into()).collect());
        let client = "192.0.2.7".parse().unwrap();
        let shown = Shown { parts: &parts, client, certificate_names: names.as_deref() };
        match classifier.require(required, shown) {
            Required::Now(met) => met,
            Required::Later(met) => met.await,
        }
    }

    // `printf ann:secret | base64`
    const ANN: (&str, &str) = ("authorization", "Basic YW5uOnNlY3JldA==");
    const BOB: (&str, &str) = ("authorization", "Basic Ym9iOnNlY3JldA==");
    const ANN_WRONG: (&str, &str) = ("authorization", "Basic YW5uOndyb25n");
    const KEY: (&str, &str) = ("x-api-key", "golden");

    #[tokio::test]
    async fn each_kind_is_shown_or_lacking() {
        let folder = tempfile::tempdir().unwrap();
        let classifier = classifier(folder.path(), "x-api-key");
        let users = |names: &[&str]| Requirement { users: list(names), ..Requirement::default() };
        let keys = |levels: &[&str]| Requirement { keys: list(levels), ..Requirement::default() };
        let certificates = |names: &[&str]| Requirement { certificates: list(names), ..Requirement::default() };
        let clients = |nets: &[&str]| Requirement { clients: list(nets), ..Requirement::default() };
        let as_ann = Met::Yes(Some("ann".into()));
        for (required, fields, names, expected) in [
            (users(&[]), &[ANN][..], None, as_ann.clone()),
            (users(&["ann"]), &[ANN], None, as_ann),
            (users(&["ann"]), &[BOB], None, Met::No(Lacks::Password)),
            (users(&[]), &[ANN_WRONG], None, Met::No(Lacks::Password)),
            (users(&[]), &[], None, Met::No(Lacks::Password)),
            (users(&[]), &[ANN, ANN], None, Met::No(Lacks::Password)),
            (keys(&[]), &[KEY], None, Met::Yes(None)),
            (keys(&["gold", "silver"]), &[KEY], None, Met::Yes(None)),
            (keys(&["silver"]), &[KEY], None, Met::No(Lacks::Other)),
            (keys(&[]), &[("x-api-key", "other")], None, Met::No(Lacks::Other)),
            (certificates(&[]), &[], Some(&[][..]), Met::Yes(None)),
            (certificates(&[]), &[], None, Met::No(Lacks::Other)),
            (certificates(&["a.example"]), &[], Some(&["A.example"]), Met::Yes(None)),
            (certificates(&["a.example"]), &[], Some(&["b.example"]), Met::No(Lacks::Other)),
            (clients(&["192.0.2.0/24"]), &[], None, Met::Yes(None)),
            (clients(&["198.51.100.0/24", "::/0"]), &[], None, Met::No(Lacks::Other)),
        ] {
            assert_eq!(met(&classifier, &required, fields, names).await, expected, "{required:?} {fields:?}");
        }
    }

    #[tokio::test]
    async fn of_several_kinds_all_are_needed_or_one_is_enough() {
        let folder = tempfile::tempdir().unwrap();
        let classifier = classifier(folder.path(), "x-api-key");
        let all = Requirement { keys: any_name(), users: any_name(), ..Requirement::default() };
        let any = Requirement { any: true, ..all.clone() };
        let as_ann = Met::Yes(Some("ann".into()));
        for (fields, of_all, of_any) in [
            (&[ANN, KEY][..], as_ann.clone(), Met::Yes(None)),
            (&[ANN], Met::No(Lacks::Other), as_ann),
            (&[KEY], Met::No(Lacks::Password), Met::Yes(None)),
            (&[], Met::No(Lacks::Other), Met::No(Lacks::Password)),
        ] {
            assert_eq!(met(&classifier, &all, fields, None).await, of_all, "{fields:?}");
            assert_eq!(met(&classifier, &any, fields, None).await, of_any, "{fields:?}");
        }
    }

    #[tokio::test]
    async fn a_key_in_authorization_can_be_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let classifier = classifier(folder.path(), "authorization");
        let required = Requirement { keys: any_name(), ..Requirement::default() };
        assert_eq!(met(&classifier, &required, &[], None).await, Met::No(Lacks::Bearer));
        let shown = &[("authorization", "Bearer golden")];
        assert_eq!(met(&classifier, &required, shown, None).await, Met::Yes(None));
    }

    #[tokio::test]
    async fn without_users_and_keys_nobody_gets_in() {
        let classifier = Classifier::new(ClassifierConfig::default()).unwrap();
        let users = Requirement { users: any_name(), ..Requirement::default() };
        let keys = Requirement { keys: any_name(), ..Requirement::default() };
        assert_eq!(met(&classifier, &users, &[ANN], None).await, Met::No(Lacks::Password));
        assert_eq!(met(&classifier, &keys, &[KEY], None).await, Met::No(Lacks::Other));
    }
}
