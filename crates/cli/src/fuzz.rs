//! The functions that the fuzz targets run ([`fuzz/`](../../../../fuzz)). Each takes arbitrary bytes. They
//! are in this crate because they use private items. An ordinary test checks that they hold for the seeds.

use std::path::PathBuf;

use server::admission::Admission;

use crate::{
    check,
    config::{Overrides, Problems, Severity, understand},
};

/// Reads a file as `serpent check` does, except for the files that it names. Every problem has a message and
/// a place in the text. The server accepts a configuration without errors. Reading the same text twice gives
/// the same result.
pub fn configuration(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let source = (PathBuf::from("/nowhere/serpent.toml"), text.to_owned());
    let flags = Overrides::default();
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

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    #[test]
    fn every_seed_passes_its_target() {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let seeds = ["fuzz/seeds/configuration", "examples", "examples/two-tier"].map(|folder| repository.join(folder));
        for folder in seeds {
            let files = fs::read_dir(folder).expect("the target has seeds");
            let files = files.map(|file| file.expect("a file").path());
            let files: Vec<_> = files.filter(|path| path.is_file()).collect();
            assert!(!files.is_empty());
            for file in files {
                println!("{}", file.display());
                super::configuration(&fs::read(&file).expect("a seed that can be read"));
            }
        }
    }
}
