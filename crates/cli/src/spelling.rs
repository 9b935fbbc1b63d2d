//! Names that are like another one, for suggestions.

/// The known name that is like `name`, if one is. Up to a third of the letters differ, or it is the only name that
/// begins or ends with this one.
pub fn like<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_lowercase();
    let known: Vec<_> = known.into_iter().collect();
    let distance = |known: &str| strsim::osa_distance(&name, &known.to_lowercase());
    let near = |known: &&&str| 3 * distance(known) <= known.chars().count().max(name.chars().count());
    if let Some(nearest) = known.iter().filter(near).min_by_key(|known| distance(known)) {
        return Some(nearest);
    }
    let longer = |known: &&&str| {
        let rest = known.strip_prefix(&*name).filter(|rest| rest.starts_with('-'));
        rest.or_else(|| known.strip_suffix(&*name).filter(|rest| rest.ends_with('-'))).is_some()
    };
    let mut longer = known.iter().filter(longer);
    longer.next().copied().filter(|_| longer.next().is_none())
}
