//! Rules, sessions and explanations, as a configuration has them and a request meets them.

use std::{
    fs,
    net::SocketAddr,
    path::PathBuf,
    time::{Duration, SystemTime},
};

use heads::ForwardedField;
use http::{HeaderName, HeaderValue, Method, Request, header, request::Parts};
use proptest::prelude::*;
use regex::Regex;
use scheduler::{admission::ResourceId, class::ClassId};
use tempfile::TempDir;

use super::*;

const NAMES: [&str; 4] = ["gold", "silver", "bronze", "rest"];
const GOLD: ClassId = ClassId(0);
const SILVER: ClassId = ClassId(1);
const BRONZE: ClassId = ClassId(2);
const REST: ClassId = ClassId(3);
const LIFETIME: Duration = Duration::from_secs(1000);

/// Four classes, the last of them the default.
fn classes(rules: Vec<Rule>) -> ClassifierConfig {
    ClassifierConfig { classes: words(&NAMES), default: REST, rules, ..ClassifierConfig::default() }
}

fn rule(class: ClassId, conditions: Vec<Condition>) -> Rule {
    Rule { name: format!("to {}", NAMES[class.index()]), class, resource: None, conditions, raises_session: false }
}

fn raising(class: ClassId, conditions: Vec<Condition>) -> Rule {
    Rule { raises_session: true, ..rule(class, conditions) }
}

fn prefix(prefix: &str) -> Condition {
    Condition::Path(vec![PathPattern::Prefix(prefix.to_owned())])
}

fn one_of(values: &[&str]) -> ValueMatch {
    ValueMatch::OneOf(words(values))
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// A request, and who sent it.
#[derive(Clone)]
struct Sent {
    parts: Parts,
    host: String,
    peer: SocketAddr,
    local: SocketAddr,
    certificate: Option<Vec<Box<str>>>,
    now: SystemTime,
}

fn get(target: &str) -> Sent {
    Sent {
        parts: Request::get(target).body(()).expect("a request").into_parts().0,
        host: "www.example.org".to_owned(),
        peer: "192.0.2.1:5000".parse().expect("an address"),
        local: "[::ffff:198.51.100.1]:80".parse().expect("an address"),
        certificate: None,
        now: SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000),
    }
}

impl Sent {
    fn with(mut self, name: &str, value: &str) -> Self {
        let name = HeaderName::try_from(name).expect("a name");
        self.parts.headers.append(name, HeaderValue::from_bytes(value.as_bytes()).expect("a value"));
        self
    }

    fn basic(self, user_and_password: &str) -> Self {
        use base64::{Engine as _, engine::general_purpose::STANDARD};
        self.with("authorization", &format!("Basic {}", STANDARD.encode(user_and_password)))
    }

    fn after(mut self, time: Duration) -> Self {
        self.now += time;
        self
    }

    fn facts(&self) -> Facts<'_> {
        Facts {
            parts: &self.parts,
            host: &self.host,
            peer: self.peer,
            local: self.local,
            certificate_names: self.certificate.as_deref().unwrap_or_default(),
            has_certificate: self.certificate.is_some(),
            tls: self.certificate.is_some(),
            now: self.now,
        }
    }
}

fn classifier(classes: &ClassifierConfig) -> Classifier {
    Classifier::new(classes.clone()).expect("good files")
}

/// The verdict, with what is explained checked against it.
fn verdict(classifier: &Classifier, sent: &Sent) -> Verdict {
    let verdict = match classifier.classify(sent.facts()) {
        Classified::Now(verdict) => verdict,
        Classified::Later(later) => {
            tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(later)
        }
    };
    let explanation = classifier.explain(sent.facts());
    assert_eq!(explanation.verdict, verdict, "{explanation}");
    verdict
}

fn class(classifier: &Classifier, sent: &Sent) -> ClassId {
    verdict(classifier, sent).class
}

/// Whether a single condition holds.
fn holds(condition: &Condition, sent: &Sent) -> bool {
    let holds = class(&classifier(&classes(vec![rule(GOLD, vec![condition.clone()])])), sent) == GOLD;
    let with_others = rule(GOLD, vec![Condition::Method(vec![sent.parts.method.clone()]), condition.clone()]);
    assert_eq!(class(&classifier(&classes(vec![with_others])), sent) == GOLD, holds);
    holds
}

#[test]
fn hosts() {
    for (name, host, expected) in [
        ("www.example.org", "www.example.org", true),
        ("www.example.org", "example.org", false),
        ("*.example.org", "www.example.org", true),
        ("*.example.org", "a.b.example.org", true),
        ("*.example.org", "example.org", false),
        ("*.example.org", ".example.org", false),
        ("*.example.org", "badexample.org", false),
        ("[::1]", "[::1]", true),
        ("www.example.org", "", false),
    ] {
        let sent = Sent { host: host.to_owned(), ..get("/") };
        assert_eq!(holds(&Condition::Host(words(&["other.example", name])), &sent), expected, "{name} {host}");
    }
}

