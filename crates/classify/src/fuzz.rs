//! Fuzz targets of classification: passwords, keys, sessions, proxies and rules.

use std::{
    net::{IpAddr, SocketAddr},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use heads::ForwardedField;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, header, request::Parts};
use ipnet::IpNet;
use scheduler::class::ClassId;

use crate::{
    classifier::{Classified, Classifier},
    config::{ClassifierConfig, Condition, PathPattern, Rule, SessionConfig, ValueMatch},
    facts::Facts,
    forwarded,
    keys::{self, Keys},
    passwords::{Credentials, Passwords},
    path::decoded_path,
    sessions::{Session, SessionKeys, Sessions},
};

/// A file of names and passwords, and a field with credentials. Adding a line to a valid file must not change
/// the other lines, and an error must name an existing line.
pub fn passwords(bytes: &[u8]) {
    basic(bytes);
    match Passwords::parse(bytes) {
        Err(error) => {
            in_a_line(bytes, &error);
        }
        Ok(_) => {
            // `htpasswd -s`, "secret".
            let more = [bytes, b"\nnewcomer:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\r\n# end"].concat();
            let more = Passwords::parse(&more).expect("another line breaks nothing");
            // Checks of the other hashes are slow by design.
            if bytes.contains(&b'$') || bytes.windows(8).any(|name| name == b"newcomer") {
                return;
            }
            let is = |user: &str, password: &str| more.check_blocking(&credentials(user, password));
            assert!(is("newcomer", "secret") && !is("newcomer", "Secret") && !is("nobody\0", "secret"));
        }
    }
}

fn credentials(user: &str, password: &str) -> Credentials {
    let mut headers = HeaderMap::new();
    let value = format!("Basic {}", STANDARD.encode(format!("{user}:{password}")));
    headers.insert(header::AUTHORIZATION, HeaderValue::try_from(value).expect("a value"));
    Credentials::basic(&headers).expect("well-formed")
}

fn basic(bytes: &[u8]) {
    let mut headers = HeaderMap::new();
    if let Ok(value) = HeaderValue::from_bytes(bytes) {
        headers.insert(header::AUTHORIZATION, value);
        if let Some(credentials) = Credentials::basic(&headers) {
            assert!(!credentials.user().contains(':'), "the first colon ends the name");
        }
    }
    if let Some((user, password)) = std::str::from_utf8(bytes).ok().and_then(|text| text.split_once(':')) {
        assert_eq!(credentials(user, password).user(), user);
    }
}

/// The text after `line N: `, where line N exists.
fn in_a_line<'a>(bytes: &[u8], error: &'a str) -> &'a str {
    let (number, rest) = error.strip_prefix("line ").and_then(|rest| rest.split_once(": ")).expect("a line is named");
    let lines = bytes.split(|byte| *byte == b'\n').count();
    assert!((1..=lines).contains(&number.parse().expect("a number")), "{error:?}");
    rest
}

/// A file of keys. Only a key whose hash is in it has a level, and errors show no possible key.
pub fn keys(bytes: &[u8]) {
    const KEY: &[u8] = b"a key that no input knows the hash of";
    match Keys::parse(bytes) {
        Err(error) => {
            let known = [
                "it is not UTF-8",
                "it must be a level and a hash, as `serpent key` writes it",
                "the hash is not SHA-256 in hexadecimal (64 digits)",
                "its key has stood in an earlier line",
            ];
            assert!(known.contains(&in_a_line(bytes, &error)), "{error:?}");
        }
        Ok(all) => {
            assert_eq!(all.level(bytes), None);
            let hash = keys::hash(KEY);
            if String::from_utf8_lossy(bytes).to_lowercase().contains(&hash) {
                return;
            }
            assert_eq!(all.level(KEY), None);
            let more = Keys::parse(&[bytes, b"\ngold ", hash.as_bytes(), b" # end"].concat());
            assert_eq!(more.expect("another line breaks nothing").level(KEY), Some("gold"));
        }
    }
}

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_700_000_000)
}

