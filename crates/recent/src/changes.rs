//! Changes of settings while a server runs: what they were, what they became, and how each is taken back.

use std::collections::VecDeque;

use serde::Serialize;
use serde_json::{Map, Value};

/// So many are kept.
const MOST: usize = 50;

/// A setting that a change has given another value.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// The names that lead to it, from the outermost object in.
    pub path: Vec<String>,
    /// Its value before; `None`: there was none.
    pub old: Option<Value>,
    /// Its value after; `None`: there is none.
    pub new: Option<Value>,
}

/// The settings that differ between two objects. Objects that both have are compared by their settings.
pub fn differences(old: &Map<String, Value>, new: &Map<String, Value>) -> Vec<Difference> {
    let mut found = Vec::new();
    compare(&mut Vec::new(), old, new, &mut found);
    found
}

fn compare(path: &mut Vec<String>, old: &Map<String, Value>, new: &Map<String, Value>, found: &mut Vec<Difference>) {
    let added = new.keys().filter(|name| !old.contains_key(*name));
    for name in old.keys().chain(added) {
        path.push(name.clone());
        match (old.get(name), new.get(name)) {
            (Some(Value::Object(old)), Some(Value::Object(new))) => compare(path, old, new, found),
            (old, new) if old != new => {
                found.push(Difference { path: path.clone(), old: old.cloned(), new: new.cloned() });
            }
            _ => {}
        }
        path.pop();
    }
}

/// The merge patch (RFC 7396) that takes these differences back.
pub fn back(differences: &[Difference]) -> Map<String, Value> {
    let mut patch = Map::new();
    for Difference { path, old, .. } in differences {
        let Some((last, outer)) = path.split_last() else { continue };
        let mut at = &mut patch;
        for name in outer {
            let inner = at.entry(name.clone()).or_insert_with(|| Value::Object(Map::new()));
            at = inner.as_object_mut().expect("only objects are entered");
        }
        at.insert(last.clone(), old.clone().unwrap_or(Value::Null));
    }
    patch
}

/// The first of these differences whose setting has another value by now, and that value.
pub fn changed_since<'a>(
    differences: &'a [Difference],
    now: &Map<String, Value>,
) -> Option<(&'a Difference, Option<Value>)> {
    differences.iter().find_map(|difference| {
        let (first, rest) = difference.path.split_first()?;
        let value = rest.iter().try_fold(now.get(first)?, |at, name| at.get(name));
        (value != difference.new.as_ref()).then(|| (difference, value.cloned()))
    })
}

/// A change that was made.
#[derive(Clone, Debug, Serialize)]
pub struct Change<U> {
    /// Counts from 1.
    pub id: u64,
    /// When it was made, in seconds since 1970.
    pub at_s: f64,
    /// The change, in words.
    pub what: String,
    /// The settings with other values; empty for a thing that is new or gone as a whole.
    pub differences: Vec<Difference>,
    /// Whether it was taken back.
    pub undone: bool,
    /// The data that its undoing needs.
    #[serde(skip)]
    pub undo: U,
}

/// The last changes, the newest last.
#[derive(Clone, Debug)]
pub struct Changes<U> {
    list: VecDeque<Change<U>>,
    next: u64,
}

impl<U> Default for Changes<U> {
    fn default() -> Self {
        Self { list: VecDeque::new(), next: 1 }
    }
}

impl<U> Changes<U> {
    /// A change was made. The oldest is forgotten if there are too many.
    pub fn record(&mut self, at_s: f64, what: String, differences: Vec<Difference>, undo: U) {
        if self.list.len() == MOST {
            self.list.pop_front();
        }
        self.list.push_back(Change { id: self.next, at_s, what, differences, undone: false, undo });
        self.next += 1;
    }

    /// The change of this number, if it is not forgotten.
    pub fn get(&self, id: u64) -> Option<&Change<U>> {
        self.list.iter().find(|it| it.id == id)
    }

    /// The change of this number was taken back.
    pub fn mark_undone(&mut self, id: u64) {
        self.list.iter_mut().filter(|it| it.id == id).for_each(|it| it.undone = true);
    }

    /// All that are kept, the newest first.
    pub fn newest_first(&self) -> impl Iterator<Item = &Change<U>> {
        self.list.iter().rev()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn a_difference_names_its_place_and_both_values() {
        let old = map(json!({ "weight": 1, "same": true, "objective": { "mean_s": null, "window_s": 60 } }));
        let new = map(json!({ "weight": 3, "same": true, "objective": { "mean_s": 0.5, "window_s": 60 } }));
        let found = differences(&old, &new);
        let mut told: Vec<_> = found.iter().map(|it| (it.path.join("."), it.old.clone(), it.new.clone())).collect();
        told.sort_by(|one, other| one.0.cmp(&other.0));
        assert_eq!(
            told,
            [
                ("objective.mean_s".to_owned(), Some(Value::Null), Some(json!(0.5))),
                ("weight".to_owned(), Some(json!(1)), Some(json!(3))),
            ]
        );
        assert_eq!(Value::Object(back(&found)), json!({ "weight": 1, "objective": { "mean_s": null } }));
        assert!(changed_since(&found, &new).is_none());
        let later = map(json!({ "weight": 4, "objective": { "mean_s": 0.5 } }));
        let (first, now) = changed_since(&found, &later).expect("the weight is another one");
        assert_eq!((first.path.as_slice(), now), (&["weight".to_owned()][..], Some(json!(4))));
    }

    #[test]
    fn the_oldest_are_forgotten_and_numbers_are_not_used_twice() {
        let mut changes = Changes::default();
        for at in 0..MOST + 5 {
            changes.record(at as f64, format!("class {at}"), Vec::new(), at);
        }
        assert_eq!(changes.newest_first().count(), MOST);
        assert!(changes.get(5).is_none() && changes.get(6).is_some_and(|it| it.undo == 5));
        changes.mark_undone(6);
        assert_eq!(changes.newest_first().filter(|it| it.undone).map(|it| it.id).collect::<Vec<_>>(), [6]);
        assert_eq!(changes.newest_first().next().map(|it| it.id), Some(MOST as u64 + 5));
    }

    /// Objects of settings as a server has them: the same names, some of them objects or null.
    fn settings() -> impl Strategy<Value = Map<String, Value>> {
        let number = prop_oneof![Just(Value::Null), (0..3u32).prop_map(Value::from)];
        let inner = prop_oneof![Just(Value::Null), number.clone().prop_map(|it| json!({ "x": it, "y": 1 }))];
        (number.clone(), number, inner).prop_map(|(a, b, c)| map(json!({ "a": a, "b": b, "c": c })))
    }

    fn merge(into: &mut Map<String, Value>, patch: &Map<String, Value>) {
        for (name, value) in patch {
            match (into.get_mut(name), value) {
                (Some(Value::Object(inner)), Value::Object(patch)) => merge(inner, patch),
                _ => {
                    into.insert(name.clone(), value.clone());
                }
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_taken_back_is_as_it_was(old in settings(), new in settings()) {
            let found = differences(&old, &new);
            prop_assert_eq!(found.is_empty(), old == new);
            prop_assert!(changed_since(&found, &new).is_none());
            let mut now = new;
            merge(&mut now, &back(&found));
            prop_assert_eq!(&now, &old);
        }
    }
}