#[test]
fn paths() {
    let glob = |glob: &str| PathPattern::Glob(globset::Glob::new(glob).expect("a glob").compile_matcher());
    let regex = |regex: &str| PathPattern::Regex(Regex::new(regex).expect("an expression"));
    let prefix = |prefix: &str| PathPattern::Prefix(prefix.to_owned());
    for (pattern, target, expected) in [
        (prefix("/shop"), "/shop", true),
        (prefix("/shop"), "/shop/x?y=/z", true),
        (prefix("/shop"), "/shopping", false),
        (prefix("/shop"), "/%73hop/", true),
        (prefix("/shop"), "/x/../shop", true),
        (prefix("/shop"), "/shop/../x", false),
        (prefix("/shop"), "/shop/%2e%2e/x", false),
        (prefix("/shop"), "//shop", true),
        (prefix("/shop"), "http://www.example.org/shop", true),
        (prefix("/shop"), "/x?/shop", false),
        (prefix("/"), "/%zz", false),
        (prefix("/"), "/..", false),
        (prefix("/"), "/%ff", false),
        (prefix("/"), "/x%2F..%2Fy", false),
        (prefix("/"), "*", false),
        (prefix("/"), "/", true),
        (glob("/a/*.cgi"), "/a/x%2Ecgi", true),
        (glob("/a/*.cgi"), "/b/x.cgi", false),
        (regex("^/[0-9]+$"), "/%31%32", true),
        (regex("^/[0-9]+$"), "/12/", false),
    ] {
        assert_eq!(holds(&Condition::Path(vec![pattern.clone()]), &get(target)), expected, "{pattern:?} {target}");
    }
}

#[test]
fn extensions() {
    for (target, expected) in [
        ("/a.php", true),
        ("/a.PHP?x", true),
        ("/a%2Ephp", true),
        ("/x.y/a.tar.gz", true),
        ("/a.gz", false),
        ("/.php", false),
        ("/php", false),
        ("/a.php/", false),
        ("/a.php/x", false),
        ("/a.php5", false),
        ("/?a.php", false),
        ("/", false),
    ] {
        assert_eq!(holds(&Condition::Extension(words(&["php", "tar.gz"])), &get(target)), expected, "{target}");
    }
}

#[test]
fn methods() {
    let condition = Condition::Method(vec![Method::POST, Method::PUT]);
    let mut sent = get("/");
    assert!(!holds(&condition, &sent));
    sent.parts.method = Method::PUT;
    assert!(holds(&condition, &sent));
}

#[test]
fn query_keys() {
    let regex = ValueMatch::Regex(Regex::new("^g.ld$").expect("an expression"));
    for (values, target, expected) in [
        (ValueMatch::Present, "/?plan", true),
        (ValueMatch::Present, "/?plan=", true),
        (ValueMatch::Present, "/?plans=1", false),
        (ValueMatch::Present, "/plan", false),
        (one_of(&["gold", "a b"]), "/?plan=gold", true),
        (one_of(&["gold", "a b"]), "/?x=1&plan=a+b", true),
        (one_of(&["gold", "a b"]), "/?x=1&plan=a%20b&y", true),
        (one_of(&["gold", "a b"]), "/?plan=x&plan=gold", true),
        (one_of(&["gold", "a b"]), "/?pl%61n=g%6fld", true),
        (one_of(&["gold", "a b"]), "/?plan=Gold", false),
        (one_of(&["gold", "a b"]), "/?plan=gold2", false),
        (one_of(&["gold", "a b"]), "/?plan", false),
        (regex.clone(), "/?plan=guld", true),
        (regex, "/?plan=gulden", false),
    ] {
        assert_eq!(
            holds(&Condition::Query("plan".to_owned(), values.clone()), &get(target)),
            expected,
            "{values:?} {target}"
        );
    }
}

#[test]
fn header_fields() {
    let holds =
        |values: ValueMatch, sent: &Sent| holds(&Condition::Header(HeaderName::from_static("x-plan"), values), sent);
    let sent = get("/").with("x-plan", "free").with("X-Plan", "gold");
    assert!(holds(ValueMatch::Present, &sent));
    assert!(!holds(ValueMatch::Present, &get("/").with("x-plans", "gold")));
    assert!(holds(one_of(&["gold"]), &sent));
    assert!(!holds(one_of(&["golden", "Gold"]), &sent));
    assert!(holds(ValueMatch::Regex(Regex::new("^fr").expect("an expression")), &sent));
    assert!(!holds(ValueMatch::Regex(Regex::new("^re").expect("an expression")), &sent));
}