const LIFETIME: Duration = Duration::from_secs(1000);

/// A cookie, a payload that the server might have signed, and modifications of a signed cookie. Only a signed
/// cookie is accepted, and only unmodified.
pub fn sessions(bytes: &[u8]) {
    let names = ["gold", "silver", "r\u{e9}st"];
    let classes: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let config = SessionConfig { cookie: "class".to_owned(), secret: None, lifetime: LIFETIME, secure: true };
    let sessions = Sessions::new(&config, &classes, &SessionKeys::of_this_process()).expect("no file is read");
    let read = |cookie: &[u8]| {
        let mut headers = HeaderMap::new();
        for field in cookie.split(|byte| *byte == b'\n') {
            headers.append(header::COOKIE, HeaderValue::from_bytes(field).ok()?);
        }
        sessions.read(&headers, now())
    };

    assert_eq!(read(bytes), None, "nobody else can sign");
    assert_eq!(read(&[b"class=v1.Z29sZA.1700000500.", bytes].concat()), None, "nobody else can sign");

    for (at, name) in names.iter().enumerate() {
        let class = ClassId(at as u16);
        let field = sessions.write(class, now()).expect("a class that there is");
        let cookie = field.as_bytes().split(|byte| *byte == b';').next().expect("the cookie itself");
        assert_eq!(read(cookie), Some(Session { class, ageing: false }), "{name}");
        // Other cookies may stand beside it, if they do not have its name.
        if !bytes.windows(5).any(|name| name == b"class") && HeaderValue::from_bytes(bytes).is_ok() {
            assert_eq!(read(&[bytes, b";", cookie].concat()), Some(Session { class, ageing: false }));
            assert_eq!(read(&[bytes, b"\n", cookie].concat()), Some(Session { class, ageing: false }));
        }
        // Modified: each pair of bytes is a position and a change.
        let mut touched = cookie.to_vec();
        for pair in bytes.chunks_exact(2).take(16) {
            let at = usize::from(pair[0]) % touched.len();
            touched[at] ^= pair[1];
        }
        assert!(read(&touched).is_none() || unpadded(&touched) == unpadded(cookie), "{:?}", touched.escape_ascii());
    }

    // Signed by the server, in another version or for another configuration.
    let Ok(payload) = std::str::from_utf8(bytes) else { return };
    let signature = URL_SAFE_NO_PAD.encode(sessions.sign(payload));
    let cookie = format!("class={payload}.{signature}");
    if let Some(session) = read(cookie.as_bytes()) {
        let parts: Vec<_> = payload.trim().trim_matches('"').split('.').collect();
        let [version, class, expiry] = parts[..] else { panic!("{payload:?} was taken") };
        let expiry: u64 = expiry.parse().expect("a number of seconds");
        assert_eq!(version, "v1");
        assert_eq!(class, URL_SAFE_NO_PAD.encode(names[session.class.index()]));
        assert!(expiry > 1_700_000_000);
        assert_eq!(session.ageing, expiry < 1_700_000_500);
    }
}

/// A cookie without the white space and the quotes around it.
fn unpadded(cookie: &[u8]) -> Vec<u8> {
    let text = cookie.trim_ascii();
    let cut = text.split(|byte| *byte == b';').find(|pair| pair.trim_ascii().starts_with(b"class"));
    let text = cut.unwrap_or(text);
    text.iter().copied().filter(|byte| !byte.is_ascii_whitespace() && *byte != b'"').collect()
}

