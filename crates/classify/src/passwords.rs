//! Names and passwords in the format of Apache's `htpasswd`.
//!
//! bcrypt (`$2y$`), `$apr1$` and `{SHA}` are supported. Hashes of `crypt(3)` are not: checking them depends
//! on the system's C library, and the older kinds no longer protect anything.
//!
//! Checking a password is slow by design. It runs on a thread that may block, with few checks at once. The
//! result is cached until the file is read again, under a keyed hash of name and password, so the cache is
//! useless elsewhere. Few checks of one address wait at a time. A request that finds too many waiting is told
//! so, rather than queued behind a client that guesses passwords.
//!
//! *Invariant.* A check takes equally long for every user, existing or not: the work for the most expensive
//! hash of the file is always done. bcrypt's work doubles with each step of its cost. Each step from a user's
//! cost to the highest, done once, makes up the difference.

use std::{
    collections::HashMap,
    fmt,
    hint::black_box,
    net::{IpAddr, Ipv6Addr},
    ops::Range,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use aws_lc_rs::{constant_time, digest, hmac};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderMap, header};
use quick_cache::sync::Cache;
use tokio::sync::Semaphore;

use crate::{
    apr1,
    blind::random_key,
    error::{ClassifierError, read},
};

/// Cached results, some hundred bytes each. A client that tries more passwords than this does not evict
/// results in use.
const CACHE_ENTRIES: usize = 4096;
/// Most waiting checks. At 50 ms each, the last one waits for a few seconds, which people accept.
const MOST_WAITING: usize = 64;
/// Most waiting checks of one address: a browser sends a dozen requests at once.
const MOST_OF_ONE: usize = 16;
/// Longest name and password that is checked; bcrypt itself reads 72 bytes.
const MAX_BYTES: usize = 1024;
/// The largest cost that `htpasswd` accepts: some ten seconds.
const MAX_BCRYPT_COST: u32 = 17;
const SHA: &str = "{SHA}";
const APR1: &str = "$apr1$";
const BCRYPT: [&str; 3] = ["$2y$", "$2b$", "$2a$"];

/// The users of a file, and the cached results of checks.
pub struct Passwords {
    users: HashMap<Box<str>, Hash>,
    highest: HighestCost,
    blind: hmac::Key,
    results: Cache<[u8; 32], bool>,
    at_once: Arc<Semaphore>,
    /// The number of waiting checks for each address that has any.
    waiting: Mutex<HashMap<IpAddr, usize>>,
}

/// A waiting check, which is counted until this is dropped.
struct WaitingCheck<'a> {
    passwords: &'a Passwords,
    client: IpAddr,
}

/// A name and a password to check. Never displayed.
#[derive(Clone)]
pub struct Credentials {
    text: Vec<u8>,
    colon: usize,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// The password is the user's.
    Right,
    /// There is no such user, or the password is wrong.
    Wrong,
    /// Too many checks are waiting.
    Busy,
}

enum Hash {
    Bcrypt { cost: u32, text: Box<str> },
    Apr1 { salt: Box<[u8]>, sum: Box<[u8]> },
    Sha([u8; 20]),
}

/// The most expensive hashes in the file.
#[derive(Clone, Copy, Default)]
struct HighestCost {
    bcrypt_cost: Option<u32>,
    apr1: bool,
}

impl Passwords {
    /// Reads a file. Blocks.
    ///
    /// # Errors
    /// The file cannot be read, or a line of it cannot be parsed.
    pub fn read(path: &Path) -> Result<Self, ClassifierError> {
        Self::parse(&read(path)?).map_err(|message| ClassifierError { path: path.to_owned(), message })
    }