#[test]
fn cookies() {
    let holds = |values: ValueMatch, sent: &Sent| holds(&Condition::Cookie("plan".to_owned(), values), sent);
    for (field, expected) in [
        ("plan=gold", true),
        ("a=b; plan=gold; c=d", true),
        ("a=b;plan=\"gold\"", true),
        ("plan = gold", true),
        ("plan=x; plan=gold", true),
        ("a=plan=gold", false),
        ("Plan=gold", false),
        ("plan=golden", false),
        ("plan", false),
        ("xplan=gold", false),
        ("a=\"; plan=gold", true),
    ] {
        assert_eq!(holds(one_of(&["gold"]), &get("/").with("cookie", field)), expected, "{field}");
    }
    assert!(
        holds(one_of(&["gold"]), &get("/").with("cookie", "a=b").with("cookie", "plan=gold")),
        "as HTTP/2 may send it"
    );
    assert!(holds(ValueMatch::Present, &get("/").with("cookie", "plan=")));
    assert!(!holds(ValueMatch::Present, &get("/")));
    assert!(holds(ValueMatch::Regex(Regex::new("^g").expect("an expression")), &get("/").with("cookie", "plan=gold")));
}

#[test]
fn destinations() {
    for (address, expected) in [
        ("198.51.100.1:80", true),
        ("198.51.100.1:0", true),
        ("[::ffff:198.51.100.1]:80", true),
        ("0.0.0.0:80", true),
        ("[::]:80", true),
        ("0.0.0.0:0", true),
        ("198.51.100.1:81", false),
        ("198.51.100.2:80", false),
        ("198.51.100.2:0", false),
        ("0.0.0.0:81", false),
    ] {
        let condition = Condition::Destination(vec![address.parse().expect("an address")]);
        assert_eq!(holds(&condition, &get("/")), expected, "{address}");
    }
}

#[test]
fn clients_behind_trusted_proxies() {
    let nets = |nets: &[&str]| nets.iter().map(|net| net.parse().expect("a network")).collect::<Vec<_>>();
    let condition = Condition::Client(nets(&["203.0.113.0/24", "2001:db8::/32"]));
    assert!(!holds(&condition, &get("/")));
    assert!(holds(&condition, &Sent { peer: "[::ffff:203.0.113.7]:1".parse().expect("an address"), ..get("/") }));
    assert!(holds(&condition, &Sent { peer: "[2001:db8::7]:1".parse().expect("an address"), ..get("/") }));

    let forwarded = get("/").with("x-forwarded-for", "203.0.113.7").with("forwarded", "for=192.0.2.77");
    assert!(!holds(&condition, &forwarded), "nobody is trusted");
    let mut classes = classes(vec![rule(GOLD, vec![condition])]);
    assert_eq!(verdict(&classifier(&classes), &forwarded).believed, None);
    classes.trusted_proxies = nets(&["192.0.2.0/30"]);
    let found = verdict(&classifier(&classes), &forwarded);
    assert_eq!(found.believed, Some(ForwardedField::XForwardedFor));
    for proxied in [get("/").with("x-forwarded-proto", "https"), get("/").with("x-forwarded-for", "unknown")] {
        let found = verdict(&classifier(&classes), &proxied);
        assert_eq!((found.client, found.believed), (proxied.peer.ip(), Some(ForwardedField::XForwardedFor)));
    }
    assert_eq!((found.class, found.client.to_string().as_str()), (GOLD, "203.0.113.7"));
    let explanation = classifier(&classes).explain(forwarded.facts());
    assert_eq!(explanation.proxy, Some(forwarded.peer.ip()));
    classes.forwarded = ForwardedField::Forwarded;
    let found = verdict(&classifier(&classes), &forwarded);
    assert_eq!((found.class, found.client.to_string().as_str()), (REST, "192.0.2.77"));
    classes.trusted_proxies = nets(&["192.0.2.4/30"]);
    let found = verdict(&classifier(&classes), &forwarded);
    assert_eq!((found.client, found.believed), (forwarded.peer.ip(), None));
}

#[test]
fn certificates() {
    let any = Condition::Certificate(Vec::new());
    let named = Condition::Certificate(words(&["Shop.example", "Anna A."]));
    let shown =
        |names: &[&str]| Sent { certificate: Some(names.iter().map(|name| (*name).into()).collect()), ..get("/") };
    assert!(!holds(&any, &get("/")) && !holds(&named, &get("/")));
    assert!(holds(&any, &shown(&[])) && !holds(&named, &shown(&[])));
    assert!(holds(&named, &shown(&["x", "shop.example"])) && holds(&named, &shown(&["Anna A."])));
    assert!(!holds(&named, &shown(&["www.shop.example"])));
    let mut unchecked = shown(&["shop.example"]);
    unchecked.certificate = None;
    assert!(!holds(&named, &unchecked));
}

