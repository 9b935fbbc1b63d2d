//! Classes that are added, changed, deleted and restored. All references to classes follow.

use http::StatusCode;
use scheduler::class::ClassId;
use serde_json::{Map, Value};

use super::{
    problem::{Done, Problem},
    settings::{self, Wrong},
};
use crate::config::{ClassConfig, Classes, Rule};

/// Most classes. Each class costs a little at every decision.
const MAX_CLASSES: usize = 256;
const MAX_NAME_BYTES: usize = 64;

/// The number of a class.
pub(super) fn find(classes: &Classes, name: &str) -> Done<usize> {
    let at = classes.classes.iter().position(|class| class.name == name);
    at.ok_or_else(|| Problem::new(StatusCode::NOT_FOUND, format!("there is no class {name:?}")))
}

/// Adds a class as the last one, unless it is given a place.
pub(super) fn create_class(classes: &mut Classes, name: &str, patch: &Map<String, Value>) -> Done<()> {
    let sound = name.len() <= MAX_NAME_BYTES
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.chars().all(|char| char.is_ascii_alphanumeric() || "-_.".contains(char));
    if !sound {
        let message =
            format!("must be at most {MAX_NAME_BYTES} letters, digits, and - _ . after the first one, not {name:?}");
        return Err(Wrong::new("name", message).into());
    }
    if classes.classes.len() >= MAX_CLASSES {
        return Err(Wrong::new("", format!("there may be {MAX_CLASSES} classes at most")).into());
    }
    classes.classes.push(ClassConfig::new(name));
    edit_class(classes, name, None, patch)
}

/// Changes a class, starting from `from` if given, else from its state in force.
pub(super) fn edit_class(
    classes: &mut Classes,
    name: &str,
    from: Option<ClassConfig>,
    patch: &Map<String, Value>,
) -> Done<()> {
    let at = find(classes, name)?;
    let mut class = match from {
        // Settings that the API cannot change stay.
        Some(from) => {
            let before = &classes.classes[at];
            let mut class = ClassConfig { priority: before.priority, ..from };
            class.refusal.page.clone_from(&before.refusal.page);
            class
        }
        None => classes.classes[at].clone(),
    };
    let position = settings::change_class(&mut class, patch)?;
    classes.classes[at] = class;
    if let Some(to) = position {
        if to >= classes.classes.len() {
            let last = classes.classes.len() - 1;
            return Err(Wrong::new("position", format!("must be from 0 to {last}, not {to}")).into());
        }
        let class = classes.classes.remove(at);
        classes.classes.insert(to, class);
        renumber(classes, |old| match old {
            old if old == at => to,
            old => {
                let without = if old > at { old - 1 } else { old };
                if without >= to { without + 1 } else { without }
            }
        });
    }
    Ok(())
}

/// Deletes a class. Rules of it lead to the default class.
pub(super) fn delete_class(classes: &mut Classes, name: &str) -> Done<()> {
    let at = find(classes, name)?;
    let default = classes.default.index();
    if at == default {
        let message = format!("{name} is the class of requests that no rule matches, and cannot be deleted");
        return Err(Problem::new(StatusCode::CONFLICT, message));
    }
    classes.classes.remove(at);
    let below = |old: usize| if old > at { old - 1 } else { old };
    renumber(classes, |old| if old == at { below(default) } else { below(old) });
    Ok(())
}

/// A deleted class, kept so that it can be had again.
#[derive(Clone, Debug)]
pub(crate) struct Deleted {
    pub class: ClassConfig,
    pub position: usize,
    /// The rules that led to it.
    pub rules: Vec<usize>,
}

impl Deleted {
    /// The class of this number, which is about to be deleted.
    pub fn of(classes: &Classes, position: usize) -> Self {
        let led = |(at, rule): (usize, &Rule)| (rule.class.index() == position).then_some(at);
        let rules = classes.rules.iter().enumerate().filter_map(led).collect();
        Self { class: classes.classes[position].clone(), position, rules }
    }

    /// Has the class again, in its place and with its rules.
    pub(super) fn restore(&self, classes: &mut Classes) -> Done<()> {
        let name = &self.class.name;
        if find(classes, name).is_ok() {
            let message = format!("there is a class {name:?} again: it was created since");
            return Err(Problem::new(StatusCode::CONFLICT, message));
        }
        if classes.classes.len() >= MAX_CLASSES {
            return Err(Wrong::new("", format!("there may be {MAX_CLASSES} classes at most")).into());
        }
        let at = self.position.min(classes.classes.len());
        classes.classes.insert(at, self.class.clone());
        renumber(classes, |old| if old >= at { old + 1 } else { old });
        for &rule in &self.rules {
            classes.rules[rule].class = ClassId(at as u16);
        }
        Ok(())
    }
}

