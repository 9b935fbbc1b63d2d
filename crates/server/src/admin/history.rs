//! Changes at the admin address as they are kept, and how each is taken back.

use http::StatusCode;
use recent::changes::{Change, Difference, back, changed_since, differences};
use serde_json::{Map, Value};

use super::{
    edits::{self, Deleted},
    problem::{Done, Problem},
    settings,
};
use crate::{admission::Admission, config::Classes};

/// The facts that the undoing of a change needs.
#[derive(Clone, Debug)]
pub(crate) struct Undo {
    pub target: Target,
    /// How often the configuration had been loaded anew by then. A load takes all changes of classes back.
    pub loads: u64,
}

/// The thing that a change has changed.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    Class(String),
    Created(String),
    Deleted(Box<Deleted>),
    Admission,
    Server { upstream: String, server: String },
    Site(String),
}

/// A change that is made, or that would be.
pub(super) struct Recorded {
    pub what: String,
    pub differences: Vec<Difference>,
    pub target: Target,
}

impl Target {
    /// The class that it is about; `None`: admission, a server or a site.
    pub fn class(&self) -> Option<&str> {
        match self {
            Self::Class(name) | Self::Created(name) => Some(name),
            Self::Deleted(deleted) => Some(&deleted.class.name),
            Self::Admission | Self::Server { .. } | Self::Site(_) => None,
        }
    }
}

/// The change of a class, or of admission. `None`: nothing is different.
pub(super) fn of_classes(before: &Classes, after: &Classes, class: Option<&str>) -> Option<Recorded> {
    let Some(name) = class else {
        let differences = differences(&admission(before), &admission(after));
        let what = "how slots are shared".to_owned();
        return (!differences.is_empty()).then_some(Recorded { what, differences, target: Target::Admission });
    };
    let (old, new) = (settings_of(before, name), settings_of(after, name));
    let target = match (&old, &new) {
        (Some(_), Some(_)) => Target::Class(name.to_owned()),
        (None, _) => Target::Created(name.to_owned()),
        (_, None) => Target::Deleted(Box::new(Deleted::of(before, edits::find(before, name).ok()?))),
    };
    let what = match target {
        Target::Created(_) => format!("new class {name}"),
        Target::Deleted(_) => format!("class {name}, deleted"),
        _ => format!("class {name}"),
    };
    let differences = differences(&old.unwrap_or_default(), &new.unwrap_or_default());
    (!differences.is_empty()).then_some(Recorded { what, differences, target })
}

/// The change of a server. `None`: nothing is different.
pub(super) fn of_server(
    before: &Map<String, Value>,
    after: &Map<String, Value>,
    upstream: &str,
    server: &str,
) -> Option<Recorded> {
    let differences = differences(before, after);
    let target = Target::Server { upstream: upstream.to_owned(), server: server.to_owned() };
    let what = format!("server {server} of {upstream}");
    (!differences.is_empty()).then_some(Recorded { what, differences, target })
}

/// The change of a site. `None`: nothing is different.
pub(super) fn of_site(before: &Map<String, Value>, after: &Map<String, Value>, site: &str) -> Option<Recorded> {
    let differences = differences(before, after);
    let (what, target) = (format!("site {site}"), Target::Site(site.to_owned()));
    (!differences.is_empty()).then_some(Recorded { what, differences, target })
}

/// The classes without a change that was made to them.
pub(super) fn undone(classes: &Classes, change: &Change<Undo>) -> Done<Classes> {
    let mut classes = classes.clone();
    match &change.undo.target {
        Target::Class(name) => {
            edits::find(&classes, name)?;
            is_still(change, &settings_of(&classes, name).unwrap_or_default())?;
            edits::edit_class(&mut classes, name, None, &back(&change.differences))?;
        }
        Target::Created(name) => {
            edits::find(&classes, name)?;
            is_still(change, &settings_of(&classes, name).unwrap_or_default())?;
            edits::delete_class(&mut classes, name)?;
        }
        Target::Deleted(deleted) => deleted.restore(&mut classes)?,
        Target::Admission => {
            is_still(change, &admission(&classes))?;
            settings::change_admission(&mut classes.admission, &back(&change.differences))?;
        }
        Target::Server { .. } | Target::Site(_) => unreachable!("servers and sites are no part of the classes"),
    }
    Admission::check(&classes).map_err(|error| settings::contradiction(error, &classes))?;
    Ok(classes)
}