/// A directory with users and keys.
fn files() -> TempDir {
    let directory = TempDir::new().expect("a directory");
    // Password `secret`, made with `htpasswd -B -C 4` and `htpasswd -s`.
    let users =
        "bea:$2y$04$4gsMHaPbnPkk0iw7NgkkUehgNIJEVOHnzxpLLWX3LSoD9A3lOeHrm\nsue:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n";
    fs::write(directory.path().join("users"), users).expect("written");
    let keys = format!("gold {}\nsilver {}\n", keys::hash(b"key 1"), keys::hash(b"key 2"));
    fs::write(directory.path().join("keys"), keys).expect("written");
    directory
}

#[test]
fn users() {
    let files = files();
    let mut classes = classes(vec![
        rule(GOLD, vec![Condition::User(words(&["bea"])), prefix("/")]),
        rule(SILVER, vec![Condition::User(Vec::new())]),
    ]);
    let asking_nobody = classifier(&classes);
    assert_eq!(class(&asking_nobody, &get("/").basic("bea:secret")), REST, "there is no file of users");
    classes.users = Some(files.path().join("users"));
    let classifier = classifier(&classes);
    for (sent, expected, user) in [
        (get("/").basic("bea:secret"), GOLD, Some("bea")),
        (get("/").basic("sue:secret"), SILVER, Some("sue")),
        (get("/%00").basic("bea:secret"), SILVER, Some("bea")),
        (get("/").basic("bea:wrong"), REST, None),
        (get("/").basic("nobody:secret"), REST, None),
        (get("/").with("authorization", "Bearer secret"), REST, None),
        (get("/"), REST, None),
    ] {
        let found = verdict(&classifier, &sent);
        assert_eq!((found.class, found.user.as_deref()), (expected, user), "{:?}", sent.parts.headers);
    }
}

#[test]
fn a_password_is_checked_once_and_only_where_it_decides() {
    let files = files();
    let mut classes = classes(vec![
        rule(GOLD, vec![prefix("/free")]),
        rule(SILVER, vec![Condition::User(Vec::new()), prefix("/shop")]),
    ]);
    classes.users = Some(files.path().join("users"));
    let classifier = classifier(&classes);
    let now = |sent: &Sent| matches!(classifier.classify(sent.facts()), Classified::Now(_));
    assert!(now(&get("/free").basic("bea:secret")), "an earlier rule matches");
    assert!(now(&get("/other").basic("bea:secret")), "another condition does not hold");
    assert!(now(&get("/shop")), "there is no password");
    for password in ["secret", "wrong"] {
        let sent = get("/shop").basic(&format!("bea:{password}"));
        assert!(!now(&sent));
        verdict(&classifier, &sent);
        assert!(now(&sent), "the verdict is kept");
    }
    assert!(!now(&get("/shop").basic("nobody:secret")), "whether there is such a user is not told by the time");
}

#[test]
fn key_values() {
    let files = files();
    let mut classes = classes(vec![
        rule(GOLD, vec![Condition::Key(words(&["gold"]))]),
        rule(SILVER, vec![Condition::Key(Vec::new())]),
    ]);
    let file = files.path().join("keys");
    assert_eq!(class(&classifier(&classes), &get("/?key=key+1")), REST, "there is no file of keys");
    classes.keys = Some(KeysConfig { file, header: Some(header::AUTHORIZATION), query: Some("key".to_owned()) });
    let classifier = classifier(&classes);
    for (sent, expected) in [
        (get("/?key=key+1"), GOLD),
        (get("/?key=key%202"), SILVER),
        (get("/?key=key+3"), REST),
        (get("/").with("authorization", "Bearer key 1"), GOLD),
        (get("/").with("authorization", "Bearer key"), REST),
        (get("/"), REST),
    ] {
        assert_eq!(class(&classifier, &sent), expected, "{:?}", sent.parts.uri);
    }
}

#[test]
fn the_first_rule_all_of_whose_conditions_hold_matches() {
    let condition = |key: &str| Condition::Query(key.to_owned(), ValueMatch::Present);
    let mut rules = vec![
        rule(BRONZE, vec![condition("a"), condition("b")]),
        rule(GOLD, vec![condition("a")]),
        rule(SILVER, vec![condition("b")]),
    ];
    rules[2].resource = Some(ResourceId(3));
    let classifier = classifier(&classes(rules));
    for (target, class, rule, resource) in [
        ("/?a&b", BRONZE, Some(0), None),
        ("/?a", GOLD, Some(1), None),
        ("/?b", SILVER, Some(2), Some(ResourceId(3))),
        ("/", REST, None, None),
    ] {
        let found = verdict(&classifier, &get(target));
        assert_eq!((found.class, found.rule, found.resource), (class, rule, resource), "{target}");
        assert_eq!(found.set_cookie, None, "there are no sessions");
    }
    let everything = super::tests::classifier(&classes(vec![rule(SILVER, Vec::new())]));
    assert_eq!(class(&everything, &get("*")), SILVER, "no conditions: everything");
}