    /// Parses the text of a file.
    ///
    /// # Errors
    /// The problem, and its line.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let mut users = HashMap::new();
        let mut highest = HighestCost::default();
        for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
            let wrong = |what: &str| format!("line {number}: {what}");
            let line = std::str::from_utf8(line).map_err(|_| wrong("it is not UTF-8"))?.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (user, rest) =
                line.split_once(':').ok_or_else(|| wrong("there is no `:` between name and password"))?;
            if user.is_empty() {
                return Err(wrong("there is no name before the `:`"));
            }
            // As in Apache, text after another colon is ignored.
            let hash = Hash::parse(rest.split(':').next().unwrap_or_default())
                .map_err(|what| wrong(&format!("the password of `{user}` {what}")))?;
            match hash {
                Hash::Bcrypt { cost, .. } => highest.bcrypt_cost = highest.bcrypt_cost.max(Some(cost)),
                Hash::Apr1 { .. } => highest.apr1 = true,
                Hash::Sha(_) => {}
            }
            // As in Apache, the first line of a name counts.
            users.entry(user.into()).or_insert(hash);
        }
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Self {
            users,
            highest,
            blind: random_key(),
            results: Cache::new(CACHE_ENTRIES),
            // Half of the processors are left to threads that serve.
            at_once: Arc::new(Semaphore::new((processors / 2).max(1))),
            waiting: Mutex::default(),
        })
    }

    /// The cached result, if there is one.
    pub fn known(&self, credentials: &Credentials) -> Option<bool> {
        self.results.get(&self.fingerprint(credentials))
    }

    /// Checks a password sent from an address, unless the result is cached. Needs a tokio runtime; may be
    /// dropped at any time.
    pub async fn check(self: Arc<Self>, credentials: Credentials, client: IpAddr) -> Check {
        if let Some(right) = self.known(&credentials) {
            return Check::of(right);
        }
        let Some(_waiting) = self.begin_waiting(client) else { return Check::Busy };
        let Ok(turn) = self.at_once.clone().acquire_owned().await else { return Check::Busy };
        let passwords = self.clone();
        let checked = tokio::task::spawn_blocking(move || {
            // Held until the work is done, even if the caller no longer waits.
            let _turn = turn;
            passwords.check_blocking(&credentials)
        });
        // Fails only when the runtime ends.
        checked.await.map_or(Check::Busy, Check::of)
    }

    /// Returns whether a password is right, from the cache or by a check. Blocks meanwhile.
    pub fn check_blocking(&self, credentials: &Credentials) -> bool {
        // A browser sends several requests at once: the first check serves all of them.
        if let Some(right) = self.known(credentials) {
            return right;
        }
        let right = self.verify(credentials);
        self.results.insert(self.fingerprint(credentials), right);
        right
    }

    /// `None`: too many checks are waiting, in all or of this address.
    fn begin_waiting(&self, client: IpAddr) -> Option<WaitingCheck<'_>> {
        let client = match client {
            IpAddr::V4(_) => client,
            // A client with one IPv6 address of a network usually has all of it.
            IpAddr::V6(client) => Ipv6Addr::from(u128::from(client) >> 64 << 64).into(),
        };
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.values().sum::<usize>() >= MOST_WAITING {
            return None;
        }
        let of_one = waiting.entry(client).or_default();
        (*of_one < MOST_OF_ONE).then(|| {
            *of_one += 1;
            WaitingCheck { passwords: self, client }
        })
    }

    fn fingerprint(&self, credentials: &Credentials) -> [u8; 32] {
        let tag = hmac::sign(&self.blind, &credentials.text);
        tag.as_ref().try_into().expect("SHA-256 has 32 bytes")
    }

    fn verify(&self, credentials: &Credentials) -> bool {
        let (name, password) = (credentials.name_bytes(), credentials.password());
        let sound = name.len() <= MAX_BYTES && password.len() <= MAX_BYTES;
        let password = &password[..password.len().min(MAX_BYTES)];
        let user = std::str::from_utf8(name).ok().filter(|_| sound).and_then(|name| self.users.get(name));
        let mut right = false;
        if let Some(Hash::Sha(expected)) = user {
            let sum = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, password);
            right = same(sum.as_ref(), expected);
        }
        if self.highest.apr1 {
            match user {
                Some(Hash::Apr1 { salt, sum }) => right = same(&apr1::sum(password, salt), sum),
                _ => _ = black_box(apr1::sum(password, &[b'.'; apr1::SALT_LEN])),
            }
        }
        if let Some(highest) = self.highest.bcrypt_cost {
            let cost = match user {
                Some(Hash::Bcrypt { cost, text }) => {
                    right = bcrypt::verify(password, text).unwrap_or(false);
                    Some(*cost)
                }
                _ => None,
            };
            for cost in missing_costs(cost, highest) {
                _ = black_box(bcrypt::hash_with_salt(password, cost, [0; 16]));
            }
        }
        right
    }
}

impl Drop for WaitingCheck<'_> {
    fn drop(&mut self) {
        let mut waiting = self.passwords.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(of_one) = waiting.get_mut(&self.client) {
            *of_one -= 1;
            if *of_one == 0 {
                waiting.remove(&self.client);
            }
        }
    }
}

