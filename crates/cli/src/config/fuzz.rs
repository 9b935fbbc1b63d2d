//! Fuzz target: the configuration file.

use std::path::PathBuf;

use server::admission::Admission;

use super::{Problems, problems::Severity, understand};
use crate::{args::ServeArgs, check};

/// A file, read as `serpent check` does but for the files that it names. What is wrong has a place in the text and can be shown;
/// what is not wrong can be said in other words, and the server takes it.
pub fn configuration(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let source = (PathBuf::from("/nowhere/serpent.toml"), text.to_owned());
    let flags = ServeArgs::default();
    let (resolved, problems) = understand(Some(&source), &flags);
    for problem in &problems {
        assert!(!problem.message.is_empty());
        let places = problem.span.iter().chain(problem.also.iter().map(|(place, _)| place));
        for place in places {
            assert!(text.get(place.clone()).is_some(), "{place:?} is no place in the text: {problem:?}");
        }
    }
    let usable = problems.iter().all(|problem| problem.severity == Severity::Warning);
    let shown = Problems::new(Some(source.clone()), problems.clone()).to_string();
    assert_eq!(shown.is_empty(), problems.is_empty());
    if usable {
        Admission::check(&resolved.config.classes).expect("what was resolved is sound");
        assert!(!check::summary(&resolved.config).is_empty());
    }
    let (again, problems_again) = understand(Some(&source), &flags);
    assert_eq!(problems_again, problems);
    assert_eq!(format!("{:?}", again.config), format!("{:?}", resolved.config), "the same file says the same");
}
