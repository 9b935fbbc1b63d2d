//! The tables of the file, read off the sections of `raw`: which tables have a setting, and in which form.

use super::{raw::SECTIONS, section::Section};

/// The form in which a setting is written.
#[derive(Clone, Copy)]
pub enum Form {
    Value,
    /// A value, or a table with more to say.
    ValueOrTable(&'static Section),
    /// A table that occurs once.
    Table(&'static Section),
    /// A table that can occur several times.
    Tables(&'static Section),
}

impl Form {
    fn section(self) -> Option<&'static Section> {
        match self {
            Self::Value => None,
            Self::ValueOrTable(section) | Self::Table(section) | Self::Tables(section) => Some(section),
        }
    }

    /// The header of such a table at the end of the path.
    pub fn header(self, path: &[&str]) -> String {
        let path = path.join(".");
        if matches!(self, Self::Tables(_)) { format!("`[[{path}]]`") } else { format!("`[{path}]`") }
    }
}

impl Section {
    /// The form of a setting; `None` if there is no such setting.
    pub fn form(&self, setting: &str) -> Option<Form> {
        let (_, kind) = self.settings.iter().find(|(name, _)| name.replace('_', "-") == setting)?;
        let mut words = kind.split(|c: char| !c.is_alphanumeric());
        Some(match words.find_map(|word| every().find(|section| section.name == word)) {
            None => Form::Value,
            Some(section) if kind.starts_with("Vec") => Form::Tables(section),
            Some(section) if ["OrOff", "OnOrTable", "TextOr", "FileOrTable"].iter().any(|word| kind.contains(word)) => {
                Form::ValueOrTable(section)
            }
            Some(section) => Form::Table(section),
        })
    }

    /// The names of the settings, as they stand in the file.
    pub fn names(&self) -> impl Iterator<Item = String> {
        self.settings.iter().map(|(name, _)| name.replace('_', "-"))
    }

    /// The words for the section in messages.
    fn called(&self) -> &str {
        let called = self.called.trim();
        called.split_once(", as ").map_or(called, |(called, _)| called)
    }

    fn is_top(&self) -> bool {
        std::ptr::eq(self, top())
    }
}

/// Every section of the file.
pub fn every() -> impl Iterator<Item = &'static Section> {
    SECTIONS.iter().copied().flatten()
}

/// The settings outside of all tables.
pub fn top() -> &'static Section {
    &SECTIONS[0][0]
}

/// The section at the end of a path of keys; `None` if there is none, or if its keys are free.
pub fn section_at(path: &[&str]) -> Option<&'static Section> {
    path.iter().try_fold(top(), |section, key| section.form(key)?.section())
}

/// Where a setting that stands in this section is.
pub fn place_in(section: Option<&Section>) -> String {
    match section {
        None => "here".to_owned(),
        Some(section) if section.is_top() => "at the top of the file".to_owned(),
        Some(section) => format!("in {}", section.called()),
    }
}

/// Where a setting of this name belongs, in words; `None` if no table has it.
pub fn belongs(setting: &str) -> Option<String> {
    let (mut values, mut tables) = (Vec::new(), Vec::new());
    collect(setting, top(), &mut Vec::new(), &mut values, &mut tables);
    values.sort_by_key(|section| every().position(|known| std::ptr::eq(known, *section)));
    let is_of_top = values.first().is_some_and(|section| section.is_top());
    let values: Vec<_> = values.iter().filter(|section| !section.is_top()).map(|section| section.called()).collect();
    let mut said = Vec::new();
    if is_of_top {
        let top = "at the top of the file, before the first table: what follows a `[table]` is part of it";
        said.push(format!("`{setting}` belongs {top}"));
    } else if !values.is_empty() {
        said.push(format!("`{setting}` belongs in {}", either(&values)));
    }
    if !tables.is_empty() {
        let start =
            if said.is_empty() { format!("`{setting}` is a table: write") } else { "as a table it is".to_owned() };
        said.push(format!("{start} {}", either(&tables)));
    }
    Some(said.join("; ")).filter(|said| !said.is_empty())
}

/// Adds the sections that have the setting as a value, and its headers where it is a table.
fn collect(
    setting: &str,
    section: &'static Section,
    path: &mut Vec<String>,
    values: &mut Vec<&'static Section>,
    tables: &mut Vec<String>,
) {
    match section.form(setting) {
        Some(Form::Value | Form::ValueOrTable(_)) if !values.iter().any(|known| std::ptr::eq(*known, section)) => {
            values.push(section);
        }
        Some(form @ (Form::Table(_) | Form::Tables(_))) => {
            let path: Vec<_> = path.iter().map(String::as_str).chain([setting]).collect();
            tables.push(form.header(&path));
        }
        _ => {}
    }
    for name in section.names() {
        if let Some(inner) = section.form(&name).and_then(Form::section) {
            path.push(name);
            collect(setting, inner, path, values, tables);
            path.pop();
        }
    }
}

fn either(names: &[impl AsRef<str>]) -> String {
    let names: Vec<_> = names.iter().map(AsRef::as_ref).collect();
    match &names[..] {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        names => names.concat(),
    }
}
