//! Fuzz target: changes through the admin API.

use std::collections::BTreeSet;

use http::Method;
use scheduler::class::ClassId;
use serde_json::Value;

use super::{api, settings};
use crate::{
    admission::Admission,
    config::{Classes, Rule},
};

/// Applies lines `METHOD PATH BODY` one after the other. After each change the classes are valid. Their JSON
/// form can be sent back and changes nothing.
pub fn admin(bytes: &[u8]) {
    let mut classes = Classes::one();
    classes.rules = vec![Rule {
        name: "rule 1".to_owned(),
        class: ClassId(0),
        resource: None,
        conditions: Vec::new(),
        raises_session: false,
    }];
    for line in bytes.split(|byte| *byte == b'\n').take(8) {
        let mut words = line.splitn(3, |byte| *byte == b' ');
        let method = words.next().and_then(|word| Method::from_bytes(word).ok());
        let path = words.next().and_then(|word| std::str::from_utf8(word).ok());
        let (Some(method), Some(path)) = (method, path) else { continue };
        match api::asked_for(&classes, &method, path, words.next().unwrap_or_default()) {
            Ok(changed) => classes = changed,
            Err(status) => assert!(status.is_client_error(), "{status}"),
        }
        sound(&classes);
        same_when_sent_back(&classes);
    }
}

fn sound(classes: &Classes) {
    let all = &classes.classes;
    assert!(classes.default.index() < all.len());
    assert!(classes.rules.iter().all(|rule| rule.class.index() < all.len()));
    assert_eq!(all.iter().map(|class| &class.name).collect::<BTreeSet<_>>().len(), all.len());
    Admission::check(classes).expect("the admission takes them");
}

fn same_when_sent_back(classes: &Classes) {
    for class in &classes.classes {
        let shown = Value::Object(settings::class(class));
        let path = format!("/api/classes/{}", class.name);
        let sent = |method: Method| {
            let sent = api::asked_for(classes, &method, &path, shown.to_string().as_bytes());
            let sent = sent.unwrap_or_else(|status| panic!("{status}: {shown}"));
            let class = sent.classes.iter().find(|it| it.name == class.name).expect("it is there");
            assert_eq!(Value::Object(settings::class(class)), shown);
        };
        sent(Method::PATCH);
        sent(Method::PUT);
    }
    let shown = settings::admission(&classes.admission);
    let sent = api::asked_for(classes, &Method::PATCH, "/api/admission", shown.to_string().as_bytes());
    let sent = sent.unwrap_or_else(|status| panic!("{status}: {shown}"));
    assert_eq!(settings::admission(&sent.admission), shown);
}