/// Checks that all settings have the values that the change gave them.
pub(super) fn is_still(change: &Change<Undo>, now: &Map<String, Value>) -> Done<()> {
    let Some((difference, now)) = changed_since(&change.differences, now) else { return Ok(()) };
    let shown = |value: Option<&Value>| value.map_or_else(|| "not there".to_owned(), Value::to_string);
    let message = format!(
        "{} of {} is {} by now, and not {}: it has been changed since, so nothing is taken back",
        difference.path.join("."),
        change.what,
        shown(now.as_ref()),
        shown(difference.new.as_ref()),
    );
    Err(Problem::new(StatusCode::CONFLICT, message))
}

/// The settings of a class with its place, if there is such a class.
fn settings_of(classes: &Classes, name: &str) -> Option<Map<String, Value>> {
    let at = edits::find(classes, name).ok()?;
    let mut settings = settings::class(&classes.classes[at]);
    settings.insert("position".to_owned(), at.into());
    Some(settings)
}

fn admission(classes: &Classes) -> Map<String, Value> {
    match settings::admission(&classes.admission) {
        Value::Object(settings) => settings,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn made(before: &Classes, after: &Classes, class: Option<&str>) -> Change<Undo> {
        let Recorded { what, differences, target } = of_classes(before, after, class).expect("a difference");
        Change { id: 1, at_s: 0.0, what, differences, undone: false, undo: Undo { target, loads: 0 } }
    }

    fn edited(classes: &Classes, name: &str, patch: Value) -> Classes {
        let mut classes = classes.clone();
        let patch = patch.as_object().unwrap();
        let done = match edits::find(&classes, name) {
            Ok(_) => edits::edit_class(&mut classes, name, None, patch),
            Err(_) => edits::create_class(&mut classes, name, patch),
        };
        assert!(done.is_ok(), "{patch:?}");
        classes
    }

    fn all(classes: &Classes) -> Vec<Option<Map<String, Value>>> {
        let classes_shown = classes.classes.iter().map(|class| settings_of(classes, &class.name));
        classes_shown.chain([Some(admission(classes))]).collect()
    }

    #[test]
    fn every_change_can_be_taken_back_until_it_is_overwritten() {
        let first = edited(&edited(&Classes::one(), "gold", json!({})), "silver", json!({ "weight": 2 }));
        let objective = json!({ "percentile": { "percent": 95, "s": 1 }, "error_rate": 0.1 });
        for patch in [
            json!({ "weight": 7 }),
            json!({ "slots": 3, "reserved": 1 }),
            json!({ "position": 0 }),
            json!({ "order": "lifo-under-overload", "overload_s": 0.5 }),
            json!({ "objective": objective, "refusal": { "status": 429, "retry_after_s": null } }),
            json!({ "deadline_s": 0.25, "max_wait_s": null, "queue": 0 }),
        ] {
            let after = edited(&first, "silver", patch.clone());
            let change = made(&first, &after, Some("silver"));
            let again = undone(&after, &change).unwrap_or_else(|_| panic!("{patch}"));
            assert_eq!(all(&again), all(&first), "{patch}");
            let Err(problem) = undone(&again, &change) else { panic!("taken back twice: {patch}") };
            assert_eq!(problem.status, StatusCode::CONFLICT);
            assert!(problem.wrong.message.contains("of class silver is"), "{}", problem.wrong.message);
        }
        let mut after = first.clone();
        settings::change_admission(&mut after.admission, json!({ "enabled": true, "total": 9 }).as_object().unwrap())
            .unwrap();
        let change = made(&first, &after, None);
        assert_eq!(all(&undone(&after, &change).ok().unwrap()), all(&first));
    }

    #[test]
    fn a_new_class_goes_and_a_deleted_one_comes_back() {
        let first = edited(&Classes::one(), "gold", json!({ "weight": 3, "position": 0 }));
        let with = edited(&first, "silver", json!({}));
        let created = made(&first, &with, Some("silver"));
        assert_eq!(created.what, "new class silver");
        assert_eq!(all(&undone(&with, &created).ok().unwrap()), all(&first));
        let other = edited(&with, "silver", json!({ "weight": 5 }));
        let Err(problem) = undone(&other, &created) else { panic!("what was changed since is gone") };
        assert!(problem.wrong.message.contains("weight of new class silver is 5 by now, and not 1"));

        let mut without = first.clone();
        assert!(edits::delete_class(&mut without, "gold").is_ok());
        let deleted = made(&first, &without, Some("gold"));
        assert_eq!(deleted.what, "class gold, deleted");
        assert_eq!(all(&undone(&without, &deleted).ok().unwrap()), all(&first));
    }

    #[test]
    fn what_changes_nothing_is_no_change() {
        let classes = Classes::one();
        let name = classes.classes[0].name.clone();
        assert!(of_classes(&classes, &edited(&classes, &name, json!({ "weight": 1 })), Some(&name)).is_none());
        assert!(of_classes(&classes, &classes, None).is_none());
    }
}