impl fmt::Debug for Passwords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Passwords").field("users", &self.users.len()).finish_non_exhaustive()
    }
}

impl Credentials {
    /// The credentials of a request (RFC 7617). `None` if it has several: another recipient may read a
    /// different one.
    pub fn basic(headers: &HeaderMap) -> Option<Self> {
        let mut fields = headers.get_all(header::AUTHORIZATION).iter();
        let (Some(field), None) = (fields.next(), fields.next()) else { return None };
        let (scheme, encoded) = field.as_bytes().split_at_checked("Basic ".len())?;
        if !scheme.eq_ignore_ascii_case(b"Basic ") {
            return None;
        }
        let text = STANDARD.decode(encoded.trim_ascii()).ok()?;
        let colon = text.iter().position(|byte| *byte == b':')?;
        Some(Self { text, colon })
    }

    /// The user's name.
    pub fn user(&self) -> &str {
        std::str::from_utf8(self.name_bytes()).unwrap_or_default()
    }

    fn name_bytes(&self) -> &[u8] {
        &self.text[..self.colon]
    }

    fn password(&self) -> &[u8] {
        &self.text[self.colon + 1..]
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user()).finish_non_exhaustive()
    }
}

impl Check {
    fn of(right: bool) -> Self {
        if right { Self::Right } else { Self::Wrong }
    }
}

impl Hash {
    fn parse(text: &str) -> Result<Self, String> {
        const ANEW: &str = "write it anew with `htpasswd -B`";
        if BCRYPT.iter().any(|kind| text.starts_with(kind)) {
            let parts: bcrypt::HashParts =
                text.parse().map_err(|_| format!("begins as bcrypt does, but is not whole: {ANEW}"))?;
            let cost = parts.get_cost();
            if !(4..=MAX_BCRYPT_COST).contains(&cost) {
                return Err(format!("has a bcrypt cost of {cost}; it must be 4 to {MAX_BCRYPT_COST}: {ANEW}"));
            }
            return Ok(Self::Bcrypt { cost, text: text.into() });
        }
        if let Some(rest) = text.strip_prefix(APR1) {
            let sound = rest
                .split_once('$')
                .filter(|(salt, sum)| (1..=apr1::SALT_LEN).contains(&salt.len()) && sum.len() == apr1::SUM_LEN);
            let (salt, sum) = sound.ok_or_else(|| format!("begins as $apr1$ does, but is not whole: {ANEW}"))?;
            return Ok(Self::Apr1 { salt: salt.as_bytes().into(), sum: sum.as_bytes().into() });
        }
        if let Some(rest) = text.strip_prefix(SHA) {
            let sum = STANDARD.decode(rest).ok().and_then(|sum| sum.try_into().ok());
            return sum.map(Self::Sha).ok_or_else(|| format!("begins as {SHA} does, but is not whole: {ANEW}"));
        }
        let kind = match text.as_bytes() {
            [] => "is missing",
            [b'$', b'1', b'$', ..] => "is of crypt(3), MD5 ($1$), which is not taken",
            [b'$', b'5', b'$', ..] => "is of crypt(3), SHA-256 ($5$), which is not taken",
            [b'$', b'6', b'$', ..] => "is of crypt(3), SHA-512 ($6$), which is not taken",
            _ => "is neither bcrypt, $apr1$ nor {SHA}; crypt(3) and passwords in plain text are not taken",
        };
        Err(format!("{kind}: {ANEW}"))
    }
}

/// The bcrypt costs to compute besides a check of this cost, or instead of one, to equal a check of the
/// highest cost.
fn missing_costs(cost: Option<u32>, highest: u32) -> Range<u32> {
    match cost {
        Some(cost) => cost..highest,
        None => highest..highest + 1,
    }
}

