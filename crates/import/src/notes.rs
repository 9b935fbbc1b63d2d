//! The notes of a translator: directives that it left out, and why.

use std::collections::BTreeSet;

use crate::{report::Left, syntax::Directive};

/// Directives that a translation lacks.
#[derive(Default)]
pub struct Notes {
    /// Without a counterpart, or with another meaning.
    pub left: Vec<Left>,
    /// Names of directives that Serpent does not need.
    pub needless: BTreeSet<String>,
}

impl Notes {
    /// Names a directive that is left out, or that means something else here.
    pub fn leave(&mut self, directive: &Directive, reason: impl Into<String>) {
        self.add(directive, reason.into(), false);
    }

    /// Names a directive that guards what is closed without it.
    pub fn close(&mut self, directive: &Directive) {
        self.add(directive, "CLOSED: it guards what would be open without it".to_owned(), true);
    }

    fn add(&mut self, directive: &Directive, reason: String, closes: bool) {
        let left = Left { place: directive.place.clone(), directive: directive.to_string(), reason, closes };
        if !self.left.contains(&left) {
            self.left.push(left);
        }
    }

    /// Names a directive that nothing translates. It is one of the `needless`, or `reason` says why.
    pub fn other(&mut self, directive: &Directive, needless: &[&str], reason: impl Fn(&str) -> &'static str) {
        match directive.name.as_str() {
            name if needless.contains(&name) => self.skip(directive),
            name => self.leave(directive, reason(name)),
        }
    }

    /// Lists a directive by its name alone, as Serpent does not need it.
    pub fn skip(&mut self, directive: &Directive) {
        self.needless.insert(directive.name.clone());
    }

    /// The comment at the top of a translated file.
    pub fn header(&self, server: &str) -> Vec<String> {
        let mut lines = vec![
            format!("Translated from the configuration of {server}. Check it with `serpent check FILE`."),
            "The uplink is scheduled best if its rate is given: `uplink.rate`.".to_owned(),
        ];
        if !self.left.is_empty() {
            lines.extend([String::new(), "Not translated, or different here:".to_owned()]);
            lines.extend(self.left.iter().map(|one| format!("- {one}")));
        }
        if !self.needless.is_empty() {
            let names: Vec<&str> = self.needless.iter().map(String::as_str).collect();
            lines.extend([String::new(), format!("Not needed here: {}.", names.join(", "))]);
        }
        lines
    }
}
