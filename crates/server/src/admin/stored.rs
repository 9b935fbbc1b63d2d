//! The shared cache at the admin address: its counts, and purges.

use std::sync::atomic::Ordering::Relaxed;

use cache::{Purge, What};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use crate::shared_cache::SharedCache;

/// The counts of the cache.
pub(super) fn counts(shared: &SharedCache) -> Value {
    let (stats, counts) = (shared.store.stats(), &shared.counts);
    json!({
        "entries": stats.entries,
        "memory_bytes": stats.memory_bytes,
        "disk_bytes": stats.disk_bytes,
        "requests": {
            "hits": counts.hits.load(Relaxed),
            "stale": counts.stale.load(Relaxed),
            "misses": counts.misses.load(Relaxed),
            "revalidated": counts.revalidated.load(Relaxed),
            "collapsed": counts.collapsed.load(Relaxed),
            "passed": counts.passed.load(Relaxed),
        },
        "stored": stats.stored,
        "evicted": stats.evicted,
        "purged": stats.purged,
        "disk_failures": stats.disk_failures,
    })
}

/// The responses that a query asks to purge: `host=`, and one of `path=`, `prefix=` and `tag=`, or `all`. An error says
/// what is wrong with the query.
pub(super) fn asked(query: Option<&str>) -> Result<Purge, String> {
    const HELP: &str = "say what is purged: ?path=/a, ?prefix=/a/, ?tag=NAME or ?all, and &host=NAME for one host only";
    let (mut host, mut what) = (None, None);
    for part in query.unwrap_or_default().split('&').filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let value = percent_decode_str(value).decode_utf8().map_err(|_| format!("`{name}` is no UTF-8"))?.into_owned();
        let of_path = |value: String| match value.starts_with('/') {
            true => Ok(value),
            false => Err(format!("`{name}` begins with a slash")),
        };
        let found = match name {
            "host" if !value.is_empty() => {
                host = Some(value);
                continue;
            }
            "all" => What::All,
            "path" => What::Path(of_path(value)?),
            "prefix" => What::Prefix(of_path(value)?),
            "tag" if !value.is_empty() => What::Tag(value),
            _ => return Err(HELP.to_owned()),
        };
        if what.replace(found).is_some() {
            return Err("one purge is of one path, prefix or tag".to_owned());
        }
    }
    // Without a word about what, a slip would empty the cache.
    Ok(Purge { host, what: what.ok_or(HELP)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_names_one_thing_to_purge() {
        let purge = |host: Option<&str>, what| Ok(Purge { host: host.map(Into::into), what });
        for (query, expected) in [
            ("path=/a%20b", purge(None, What::Path("/a b".into()))),
            ("prefix=/&host=a.b", purge(Some("a.b"), What::Prefix("/".into()))),
            ("tag=t", purge(None, What::Tag("t".into()))),
            ("all", purge(None, What::All)),
        ] {
            assert_eq!(asked(Some(query)), expected, "{query}");
        }
        for wrong in ["", "host=a", "path=a", "tag=", "path=/a&tag=b", "x=1", "path=%ff"] {
            assert!(asked(Some(wrong)).is_err(), "{wrong}");
        }
        assert!(asked(None).is_err());
    }
}