/// Whether two values are equal, in a time that does not reveal where they differ.
fn same(one: &[u8], other: &[u8]) -> bool {
    constant_time::verify_slices_are_equal(one, other).is_ok()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    /// Made with `htpasswd` of Apache 2.4: `-B -C 4`, `-B -C 6`, `-m`, `-s`.
    const FILE: &str = "# users\n\
        bea:$2y$04$4gsMHaPbnPkk0iw7NgkkUehgNIJEVOHnzxpLLWX3LSoD9A3lOeHrm\r\n\
        \n\
        ben:$2y$06$lFQEPr4G7io0gCZGv5h2RufIcCohol/cieeBwrx5bw5ThxWj8mx3i\n\
        amy:$apr1$DOTS6iJd$CnIY646HhpIUKPSEkncF10:Amy: more\n\
        sue:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n\
        bea:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=";

    fn credentials(user: &str, password: &str) -> Credentials {
        Credentials::basic(&headers(user, password)).expect("well-formed")
    }

    fn headers(user: &str, password: &str) -> HeaderMap {
        let value = format!("Basic {}", STANDARD.encode(format!("{user}:{password}")));
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, value.parse().expect("a value"));
        headers
    }

    #[test]
    fn what_htpasswd_writes_is_understood() {
        let passwords = Passwords::parse(FILE.as_bytes()).expect("a good file");
        for (user, password, right) in [
            ("bea", "secret", true),
            ("bea", "Secret", false),
            ("bea", "", false),
            ("ben", "p:a ss", true),
            ("ben", "p", false),
            ("amy", "secret", true),
            ("amy", "secret ", false),
            ("sue", "secret", true),
            ("sue", "secre", false),
            ("nobody", "secret", false),
            ("", "", false),
            ("Bea", "secret", false),
        ] {
            assert_eq!(passwords.verify(&credentials(user, password)), right, "{user} {password}");
        }
        let long = "x".repeat(MAX_BYTES + 1);
        for user in ["bea", "amy", "sue", &long] {
            assert!(!passwords.verify(&credentials(user, &long)), "{user}");
        }
    }

    #[test]
    fn other_passwords_are_refused_with_their_line() {
        for (line, message) in [
            ("x:aKx/x6f.XwsJs", "line 2: the password of `x` is neither bcrypt"),
            ("x:plain", "crypt(3) and passwords in plain text are not taken: write it anew with `htpasswd -B`"),
            ("x:$1$abc$def", "is of crypt(3), MD5 ($1$)"),
            ("x:$5$h/MCd$jjTH", "is of crypt(3), SHA-256 ($5$)"),
            ("x:$6$h/MCd$jjTH", "is of crypt(3), SHA-512 ($6$)"),
            ("x:", "is missing"),
            ("x", "there is no `:`"),
            (":$1$", "there is no name"),
            ("x:{SHA}5en6", "begins as {SHA}"),
            ("x:$apr1$123456789$CnIY646HhpIUKPSEkncF10", "begins as $apr1$"),
            ("x:$apr1$1$CnIY", "begins as $apr1$"),
            ("x:$2y$04$4gsM", "begins as bcrypt"),
            ("x:$2y$18$4gsMHaPbnPkk0iw7NgkkUehgNIJEVOHnzxpLLWX3LSoD9A3lOeHrm", "cost of 18"),
            ("x:$2y$03$4gsMHaPbnPkk0iw7NgkkUehgNIJEVOHnzxpLLWX3LSoD9A3lOeHrm", "cost of 3"),
        ] {
            let error = Passwords::parse(format!("# first\n{line}\n").as_bytes()).expect_err(line);
            assert!(error.starts_with("line 2: ") && error.contains(message), "{line}: {error}");
            assert!(!error.contains("4gsM") && !error.contains("aKx"), "what is stored is not shown: {error}");
        }
        assert_eq!(Passwords::parse(b"\xff:x").err().as_deref(), Some("line 1: it is not UTF-8"));
    }

    #[test]
    fn only_a_single_well_formed_field_is_read() {
        let basic = |value: &[u8]| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, HeaderValue::from_bytes(value).expect("a value"));
            Credentials::basic(&headers).map(|found| (found.user().to_owned(), found.password().to_vec()))
        };
        let found = |user: &str, password: &[u8]| Some((user.to_owned(), password.to_vec()));
        assert_eq!(basic(b"Basic YTpi"), found("a", b"b"));
        assert_eq!(basic(b"basic  YTpi"), found("a", b"b"));
        assert_eq!(basic(b"Basic YTpiOmM="), found("a", b"b:c"));
        for wrong in
            [&b"Basic"[..], b"Basic ", b"Basic YQ==", b"Basic YTpi!", b"Bearer YTpi", b"BasicYTpi", b"\xffasic YTpi"]
        {
            assert_eq!(basic(wrong), None, "{wrong:?}");
        }
        let mut twice = headers("a", "b");
        twice.append(header::AUTHORIZATION, HeaderValue::from_static("Basic YTpi"));
        assert!(Credentials::basic(&twice).is_none());
        assert!(!format!("{:?}", credentials("a", "hidden")).contains("hidden"));
    }

    #[test]
    fn every_check_is_as_much_work_as_the_dearest() {
        let work = |costs: Range<u32>| costs.map(|cost| 1_u64 << cost).sum::<u64>();
        for highest in 4..=MAX_BCRYPT_COST {
            assert_eq!(work(missing_costs(None, highest)), 1 << highest);
            for cost in 4..=highest {
                assert_eq!((1 << cost) + work(missing_costs(Some(cost), highest)), 1 << highest);
            }
        }
        let highest = Passwords::parse(FILE.as_bytes()).expect("a good file").highest;
        assert_eq!((highest.bcrypt_cost, highest.apr1), (Some(6), true));
    }

    #[test]
    fn a_verdict_is_kept() {
        let passwords = Passwords::parse(FILE.as_bytes()).expect("a good file");
        for (password, right) in [("secret", true), ("wrong", false)] {
            let asked = credentials("sue", password);
            assert_eq!(passwords.known(&asked), None);
            assert_eq!(passwords.check_blocking(&asked), right);
            assert_eq!(passwords.known(&asked), Some(right));
        }
    }

    const HOME: &str = "192.0.2.1";

    fn check(
        passwords: &Arc<Passwords>,
        user: &str,
        password: &str,
        client: &str,
    ) -> impl Future<Output = Check> + use<> {
        passwords.clone().check(credentials(user, password), client.parse().expect("an address"))
    }

    #[tokio::test]
    async fn few_are_checked_at_once_and_not_too_many_wait() {
        let passwords = Arc::new(Passwords::parse(FILE.as_bytes()).expect("a good file"));
        assert_eq!(check(&passwords, "ben", "p:a ss", HOME).await, Check::Right);
        assert_eq!(check(&passwords, "ben", "x", HOME).await, Check::Wrong);

        let turns = u32::try_from(passwords.at_once.available_permits()).expect("a few");
        let busy = passwords.at_once.clone().acquire_many_owned(turns).await.expect("open");
        // A client that guesses passwords, from many addresses of one network.
        let mut waiting: Vec<_> = (0..MOST_OF_ONE)
            .map(|number| Box::pin(check(&passwords, "sue", &number.to_string(), &format!("2001:db8::{number:x}"))))
            .collect();
        for check in &mut waiting {
            assert!(poll_once(check.as_mut()).is_none(), "all turns are taken");
        }
        let one_more = |client| poll_once(Box::pin(check(&passwords, "sue", "secret", client)).as_mut());
        assert_eq!(one_more("2001:db8::ffff:1"), Some(Check::Busy));
        assert_eq!(one_more(HOME), None, "others have places");
        assert_eq!(check(&passwords, "ben", "x", "2001:db8::1").await, Check::Wrong, "what is known needs none");

        let mut others: Vec<_> = (MOST_OF_ONE..MOST_WAITING)
            .map(|number| Box::pin(check(&passwords, "sue", "x", &format!("192.0.2.{number}"))))
            .collect();
        for check in &mut others {
            assert!(poll_once(check.as_mut()).is_none(), "all turns are taken");
        }
        assert_eq!(one_more(HOME), Some(Check::Busy), "that is as many as may wait");
        drop(others);
        waiting.truncate(1);
        assert_eq!(one_more("2001:db8::ffff:1"), None);
        drop(busy);
        assert_eq!(waiting.pop().expect("one is left").await, Check::Wrong);
        assert_eq!(check(&passwords, "sue", "secret", HOME).await, Check::Right);
        assert!(passwords.waiting.lock().expect("nobody panicked").is_empty());
    }

    fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
        match future.poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        }
    }

    proptest! {
        #[test]
        fn no_file_and_no_field_makes_it_panic(
            text in prop_oneof![
                prop::collection::vec(any::<u8>(), 0..200),
                "[a-z]{0,3}:?(\\$2y\\$|\\$apr1\\$|\\{SHA\\}|\\$5\\$)?[./A-Za-z0-9$=:#\\n\u{e9}]{0,70}".prop_map(String::into_bytes),
            ],
            field in prop::collection::vec(any::<u8>(), 0..60),
        ) {
            let _ = Passwords::parse(&text);
            if let Ok(value) = HeaderValue::from_bytes(&[b"Basic ", &field[..]].concat()) {
                let mut headers = HeaderMap::new();
                headers.insert(header::AUTHORIZATION, value);
                let _ = Credentials::basic(&headers).map(|found| found.user().len());
            }
        }
    }
}