/// Adapts references to classes after their numbers have changed.
fn renumber(classes: &mut Classes, now: impl Fn(usize) -> usize) {
    let now = |class: &mut ClassId| *class = ClassId(now(class.index()) as u16);
    now(&mut classes.default);
    classes.rules.iter_mut().for_each(|rule| now(&mut rule.class));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn classes(names: &[&str], default: u16, rules: &[u16]) -> Classes {
        let rule = |&class: &u16| Rule {
            name: format!("rule of {class}"),
            class: ClassId(class),
            resource: None,
            conditions: Vec::new(),
            raises_session: false,
        };
        Classes {
            classes: names.iter().map(|name| ClassConfig::new(*name)).collect(),
            default: ClassId(default),
            rules: rules.iter().map(rule).collect(),
            ..Classes::one()
        }
    }

    /// The classes' names in order, the default's name, and those of the rules' classes.
    fn told(classes: &Classes) -> (String, String, String) {
        let name = |class: ClassId| classes.classes[class.index()].name.clone();
        let all = classes.classes.iter().map(|class| class.name.as_str()).collect();
        (all, name(classes.default), classes.rules.iter().map(|rule| name(rule.class)).collect())
    }

    #[test]
    fn rules_and_default_follow_their_classes_wherever_those_go() {
        for from in 0..4 {
            for to in 0..4 {
                let mut classes = classes(&["a", "b", "c", "d"], 2, &[3, 0, 1, 2]);
                let patch = json!({ "position": to });
                let name = ["a", "b", "c", "d"][from];
                assert!(edit_class(&mut classes, name, None, patch.as_object().unwrap()).is_ok());
                let (all, default, rules) = told(&classes);
                assert_eq!(all.find(name), Some(to), "{from} to {to}: {all}");
                assert_eq!((default.as_str(), rules.as_str()), ("c", "dabc"), "{from} to {to}");
                assert_eq!(all.replace(name, ""), "abcd".replace(name, ""));
            }
        }
    }

    #[test]
    fn rules_of_a_class_that_is_gone_lead_to_the_default() {
        let mut classes = classes(&["a", "b", "c", "d"], 2, &[3, 0, 1, 2]);
        assert!(delete_class(&mut classes, "a").is_ok());
        assert_eq!(told(&classes), ("bcd".into(), "c".into(), "dcbc".into()));
        assert!(delete_class(&mut classes, "d").is_ok());
        assert_eq!(told(&classes), ("bc".into(), "c".into(), "ccbc".into()));
        let Err(problem) = delete_class(&mut classes, "c") else { panic!("the default is gone") };
        assert_eq!(problem.status, StatusCode::CONFLICT);
    }

    #[test]
    fn a_restored_class_has_its_place_and_its_rules_again() {
        let mut classes = classes(&["a", "b", "c", "d"], 2, &[3, 0, 1, 0]);
        let before = told(&classes);
        for name in ["a", "d", "b"] {
            let deleted = Deleted::of(&classes, find(&classes, name).ok().unwrap());
            assert!(delete_class(&mut classes, name).is_ok());
            assert_ne!(told(&classes), before);
            assert!(deleted.restore(&mut classes).is_ok());
            assert_eq!(told(&classes), before, "{name}");
            let Err(problem) = deleted.restore(&mut classes) else { panic!("it is there twice") };
            assert_eq!(problem.status, StatusCode::CONFLICT);
        }
        let last = Deleted::of(&classes, 3);
        assert!(["a", "b", "d"].iter().all(|name| delete_class(&mut classes, name).is_ok()));
        assert!(last.restore(&mut classes).is_ok());
        assert_eq!(told(&classes), ("cd".into(), "c".into(), "dccc".into()), "there are fewer places than there were");
    }

    #[test]
    fn a_new_class_is_the_last_unless_it_is_given_a_place() {
        let mut all = classes(&["a", "b"], 1, &[0]);
        assert!(create_class(&mut all, "c", &Map::new()).is_ok());
        assert!(create_class(&mut all, "d", json!({ "position": 0, "weight": 7 }).as_object().unwrap()).is_ok());
        assert_eq!(told(&all), ("dabc".into(), "b".into(), "a".into()));
        assert_eq!(all.classes[0].given.weight, 7);
        for bad in ["", "-a", "a b", "\u{e4}", "a/b", &"a".repeat(65)] {
            assert!(create_class(&mut all, bad, &Map::new()).is_err(), "{bad}");
        }
        let patch = json!({ "position": 4 });
        let Err(problem) = edit_class(&mut all, "a", None, patch.as_object().unwrap()) else {
            panic!("beyond the end")
        };
        assert_eq!(problem.wrong.field, "position");
    }
}