#[test]
fn nobody_is_asked_where_nothing_can_be_asked() {
    let one = ClassifierConfig::default();
    assert!(classifier(&one).is_trivial());
    assert!(!classifier(&classes(vec![rule(REST, Vec::new())])).is_trivial());
    let session = session(None);
    assert!(classifier(&ClassifierConfig { session: Some(session.clone()), ..one.clone() }).is_trivial());
    assert!(!classifier(&ClassifierConfig { session: Some(session), ..classes(Vec::new()) }).is_trivial());
    assert!(
        !classifier(&ClassifierConfig { trusted_proxies: vec!["10.0.0.0/8".parse().expect("a network")], ..one })
            .is_trivial()
    );
    let sent = Sent { peer: "[::ffff:192.0.2.1]:1".parse().expect("an address"), ..get("/") };
    assert_eq!(verdict(&classifier(&ClassifierConfig::default()), &sent).client.to_string(), "192.0.2.1");
}

fn session(secret: Option<PathBuf>) -> SessionConfig {
    SessionConfig { cookie: "serpent".to_owned(), secret, lifetime: LIFETIME, secure: false }
}

/// `/silver` begins a session, `/gold` and `/bronze` raise one, `/only-new` does not.
fn shop() -> ClassifierConfig {
    let mut silver = rule(SILVER, vec![prefix("/silver")]);
    silver.resource = Some(ResourceId(1));
    let rules = vec![
        silver,
        raising(GOLD, vec![prefix("/gold")]),
        raising(BRONZE, vec![prefix("/bronze")]),
        rule(GOLD, vec![prefix("/only-new")]),
    ];
    ClassifierConfig { session: Some(session(None)), ..classes(rules) }
}

/// The cookie that a verdict sets, as a client sends it back.
fn cookie(verdict: &Verdict) -> String {
    let field = verdict.set_cookie.as_ref().expect("a cookie is set").to_str().expect("text");
    field.split(';').next().expect("a pair").to_owned()
}

#[test]
fn a_class_that_came_from_a_rule_is_kept() {
    let classifier = classifier(&shop());
    assert_eq!(verdict(&classifier, &get("/")).set_cookie, None, "the default class needs no cookie");
    let first = verdict(&classifier, &get("/silver"));
    assert_eq!((first.class, first.rule), (SILVER, Some(0)));
    let field = first.set_cookie.as_ref().expect("a session begins").to_str().expect("text");
    let value = field.strip_prefix("serpent=v1.c2lsdmVy.1000001000.").expect("name, class and expiry");
    assert_eq!(value.split_once("; ").expect("attributes").1, "Path=/; Max-Age=1000; HttpOnly; SameSite=Lax");

    let later = verdict(&classifier, &get("/").with("cookie", &cookie(&first)));
    assert_eq!((later.class, later.rule, later.set_cookie), (SILVER, None, None));
    let again = verdict(&classifier, &get("/silver").with("cookie", &cookie(&first)));
    assert_eq!((again.class, again.rule, again.set_cookie), (SILVER, None, None));
    assert_eq!(again.resource, Some(ResourceId(1)), "what it needs is another matter");
}

#[test]
fn a_rule_may_raise_a_session_and_nothing_lowers_it() {
    let classifier = classifier(&shop());
    let silver = cookie(&verdict(&classifier, &get("/silver")));
    let raised = verdict(&classifier, &get("/gold").with("cookie", &silver));
    assert_eq!((raised.class, raised.rule), (GOLD, Some(1)));
    let gold = cookie(&raised);
    for target in ["/", "/silver", "/bronze"] {
        let found = verdict(&classifier, &get(target).with("cookie", &gold));
        assert_eq!((found.class, found.rule, found.set_cookie), (GOLD, None, None), "{target}");
    }
    for target in ["/bronze", "/only-new"] {
        let found = verdict(&classifier, &get(target).with("cookie", &silver));
        assert_eq!((found.class, found.rule, found.set_cookie), (SILVER, None, None), "{target}");
    }
    assert_eq!(class(&classifier, &get("/only-new")), GOLD);
}

#[test]
fn who_shows_a_key_needs_no_session_and_leaves_none() {
    let files = files();
    let rules = vec![raising(GOLD, vec![Condition::Key(words(&["gold"]))]), rule(SILVER, vec![prefix("/silver")])];
    let mut classes = ClassifierConfig { session: Some(session(None)), ..classes(rules) };
    classes.keys = Some(KeysConfig { file: files.path().join("keys"), header: None, query: Some("key".to_owned()) });
    let classifier = classifier(&classes);
    let silver = cookie(&verdict(&classifier, &get("/silver")));
    for (sent, expected) in [
        (get("/silver?key=key+1"), GOLD),
        (get("/silver?key=key+1").with("cookie", &silver), GOLD),
        // A key that was taken back.
        (get("/silver?key=key+9").with("cookie", &silver), SILVER),
        (get("/").with("cookie", &silver), SILVER),
    ] {
        let found = verdict(&classifier, &sent);
        assert_eq!((found.class, found.set_cookie.is_some()), (expected, false), "{:?}", sent.parts.uri);
    }
}

