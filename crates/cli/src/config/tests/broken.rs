//! Half-edited files: lines are missing, doubled or exchanged, values are misplaced, bytes are out of place.

use std::sync::LazyLock;

use proptest::prelude::*;

use super::{gateway::files_of_the_example, *};

/// A folder with all that the examples name.
static FOLDER: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    files_of_the_example(folder.path());
    folder
});

/// Both examples, line by line, without their comments.
static LINES: LazyLock<[Vec<String>; 2]> = LazyLock::new(|| {
    ["examples/gateway.toml", "examples/serpent.toml"].map(|file| {
        let text = fs::read_to_string(repository(file)).unwrap();
        text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).map(str::to_owned).collect()
    })
});

/// Values of all kinds that stand in some setting or should stand in none.
const VALUES: &[&str] = &[
    "0",
    "-1",
    "1",
    "18446744073709551615",
    "9223372036854775807",
    "1e400",
    "nan",
    "-0.0",
    "0.5",
    "true",
    "\"\"",
    "\"off\"",
    "\"0s\"",
    "\"1ns\"",
    "\"584y\"",
    "\"5s\"",
    "\"0%\"",
    "\"101%\"",
    "\"/\"",
    "\"*\"",
    "\"(\"",
    "\"[\"",
    "\"[[[[\"",
    "\"(a|a)*{1000}{1000}\"",
    "\"..\"",
    "\"h\u{e4}\u{301}\u{1f40d}\"",
    "\"\\u0000\"",
    "\"a\\r\\nb: c\"",
    "\"10.0.0.0/33\"",
    "\"::/0\"",
    "\"999EiB\"",
    "\"1Tbit/s\"",
    "\"http://\"",
    "\"http://[::1\"",
    "\"https://a:99999\"",
    "\"unix:\"",
    "\"strict\"",
    "\"edf\"",
    "\"fixed\"",
    "\"rr 99\"",
    "\"nice -20\"",
    "\"gold\"",
    "\"plain\"",
    "\"app\"",
    "\"cpu\"",
    "[]",
    "[[]]",
    "{}",
    "{ a = 1 }",
    "{ \"\" = \"\" }",
    "[\"gold\", \"gold\"]",
];

#[derive(Clone, Debug)]
enum Edit {
    Remove(usize),
    Double(usize),
    Exchange(usize, usize),
    /// The value of another line, or one of these.
    Value(usize, usize),
    Of(usize, usize),
    Insert(usize, usize, String),
    Cut(usize),
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let at = any::<prop::sample::Index>().prop_map(|index| index.index(1 << 20));
    prop::collection::vec(
        prop_oneof![
            2 => at.clone().prop_map(Edit::Remove),
            2 => at.clone().prop_map(Edit::Double),
            2 => (at.clone(), at.clone()).prop_map(|(a, b)| Edit::Exchange(a, b)),
            8 => (at.clone(), 0..VALUES.len()).prop_map(|(line, value)| Edit::Value(line, value)),
            4 => (at.clone(), at.clone()).prop_map(|(a, b)| Edit::Of(a, b)),
            2 => (at.clone(), at.clone(), "\\PC{0,4}|[\\[\\]{}=\"'#,.\t\n]{1,3}").prop_map(|(line, at, text)| Edit::Insert(line, at, text)),
            1 => at.prop_map(Edit::Cut),
        ],
        0..8,
    )
}

fn edited(lines: &[String], edits: &[Edit]) -> String {
    let mut lines = lines.to_vec();
    let mut cut = None;
    for edit in edits {
        let count = lines.len();
        if count == 0 {
            break;
        }
        let value = |line: &str| line.split_once(" = ").map(|(_, value)| value.to_owned());
        let set = |line: &mut String, value: &str| {
            if let Some((key, _)) = line.split_once(" = ") {
                *line = format!("{key} = {value}");
            }
        };
        match edit {
            Edit::Remove(at) => drop(lines.remove(at % count)),
            Edit::Double(at) => lines.insert(at % count, lines[at % count].clone()),
            Edit::Exchange(a, b) => lines.swap(a % count, b % count),
            Edit::Value(at, given) => set(&mut lines[at % count], VALUES[*given]),
            Edit::Of(at, from) => {
                if let Some(value) = value(&lines[from % count]) {
                    set(&mut lines[at % count], &value);
                }
            }
            Edit::Insert(line, at, text) => {
                let line = &mut lines[line % count];
                let places: Vec<usize> = line.char_indices().map(|(at, _)| at).chain([line.len()]).collect();
                line.insert_str(places[at % places.len()], text);
            }
            Edit::Cut(at) => cut = Some(*at),
        }
    }
    let text = lines.join("\n");
    match cut {
        Some(at) => text.chars().take(at % (text.chars().count() + 1)).collect(),
        None => text,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn an_edited_file_is_taken_or_refused_with_a_reason(which in 0..2_usize, edits in edits()) {
        let text = edited(&LINES[which], &edits);
        let path = FOLDER.path().join("edited.toml");
        fs::write(&path, &text).unwrap();
        match load(&Overrides { config: Some(path), ..Overrides::default() }) {
            Ok(config) => {
                // Every class and resource that is given by its number exists.
                let classes = &config.classes;
                let named = [classes.default].into_iter().chain(classes.rules.iter().map(|rule| rule.class));
                for class in named {
                    prop_assert!(class.index() < classes.classes.len(), "{text}");
                }
                let resources = classes.admission.resources.len();
                for route in config.sites.iter().flat_map(|site| &site.routes) {
                    prop_assert!(route.resource.index() < resources, "{text}");
                }
            }
            Err(problems) => {
                prop_assert!(!edits.is_empty(), "{problems}");
                prop_assert!(problems.to_string().contains("edited.toml"), "{problems}\n{text}");
            }
        }
    }
}
