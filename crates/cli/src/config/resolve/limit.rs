//! `limit` of a site or a route.

use std::num::NonZeroU32;

use server::config::{ByteRate, Limit, LimitBy, Rate};
use toml::Spanned;

use super::{resolver::Resolver, rules::Configured};
use crate::{
    config::{problems::Problem, raw::RawLimit, written::OrOff},
    values,
};

/// The largest numbers of requests, in a burst and at once.
const MOST_REQUESTS: u64 = 1_000_000;

impl Resolver<'_> {
    /// `None`: there is no limit.
    pub(super) fn limit(&mut self, written: &Spanned<OrOff<RawLimit>>, configured: &Configured) -> Option<Limit> {
        let help = "write how many requests are answered, as in `limit = { rate = \"10/s\" }`, or `off`";
        let raw = self.table_or_off(written, "limit", help)?;
        let count = |text: &str| values::count(text, MOST_REQUESTS).map(|number| NonZeroU32::new(number as u32));
        let burst = self.setting(None, &raw.burst, count, None);
        let rate = self.optional(&raw.rate, values::request_rate);
        let at_once = self.setting(None, &raw.at_once, count, None);
        let by = match &raw.by {
            None => [LimitBy::Client].into(),
            Some(all) if matches!(&all[..], [all] if all.get_ref().0 == "all") => Box::default(),
            Some(several) => {
                if several.is_empty() {
                    let message = "`by` of this limit names nothing";
                    self.problems.push(
                        Problem::new(message, Some(written.span()))
                            .help("write `by = \"all\"` to count all requests together, or leave it out"),
                    );
                }
                self.read_each(several, values::limit_by).into()
            }
        };
        let bytes = self.optional(&raw.bytes, values::byte_rate);
        let bytes_burst = self.optional(&raw.bytes_burst, values::least_bytes);
        let limits_nothing = [&raw.rate, &raw.at_once, &raw.bytes].into_iter().all(Option::is_none);
        if limits_nothing && self.shape_is_sound {
            self.problems.push(
                Problem::new("this table limits nothing", Some(written.span()))
                    .help("add `rate = \"10/s\"`, `at-once = 10` or `bytes = \"1MB/s\"`, or write `limit = \"off\"`"),
            );
        } else if let (Some(burst), None) = (&raw.burst, &raw.rate) {
            let message = "`burst` is about a rate, and this limit has none";
            self.problems.push(Problem::new(message, Some(burst.span())).help("add `rate`, or leave it out"));
        }
        if let (Some(burst), None, false) = (&raw.bytes_burst, &raw.bytes, limits_nothing) {
            let message = "`bytes-burst` is about bytes, and this limit has none";
            self.problems.push(Problem::new(message, Some(burst.span())).help("add `bytes`, or leave it out"));
        }
        let key = raw.by.iter().flatten().find(|written| written.get_ref().0 == "key");
        if let Some(written) = key.filter(|_| !configured.keys) {
            self.problems.push(
                Problem::new("there are no keys", Some(written.span()))
                    .help("add `[keys]` with `file = \"keys\"`, with lines made by `serpent key LEVEL`"),
            );
        }
        let rate = rate.map(|(requests, window)| Rate { requests, window, burst: burst.unwrap_or(requests) });
        let bytes = bytes.map(|bytes_per_second| ByteRate {
            bytes_per_second,
            burst_bytes: bytes_burst.unwrap_or(bytes_per_second),
        });
        Some(Limit { by, rate, at_once, bytes })
    }
}