#[test]
fn a_session_ends_unless_it_is_used() {
    let classifier = classifier(&shop());
    let first = cookie(&verdict(&classifier, &get("/silver")));
    let at = |seconds| verdict(&classifier, &get("/").with("cookie", &first).after(Duration::from_secs(seconds)));
    assert_eq!((at(500).class, at(500).set_cookie), (SILVER, None));
    let renewed = at(501);
    assert_eq!((renewed.class, renewed.rule), (SILVER, None));
    assert_eq!(at(999).class, SILVER);
    assert_eq!((at(1000).class, at(1000).set_cookie), (REST, None));
    let on = get("/").with("cookie", &cookie(&renewed)).after(Duration::from_secs(1500));
    assert_eq!(class(&classifier, &on), SILVER);
}

#[test]
fn a_cookie_that_is_not_ours_is_no_session() {
    let classifier = classifier(&shop());
    let good = cookie(&verdict(&classifier, &get("/silver")));
    let seen = |cookie: &str| verdict(&classifier, &get("/").with("cookie", cookie)).class;
    assert_eq!(seen(&good), SILVER);
    assert_eq!(seen(&format!("serpent=x; {good}")), SILVER, "an older one of another path stands before it");
    let (payload, signature) = good.rsplit_once('.').expect("a signature");
    let gold = "Z29sZA";
    for forged in [
        payload.to_owned(),
        format!("{payload}."),
        format!("{payload}.{}", &signature[1..]),
        format!("{payload}.{signature}A"),
        format!("{}.{signature}", payload.replace("c2lsdmVy", gold)),
        format!("{}.{signature}", payload.replace(".1000001000", ".2000001000")),
        format!("{}.{signature}", payload.replace("v1", "v2")),
        format!("serpent=v1.{gold}.2000001000.{}", "A".repeat(43)),
        good.replace("serpent=", "other="),
        "serpent=".to_owned(),
        "serpent=...".to_owned(),
    ] {
        assert_eq!(seen(&forged), REST, "{forged}");
    }
    for at in 0..good.len() {
        let mut bytes = good.clone().into_bytes();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(bytes).expect("ASCII");
        // The last character of the signature holds two bits that must be zero, so no other is as good.
        assert_eq!(seen(&changed), REST, "{changed}");
    }
    let other =
        ClassifierConfig { session: Some(SessionConfig { cookie: "other".to_owned(), ..session(None) }), ..shop() };
    let other = super::tests::classifier(&other);
    let renamed = get("/").with("cookie", &good.replace("serpent=", "other="));
    assert_eq!(class(&other, &renamed), REST, "the name is signed too");
}

#[test]
fn a_session_survives_a_reload_by_the_name_of_its_class() {
    let before = classifier(&shop());
    let silver = cookie(&verdict(&before, &get("/silver")));
    let mut changed = shop();
    changed.classes.swap(1, 2);
    let found = verdict(&classifier(&changed), &get("/").with("cookie", &silver));
    assert_eq!(found.class, ClassId(2), "silver has another number");
    changed.classes[2] = "platinum".to_owned();
    assert_eq!(
        class(&classifier(&changed), &get("/").with("cookie", &silver)),
        REST,
        "there is no such class any more"
    );
    let begun = verdict(&classifier(&changed), &get("/gold").with("cookie", &silver));
    assert_eq!((begun.class, begun.set_cookie.is_some()), (GOLD, true), "and a new session begins");
}

