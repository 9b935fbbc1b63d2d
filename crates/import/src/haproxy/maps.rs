//! Maps: files that lead from a part of a request to a backend or to the target of a redirect.

use super::{
    acl::{When, single},
    values,
};
use crate::syntax::Files;

/// A text such as `%[req.hdr(host),lower,map_dom(/etc/haproxy/hosts.map,web)]`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Map<'a> {
    /// The sample that is looked up in the map, as it is written.
    fetch: &'a str,
    ignores_case: bool,
    /// How it is compared: `str`, `beg`, `end`, `dom` and others.
    how: &'a str,
    file: &'a str,
    default: Option<&'a str>,
}

/// The requests that each entry is about, and its value.
type Entries = Vec<(When, String)>;

impl<'a> Map<'a> {
    /// Reads `%[...]`, or the same without its brackets. An error is the reason why it has no counterpart.
    pub(super) fn read(text: &'a str) -> Result<Self, String> {
        let inner = text.strip_prefix("%[").and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        let steps = steps(inner);
        let (Some((fetch, between)), Some(last)) = (steps.split_first(), steps.last()) else {
            return Err(format!("`{text}` has no counterpart"));
        };
        let between = &between[..between.len().saturating_sub(1)];
        let (name, arguments) = last.split_once('(').ok_or_else(|| format!("`{text}` is no map"))?;
        let how = match name {
            "map" | "map_str" => "str",
            "map_ip" => "ip",
            "map_beg" | "map_end" | "map_dom" | "map_reg" | "map_sub" | "map_dir" => &name["map_".len()..],
            _ => return Err(format!("`{name}` has no counterpart")),
        };
        let arguments = arguments.strip_suffix(')').ok_or_else(|| format!("`{last}` has no end"))?;
        let (file, default) = match arguments.split_once(',') {
            Some((file, default)) => (file, Some(default)),
            None => (arguments, None),
        };
        let mut ignores_case = false;
        for step in between {
            match *step {
                "lower" => ignores_case = true,
                // The port of a host is not looked at here.
                "host_only" | "field(1,:)" | "field(1,':')" | "word(1,:)" | "word(1,':')" if is_host(fetch) => {}
                other => return Err(format!("`{other}` before a map has no counterpart")),
            }
        }
        Ok(Self { fetch, ignores_case, how, file, default })
    }

    /// Whether a condition asks for nothing but an entry of this map: `if { path,map(FILE) -m found }`.
    pub(super) fn is_asked_for(&self, words: &[String]) -> bool {
        let key = |map: &Map<'_>| (map.fetch.to_owned(), map.ignores_case, map.how.to_owned(), map.file.to_owned());
        match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["if", "{", asked, "-m", "found", "}"] => Map::read(asked).is_ok_and(|asked| key(&asked) == key(self)),
            _ => false,
        }
    }

    /// The entries in the order in which they count, and what holds for all other requests.
    pub(super) fn entries(&self, files: &dyn Files) -> Result<(Entries, Option<&'a str>), String> {
        let lines = values::list_of(self.file, files)?;
        let mut pairs: Vec<(&str, &str)> =
            lines.iter().filter_map(|line| line.split_once(char::is_whitespace)).collect();
        match self.how {
            // The longest beginning counts, and the smallest network.
            "beg" | "end" | "dom" => pairs.sort_by_key(|(key, _)| std::cmp::Reverse(key.len())),
            "ip" => pairs.sort_by_key(|(key, _)| std::cmp::Reverse(network_bits(key))),
            _ => {}
        }
        let fetch = match self.how {
            "str" | "ip" => self.fetch.to_owned(),
            how => match self.fetch.split_once('(') {
                Some((name, rest)) => format!("{name}_{how}({rest}"),
                None => format!("{}_{how}", self.fetch),
            },
        };
        if self.how == "ip" && self.fetch != "src" {
            return Err(format!("`{}`: a route asks for the address of the client (`src`)", self.fetch));
        }
        if self.ignores_case && !is_host(self.fetch) {
            return Err("`lower` has no counterpart but for hosts".to_owned());
        }
        let mut entries = Vec::new();
        for (key, value) in pairs {
            entries.extend(single(&fetch, key, files)?.into_iter().map(|when| (when, value.trim().to_owned())));
        }
        Ok((entries, self.default))
    }
}

fn is_host(fetch: &str) -> bool {
    let name = fetch.strip_prefix("req.").unwrap_or(fetch).to_ascii_lowercase();
    matches!(name.as_str(), "hdr(host)" | "fhdr(host)")
}

fn network_bits(network: &str) -> u32 {
    match network.split_once('/') {
        Some((_, bits)) => bits.parse().unwrap_or(0),
        None => 128,
    }
}

/// The steps of an expression: parts between commas that stand in no parentheses.
fn steps(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut found) = (0usize, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                found.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    found.push(&text[start..]);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_read_with_what_stands_before_them() {
        let map = Map::read("%[req.hdr(host),lower,field(1,:),map_dom(/etc/hosts.map,web)]").unwrap();
        let expected = Map {
            fetch: "req.hdr(host)",
            ignores_case: true,
            how: "dom",
            file: "/etc/hosts.map",
            default: Some("web"),
        };
        assert_eq!(map, expected);
        let map = Map::read("path,map_beg(paths.map)").unwrap();
        assert_eq!((map.fetch, map.how, map.default), ("path", "beg", None));
        for text in ["%[req.hdr(host)]", "%[path,regsub(a,b),map(f)]", "%[path,field(1,:),map(f)]", "%[src,map_int(f)]"]
        {
            assert!(Map::read(text).is_err(), "{text}");
        }
    }
}