/// Lines of `X-Forwarded-For` or `Forwarded`. A trusted proxy's entry counts whatever stands before it, an
/// untrusted peer's lines are ignored, and an address that is found occurs in the input.
pub fn forwarded(bytes: &[u8]) {
    let trusted: Vec<IpNet> = ["10.0.0.0/8", "fd00::/8"].iter().map(|net| net.parse().expect("a network")).collect();
    let proxy: IpAddr = "10.0.0.1".parse().expect("an address");
    let stranger: IpAddr = "198.51.100.200".parse().expect("an address");
    for (field, name, appended) in [
        (ForwardedField::XForwardedFor, "x-forwarded-for", &["192.0.2.1", "192.0.2.1:80", "192.0.2.1, 10.9.9.9"][..]),
        (
            ForwardedField::Forwarded,
            "forwarded",
            &[
                "for=192.0.2.1;proto=http",
                "proto=http;For=\"192.0.2.1:80\";host=\"a,b\"",
                "for=192.0.2.1, for=\"[fd00::1]\"",
            ],
        ),
    ] {
        let name = HeaderName::from_static(name);
        let headers = |lines: &[&[u8]]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(name.clone(), HeaderValue::from_bytes(line).ok()?);
            }
            Some(headers)
        };
        let lines: Vec<_> = bytes.split(|byte| *byte == b'\n').collect();
        let Some(written) = headers(&lines) else { return };
        let client = forwarded::client(proxy, &written, &trusted, field);
        assert_eq!(client, client.to_canonical());
        assert_eq!(forwarded::client(stranger, &written, &trusted, field), stranger);
        if field == ForwardedField::XForwardedFor {
            let one_line = headers(&[&lines.join(&b","[..])]).expect("they were values");
            assert_eq!(forwarded::client(proxy, &one_line, &trusted, field), client, "lines are one list");
        }
        for appended in appended {
            let mut more = lines.clone();
            more.push(appended.as_bytes());
            let more = headers(&more).expect("they were values");
            assert_eq!(forwarded::client(proxy, &more, &trusted, field).to_string(), "192.0.2.1");
            let joined = headers(&[&[
                bytes.split(|byte| *byte == b'\n').next_back().unwrap_or_default(),
                b", ",
                appended.as_bytes(),
            ]
            .concat()]);
            let joined = joined.expect("they were values");
            assert_eq!(forwarded::client(proxy, &joined, &trusted, field).to_string(), "192.0.2.1");
        }
    }
}

/// Rules, each a line with one or more conditions, then an empty line and a request. A rule matches if each
/// of its conditions holds alone, and the first matching rule counts; `explain` must agree.
pub fn rules(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (rules, request) = text.split_once("\n\n").unwrap_or((text, ""));
    let rules: Vec<Vec<Condition>> = rules.lines().take(4).filter_map(conditions).collect();
    let Some(parts) = request_of(request) else { return };
    let facts = Facts {
        parts: &parts,
        host: "www.example.org",
        peer: SocketAddr::from(([192, 0, 2, 1], 5000)),
        local: SocketAddr::from(([198, 51, 100, 1], 80)),
        certificate_names: &[],
        has_certificate: false,
        tls: false,
        now: now(),
    };
    let holds = |conditions: &[&[Condition]]| {
        let rule = |conditions: &&[Condition]| Rule {
            name: "rule".to_owned(),
            class: ClassId(0),
            resource: None,
            conditions: conditions.to_vec(),
            raises_session: false,
        };
        let config = of_classes(&["first", "rest"], conditions.iter().map(rule).collect());
        let classifier = Classifier::new(config).expect("no file is read");
        let explanation = classifier.explain(facts);
        let _ = (explanation.to_string(), explanation.to_json());
        let Classified::Now(verdict) = classifier.classify(facts) else { panic!("there are no passwords") };
        assert_eq!(explanation.verdict, verdict);
        assert_eq!(verdict.class, ClassId(u16::from(verdict.rule.is_none())));
        verdict.rule
    };
    let singly = |rule: &Vec<Condition>| rule.iter().all(|one| holds(&[std::slice::from_ref(one)]).is_some());
    let expected = rules.iter().position(singly);
    assert_eq!(holds(&rules.iter().map(Vec::as_slice).collect::<Vec<_>>()), expected);

    let path = decoded_path(parts.uri.path());
    for condition in rules.iter().flatten() {
        let held = holds(&[std::slice::from_ref(condition)]).is_some();
        match condition {
            Condition::Path(patterns) => {
                for pattern in patterns {
                    let (Some(path), PathPattern::Prefix(prefix)) = (&path, pattern) else { continue };
                    let folder = format!("{}/", prefix.strip_suffix('/').unwrap_or(prefix));
                    let below = **path == **prefix || path.starts_with(&folder);
                    assert_eq!(pattern.matches(path).is_some(), below, "{prefix} ends a name: {path}");
                }
                assert!(path.is_some() || !held, "what cannot be decoded matches nothing");
            }
            Condition::Header(name, _) => assert!(!held || parts.headers.contains_key(name)),
            Condition::Query(..) => assert!(!held || parts.uri.query().is_some()),
            Condition::Cookie(..) => assert!(!held || parts.headers.contains_key(header::COOKIE)),
            _ => {}
        }
    }
}