#[test]
fn secrets_sign_and_must_be_long() {
    let directory = TempDir::new().expect("a directory");
    let with = |secret: &[u8]| {
        let path = directory.path().join("secret");
        fs::write(&path, secret).expect("written");
        Classifier::new(ClassifierConfig { session: Some(session(Some(path))), ..shop() })
    };
    let one = with(&[1; 32]).expect("long enough");
    let cookie = cookie(&verdict(&one, &get("/silver")));
    assert_eq!(class(&with(&[1; 32]).expect("the same"), &get("/").with("cookie", &cookie)), SILVER);
    assert_eq!(class(&with(&[2; 32]).expect("another"), &get("/").with("cookie", &cookie)), REST);
    let error = with(&[1; 31]).expect_err("too short").to_string();
    assert!(error.contains("secret: the secret has 31 bytes; at least 32 are needed"), "{error}");

    let secure = ClassifierConfig { session: Some(SessionConfig { secure: true, ..session(None) }), ..shop() };
    let field = verdict(&classifier(&secure), &get("/silver")).set_cookie.expect("a cookie");
    assert!(field.to_str().expect("text").ends_with("; HttpOnly; SameSite=Lax; Secure"));
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let directory = TempDir::new().expect("a directory");
    let missing = directory.path().join("missing");
    let broken = directory.path().join("broken");
    fs::write(&broken, "x y z").expect("written");
    let keys = |file: &PathBuf| Some(KeysConfig { file: file.clone(), header: None, query: None });
    for (classes, path, message) in [
        (ClassifierConfig { users: Some(missing.clone()), ..shop() }, &missing, "it cannot be read: No such file"),
        (ClassifierConfig { users: Some(broken.clone()), ..shop() }, &broken, "line 1: there is no `:`"),
        (ClassifierConfig { keys: keys(&missing), ..shop() }, &missing, "it cannot be read: No such file"),
        (ClassifierConfig { keys: keys(&broken), ..shop() }, &broken, "line 1: it must be a level and a hash"),
        (ClassifierConfig { session: Some(session(Some(missing.clone()))), ..shop() }, &missing, "it cannot be read"),
    ] {
        let error = Classifier::new(classes.clone()).expect_err(message);
        assert!(error.path == *path && error.message.starts_with(message), "{error}");
    }
}

#[test]
fn an_explanation_shows_every_rule_up_to_the_one_that_matches() {
    let classes = classes(vec![
        rule(GOLD, vec![prefix("/shop"), Condition::Query("plan".to_owned(), one_of(&["gold", "best"]))]),
        raising(SILVER, vec![Condition::Host(words(&["*.example.org"]))]),
        rule(BRONZE, Vec::new()),
        rule(GOLD, Vec::new()),
    ]);
    let classes = ClassifierConfig { session: Some(session(None)), ..classes };
    let classifier = classifier(&classes);
    let explanation = classifier.explain(get("/shop?plan=a%1b").facts());
    let expected = "\
client  192.0.2.1
path    /shop

to gold (class gold): does not match
  yes  path: asked for /shop; the request has /shop
  no   query plan: asked for `gold` or `best`; the request has `a\\u{1b}`

to silver (class silver, raises sessions): matches
  yes  host: asked for *.example.org; the request has www.example.org

2 rules more are not looked at

class silver: by to silver; a session begins";
    assert_eq!(explanation.to_string(), expected);
    let json = explanation.to_json();
    assert_eq!(json["class"], "silver");
    assert_eq!(json["rule"], "to silver");
    assert_eq!(json["rules"][0]["conditions"][1]["holds"], false);
    assert_eq!(json["rules"].as_array().map(Vec::len), Some(2));
    assert_eq!(json["session"]["effect"], "begun");
    let last_line = |sent: &Sent| {
        classifier.explain(sent.facts()).to_string().lines().last().map(str::to_owned).unwrap_or_default()
    };
    let silver = cookie(&verdict(&classifier, &get("/")));
    assert_eq!(last_line(&get("/").with("cookie", &silver)), "class silver: the session keeps it");
    let ageing = get("/").with("cookie", &silver).after(Duration::from_secs(600));
    assert_eq!(last_line(&ageing), "class silver: the session keeps it, and is renewed");
    let off = super::tests::classifier(&ClassifierConfig { session: None, rules: Vec::new(), ..classes.clone() });
    let text = off.explain(get("/..").facts()).to_string();
    assert!(
        text.contains("it cannot be decoded") && text.ends_with("class rest: no rule matches, so it is the default"),
        "{text}"
    );
    let shop = super::tests::classifier(&shop());
    let silver = cookie(&verdict(&shop, &get("/silver")));
    let raised = shop.explain(get("/gold").with("cookie", &silver).facts()).to_string();
    assert!(raised.ends_with("class gold: by to gold; it raises the session from silver"), "{raised}");
}

