//! `stick-table`, `track-sc` and refusals by rate: limits for each client.

use toml_edit::Value;

use super::{
    acl::{Acls, When, condition, split},
    state::{Proxy, Translation},
    values,
};
use crate::{
    draft::{list, table},
    syntax::Directive,
};

/// How many requests of those that count together are answered.
#[derive(Clone, Debug)]
pub(super) struct Limit {
    rate: String,
    burst: i64,
    /// The keys by which requests are counted together; empty: by client.
    by: Vec<String>,
}

impl Limit {
    /// Whether it lets fewer requests through in the long run.
    pub(super) fn is_below(&self, other: &Self) -> bool {
        let in_an_hour = |limit: &Self| {
            let (number, unit) = limit.rate.split_once('/')?;
            let times = [("s", 3600), ("m", 60), ("h", 1)].into_iter().find(|(name, _)| *name == unit)?.1;
            Some(number.parse::<i64>().ok()? * times)
        };
        in_an_hour(self) < in_an_hour(other)
    }

    pub(super) fn value(&self) -> Value {
        let by = match &self.by[..] {
            [] => None,
            [one] => Some(("by", Value::from(one.as_str()))),
            several => Some(("by", list(several))),
        };
        table([("rate", self.rate.as_str().into()), ("burst", self.burst.into())].into_iter().chain(by))
    }
}

/// A limit that holds for some requests only.
pub(super) struct Limited<'a> {
    pub directive: &'a Directive,
    pub when: When,
    pub limit: Limit,
}

/// A number that a tracked client must not exceed.
struct Test<'w> {
    /// `http_req_rate` or `conn_cur`.
    counter: &'w str,
    /// The number of the tracked counter; `None`: the client's address is looked up.
    tracked: Option<u32>,
    table: Option<&'w str>,
    most: i64,
}

impl<'a> Translation<'a> {
    /// The limit that a refusal stands for, and the requests that it holds for; `None`: the refusal is no such one.
    pub(super) fn limit_of(
        &self,
        words: &[String],
        acls: &Acls<'_>,
        proxy: &Proxy<'a>,
    ) -> Option<Result<(Vec<When>, Limit), String>> {
        let (test, others) = test_among(words, acls)?;
        (test.counter == "http_req_rate").then_some(())?;
        Some(self.limit_by(&test, &others, acls, proxy))
    }

    /// How many connections a client may have, if a refusal asks for nothing else.
    pub(super) fn connections_of(&self, words: &[String], acls: &Acls<'_>, proxy: &Proxy<'a>) -> Option<i64> {
        let (test, others) = test_among(words, acls)?;
        let (by, when) = self.tracking(&test, acls, proxy).ok()?;
        self.stored(&test, &when, proxy, "conn_cur")?;
        (test.counter == "conn_cur" && others.is_empty() && by.is_empty()).then_some(test.most)
    }

    fn limit_by(
        &self,
        test: &Test<'_>,
        others: &[String],
        acls: &Acls<'_>,
        proxy: &Proxy<'a>,
    ) -> Result<(Vec<When>, Limit), String> {
        let (by, tracked) = self.tracking(test, acls, proxy)?;
        let stored = self
            .stored(test, &tracked, proxy, "http_req_rate(")
            .ok_or("no `stick-table` stores this rate (`http_req_rate`)")?;
        let time = stored.trim_start_matches("http_req_rate(").trim_end_matches(')');
        let rate = values::milliseconds(time).and_then(|ms| per_unit(test.most, ms));
        let rate = rate.ok_or("a rate is a whole number of requests in a second, a minute or an hour")?;
        let mut whens = Vec::new();
        for asked in condition(others, acls)? {
            for tracked in &tracked.when {
                whens.push(asked.and(tracked)?);
            }
        }
        Ok((whens, Limit { rate, burst: test.most, by }))
    }

    /// The keys by which the counter of a test counts, the requests that it counts, and its table.
    fn tracking(
        &self,
        test: &Test<'_>,
        acls: &Acls<'_>,
        proxy: &Proxy<'a>,
    ) -> Result<(Vec<String>, Tracked<'a>), String> {
        let mut found = None;
        for line in proxy.section.inner() {
            let args = match (line.name.as_str(), line.arg(0)) {
                ("http-request", _) => &line.args[..],
                ("tcp-request", "connection" | "content" | "session") => &line.args[1..],
                _ => continue,
            };
            let Some(number) = args.first().and_then(|name| name.strip_prefix("track-sc")) else { continue };
            if test.tracked.is_some_and(|tracked| number.parse() != Ok(tracked)) {
                continue;
            }
            let (action, words) = split(args);
            let table = action.iter().skip_while(|word| *word != "table").nth(1).map(String::as_str);
            let by = match action.get(1).map_or("", String::as_str) {
                "src" => Vec::new(),
                _ if test.tracked.is_none() => continue,
                "path" => vec!["path".to_owned()],
                "base32+src" | "url32+src" => vec!["client".to_owned(), "path".to_owned()],
                key => match key.trim_start_matches("req.").split_once('(') {
                    Some(("hdr" | "fhdr", name)) => vec![format!("header {}", name.trim_end_matches(')'))],
                    _ => return Err(format!("`{key}`: a limit counts by client, path or field")),
                },
            };
            if found.is_some() {
                return Err("a limit counts by one key".to_owned());
            }
            found = Some((by, Tracked { when: condition(words, acls)?, table }));
        }
        found.ok_or_else(|| "no `track-sc` line says what is counted".to_owned())
    }