fn of_classes(names: &[&str], rules: Vec<Rule>) -> ClassifierConfig {
    let classes: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let default = ClassId(classes.len() as u16 - 1);
    ClassifierConfig { classes, default, rules, ..ClassifierConfig::default() }
}

/// `KIND VALUE` or `KIND NAME VALUE`; several are joined by ` & `.
fn conditions(line: &str) -> Option<Vec<Condition>> {
    if line.len() > 200 {
        return None;
    }
    line.split(" & ").map(condition).collect()
}

fn condition(text: &str) -> Option<Condition> {
    let (kind, value) = text.split_once(' ')?;
    let named = || {
        let (name, value) = value.split_once(' ').unwrap_or((value, ""));
        let values = match value.strip_prefix('~') {
            Some(regex) => ValueMatch::Regex(regex::Regex::new(regex).ok()?),
            None if value.is_empty() => ValueMatch::Present,
            None => ValueMatch::OneOf(value.split('|').map(str::to_owned).collect()),
        };
        Some((name, values))
    };
    Some(match kind {
        "prefix" => Condition::Path(vec![PathPattern::Prefix(value.to_owned())]),
        "glob" => {
            let glob = globset::GlobBuilder::new(value).literal_separator(true).build().ok()?;
            Condition::Path(vec![PathPattern::Glob(glob.compile_matcher())])
        }
        "regex" => Condition::Path(vec![PathPattern::Regex(regex::Regex::new(value).ok()?)]),
        "extension" => Condition::Extension(vec![value.to_owned()]),
        "host" => Condition::Host(vec![value.to_owned()]),
        "method" => Condition::Method(vec![Method::from_bytes(value.as_bytes()).ok()?]),
        "client" => Condition::Client(vec![value.parse().ok()?]),
        "destination" => Condition::Destination(vec![value.parse().ok()?]),
        "header" => named().and_then(|(name, values)| Some(Condition::Header(name.parse().ok()?, values)))?,
        "query" => named().map(|(name, values)| Condition::Query(name.to_owned(), values))?,
        "cookie" => named().map(|(name, values)| Condition::Cookie(name.to_owned(), values))?,
        _ => return None,
    })
}

fn request_of(text: &str) -> Option<Parts> {
    let mut lines = text.lines();
    let mut words = lines.next()?.split(' ');
    let mut request = Request::builder().method(words.next()?).uri(words.next()?);
    for line in lines {
        let (name, value) = line.split_once(':')?;
        request = request.header(name, HeaderValue::from_str(value.trim()).ok()?);
    }
    Some(request.body(()).ok()?.into_parts().0)
}

#[test]
fn every_seed_passes_its_target() {
    type Target = fn(&[u8]);
    let targets: [(&str, Target); 5] =
        [("forwarded", forwarded), ("keys", keys), ("passwords", passwords), ("rules", rules), ("sessions", sessions)];
    let seeds = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
    for (name, target) in targets {
        let files = std::fs::read_dir(seeds.join(name)).expect("the target has seeds");
        let files: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
        assert!(!files.is_empty(), "{name} has no seeds");
        for file in files {
            println!("{}", file.display());
            target(&std::fs::read(&file).expect("a seed that can be read"));
        }
    }
}