#[test]
fn an_explanation_tells_no_secrets() {
    let files = files();
    let secrets = ValueMatch::OneOf(words(&["hidden asked"]));
    let classes = ClassifierConfig {
        users: Some(files.path().join("users")),
        keys: Some(KeysConfig {
            file: files.path().join("keys"),
            header: Some(HeaderName::from_static("x-key")),
            query: Some("key".to_owned()),
        }),
        ..shop()
    };
    let conditions = vec![
        prefix("/nowhere"),
        Condition::Header(header::AUTHORIZATION, secrets.clone()),
        Condition::Header(header::COOKIE, secrets.clone()),
        Condition::Header(HeaderName::from_static("x-key"), secrets.clone()),
        Condition::Query("key".to_owned(), secrets.clone()),
        Condition::Cookie("serpent".to_owned(), secrets),
        Condition::User(Vec::new()),
        Condition::Key(Vec::new()),
        Condition::Certificate(Vec::new()),
        Condition::Client(vec!["10.0.0.0/8".parse().expect("a network")]),
        Condition::Destination(vec!["0.0.0.0:443".parse().expect("an address")]),
        Condition::Method(vec![Method::PUT]),
        Condition::Extension(words(&["php"])),
    ];
    let classifier = classifier(&ClassifierConfig { rules: vec![rule(GOLD, conditions)], ..classes });
    let mut sent = get("/x?key=hidden").basic("bea:secret").with("cookie", "serpent=hidden").with("x-key", "key 1");
    sent.certificate = Some(vec!["shop.example".into()]);
    let explanation = classifier.explain(sent.facts());
    let all = format!("{explanation}\n{}\n{explanation:?}\n{classifier:?}", explanation.to_json());
    for secret in ["hidden\"", "hidden`", "secret\"", "YmVh", "key 1", "$2y$", "=hidden"] {
        assert!(
            !explanation.to_string().contains(secret) && !explanation.to_json().to_string().contains(secret),
            "{secret}: {all}"
        );
    }
    assert!(!explanation.to_string().contains("hidden"), "{explanation}");
    let text = explanation.to_string();
    assert!(text.contains("user: asked for any user; the request has bea, with the right password"), "{text}");
    assert!(text.contains("key: asked for any level; the request has one of level gold"), "{text}");
    assert!(text.contains("certificate: asked for any that is trusted; the request has shop.example"), "{text}");
    let wrong = get("/x").basic("bea:other");
    let text = classifier.explain(wrong.facts()).to_string();
    assert!(text.contains("the request has bea, with a wrong password or unknown"), "{text}");
    assert!(!format!("{classifier:?}").contains("5en6"), "nor does the classifier");
}

/// A classifier that looks at everything that a request can have.
fn of_everything(files: &TempDir) -> Classifier {
    let regex = || ValueMatch::Regex(Regex::new("x.*y").expect("an expression"));
    let nets = vec!["10.0.0.0/8".parse().expect("a network"), "::/1".parse().expect("a network")];
    let conditions = vec![
        Condition::Host(words(&["a", "*.b"])),
        Condition::Path(vec![
            PathPattern::Prefix("/a".to_owned()),
            PathPattern::Glob(globset::Glob::new("/x*/y").expect("a glob").compile_matcher()),
            PathPattern::Regex(Regex::new("y$").expect("an expression")),
        ]),
        Condition::Extension(words(&["php", ""])),
        Condition::Query("a".to_owned(), regex()),
        Condition::Header(header::REFERER, regex()),
        Condition::Cookie("a".to_owned(), regex()),
        Condition::Client(nets.clone()),
        Condition::Key(Vec::new()),
        Condition::Certificate(words(&["a"])),
    ];
    let mut rules: Vec<_> = conditions.into_iter().map(|condition| raising(SILVER, vec![condition])).collect();
    rules.insert(0, rule(BRONZE, vec![Condition::User(Vec::new())]));
    classifier(&ClassifierConfig {
        users: Some(files.path().join("users")),
        keys: Some(KeysConfig {
            file: files.path().join("keys"),
            header: Some(header::AUTHORIZATION),
            query: Some("key".to_owned()),
        }),
        session: Some(session(None)),
        trusted_proxies: nets,
        ..classes(rules)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn any_request_has_a_class_and_the_explanation_agrees(
        target in prop_oneof!["/\\PC{0,30}", "/[a-z%2eF.?&=+/]{0,40}", "\\PC{0,20}"],
        host in "\\PC{0,12}",
        fields in prop::collection::vec((
            prop_oneof![
                Just("cookie"), Just("authorization"), Just("x-forwarded-for"), Just("forwarded"), Just("referer"),
            ],
            prop_oneof![
                prop::collection::vec(any::<u8>(), 0..60),
                "(serpent=v1[.][A-Za-z.]{0,8}[0-9]{0,22}[.][A-Za-z_-]{0,44}|Basic [A-Za-z0-9=]{0,20}|for=[0-9.:\"]{0,9}|a=x\u{e9}y;)"
                    .prop_map(String::into_bytes),
            ],
        ), 0..6),
        forwarded in any::<bool>(),
        peer in any::<std::net::IpAddr>(),
    ) {
        let files = files();
        let mut classifier = of_everything(&files);
        classifier.config.forwarded = if forwarded { ForwardedField::Forwarded } else { ForwardedField::XForwardedFor };
        let mut sent = get("/");
        if let Ok(uri) = target.parse() {
            sent.parts.uri = uri;
        }
        sent.host = host;
        sent.peer = SocketAddr::new(peer, 1);
        for (name, value) in fields {
            if let Ok(value) = HeaderValue::from_bytes(&value) {
                sent.parts.headers.append(HeaderName::from_static(name), value);
            }
        }
        let found = verdict(&classifier, &sent);
        prop_assert!([SILVER, BRONZE, REST].contains(&found.class));
    }
}