    /// The entry of this name in the `store` list of a stick table, such as `http_req_rate(10s)`.
    fn stored(&self, test: &Test<'_>, tracked: &Tracked<'_>, proxy: &Proxy<'a>, name: &str) -> Option<&'a str> {
        let section = test.table.or(tracked.table).unwrap_or(proxy.name());
        let own = proxy.section.inner().iter().filter(|line| line.name == "stick-table" && section == proxy.name());
        let lines = own.chain(self.tables.iter().filter(|(other, _)| *other == section).map(|(_, line)| *line));
        lines.flat_map(|line| &line.args).flat_map(|arg| arg.split(',')).find(|stored| stored.starts_with(name))
    }
}

/// For which requests something is counted, and where.
struct Tracked<'a> {
    when: Vec<When>,
    table: Option<&'a str>,
}

/// The test of a rate or a number in a condition without alternatives, and the words of the condition without it.
fn test_among<'w>(words: &'w [String], acls: &'w Acls<'_>) -> Option<(Test<'w>, Vec<String>)> {
    let (first, rest) = words.split_first()?;
    if first != "if" || rest.iter().any(|word| matches!(word.as_str(), "or" | "OR" | "||")) {
        return None;
    }
    let mut found = None;
    let mut others: Vec<String> = Vec::new();
    let mut rest = rest.iter().peekable();
    while let Some(word) = rest.next() {
        let is_negated = others.last().is_some_and(|word| word == "!");
        let mut written = vec![word.clone()];
        let test = if word.trim_start_matches('!') == "{" {
            let inner: Vec<&str> = rest.by_ref().take_while(|word| *word != "}").map(String::as_str).collect();
            written.extend(inner.iter().map(|word| (*word).to_owned()));
            written.push("}".to_owned());
            counted(&inner)
        } else {
            match acls.get(word) {
                Some([line]) => counted(&line.args.iter().skip(1).map(String::as_str).collect::<Vec<_>>()),
                _ => None,
            }
        };
        match test.filter(|_| !word.starts_with('!') && !is_negated) {
            Some(_) if found.is_some() => return None,
            Some(test) => found = Some(test),
            None => others.extend(written),
        }
    }
    if !others.is_empty() {
        others.insert(0, "if".to_owned());
    }
    Some((found?, others))
}

/// `sc_http_req_rate(0) gt 40`, `sc0_conn_cur(table) ge 10`, `src_http_req_rate gt 5`
fn counted<'w>(words: &[&'w str]) -> Option<Test<'w>> {
    let [fetch, how @ ("gt" | "ge"), number] = words[..] else { return None };
    let number: i64 =
        number.parse().ok().filter(|number| (2..=1_000_000).contains(number) || *number == 1 && how == "gt")?;
    let (name, arguments) = match fetch.split_once('(') {
        Some((name, rest)) => (name, rest.strip_suffix(')')?),
        None => (fetch, ""),
    };
    let arguments: Vec<&str> = arguments.split(',').filter(|argument| !argument.is_empty()).collect();
    let (counter, tracked, table) = if let Some(counter) = name.strip_prefix("src_") {
        (counter, None, arguments.first().copied())
    } else if let Some(counter) = name.strip_prefix("sc_") {
        (counter, Some(arguments.first()?.parse().ok()?), arguments.get(1).copied())
    } else {
        let (index, counter) = name.strip_prefix("sc")?.split_once('_')?;
        (counter, Some(index.parse().ok()?), arguments.first().copied())
    };
    Some(Test { counter, tracked, table, most: if how == "ge" { number - 1 } else { number } })
}

/// So many requests in a time, as a rate of whole requests in a second, a minute or an hour.
fn per_unit(number: i64, ms: i64) -> Option<String> {
    let units = [(1000, "s"), (60_000, "m"), (3_600_000, "h")];
    let (unit, name) = units.into_iter().find(|(unit, _)| number * unit % ms == 0)?;
    Some(format!("{}/{name}", number * unit / ms)).filter(|_| number * unit >= ms)
}
