//! Keys of session cookies that all gateways have in common: made and replaced by the gateways, kept in the store.

use std::time::Duration;

use aws_lc_rs::rand;
use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use classify::{SECRET_BYTES, SessionKeys};
use cluster::Shared;

/// The name of the common value: `TIME KEY` for each key, the oldest first, with a comma between.
const NAME: &str = "session-keys";
/// A key signs for so long.
const SIGNS_US: u64 = 24 * 3600 * 1_000_000;
/// A key signs only after this time, when all gateways have heard of it.
const SETTLES_US: u64 = 5_000_000;
/// Most keys at once; more than that are not read.
const MOST_KEYS: usize = 64;

/// The keys in use at this gateway.
#[derive(Debug, Default)]
pub(super) struct KeyRing {
    /// The first one signs.
    in_use: Vec<[u8; SECRET_BYTES]>,
}

/// A key, and when it was made, by the store's clock.
type Key = (u64, [u8; SECRET_BYTES]);

impl KeyRing {
    /// Uses the keys of the store. If there is none, or the newest one is old, it proposes another one.
    pub fn update(&mut self, values: &mut Shared, now_us: u64, lifetime: Duration, keys: &SessionKeys) {
        let all = values.get(NAME).map(read).unwrap_or_default();
        let in_use = in_order(&all, now_us);
        if !in_use.is_empty() && in_use != self.in_use {
            keys.replace(&in_use);
            self.in_use = in_use;
        }
        if !values.is_untold() && all.last().is_none_or(|newest| now_us.saturating_sub(newest.0) >= SIGNS_US) {
            let mut secret = [0; SECRET_BYTES];
            if rand::fill(&mut secret).is_ok() {
                values.propose(NAME, write(&with_new(all, (now_us, secret), lifetime)));
            }
        }
    }
}

/// The secrets, first the one that signs: the newest that all have heard of.
fn in_order(all: &[Key], now_us: u64) -> Vec<[u8; SECRET_BYTES]> {
    let known = |key: &Key| now_us.saturating_sub(key.0) >= SETTLES_US;
    let Some(signs) = all.iter().rposition(known).or_else(|| (!all.is_empty()).then_some(0)) else { return Vec::new() };
    let others = all.iter().enumerate().filter(|(at, _)| *at != signs).map(|(_, key)| key.1);
    std::iter::once(all[signs].1).chain(others).collect()
}

/// The keys with a new one, and without those that have signed no cookie that is still good.
fn with_new(all: Vec<Key>, new: Key, lifetime: Duration) -> Vec<Key> {
    let lifetime_us = u64::try_from(lifetime.as_micros()).unwrap_or(u64::MAX);
    let replaced_at: Vec<u64> = all.iter().skip(1).chain([&new]).map(|key| key.0).collect();
    let is_good = |replaced_us: u64| replaced_us.saturating_add(2 * SETTLES_US).saturating_add(lifetime_us) > new.0;
    let kept = all.into_iter().zip(replaced_at).filter(|(_, replaced_us)| is_good(*replaced_us)).map(|(key, _)| key);
    let mut kept: Vec<Key> = kept.chain([new]).collect();
    kept.drain(..kept.len().saturating_sub(MOST_KEYS));
    kept
}

fn write(keys: &[Key]) -> String {
    let texts: Vec<String> = keys.iter().map(|(at, key)| format!("{at} {}", STANDARD_NO_PAD.encode(key))).collect();
    texts.join(",")
}

/// Reads keys. Text that is no key is left out.
fn read(text: &str) -> Vec<Key> {
    let one = |text: &str| {
        let (at, key) = text.split_once(' ')?;
        Some((at.parse().ok()?, STANDARD_NO_PAD.decode(key).ok()?.try_into().ok()?))
    };
    text.split(',').filter_map(one).take(MOST_KEYS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_US: u64 = 3600 * 1_000_000;

    fn key(hours: u64) -> Key {
        (hours * HOUR_US, [hours as u8; SECRET_BYTES])
    }

    #[test]
    fn keys_are_read_as_they_were_written() {
        let keys = vec![key(1), key(25)];
        assert_eq!(read(&write(&keys)), keys);
        assert_eq!(read("1 short,x y,,7"), []);
    }

    #[test]
    fn a_new_key_signs_when_all_have_heard_of_it_and_the_old_ones_stay_good() {
        let keys = [key(1), key(25)];
        let first = |now_us| in_order(&keys, now_us)[0];
        assert_eq!(first(25 * HOUR_US + SETTLES_US - 1), keys[0].1);
        assert_eq!(first(25 * HOUR_US + SETTLES_US), keys[1].1);
        assert_eq!(in_order(&keys, 0).len(), 2, "all are accepted");
        assert_eq!(in_order(&keys[..1], 0), [keys[0].1], "the only one signs at once");
        assert!(in_order(&[], 0).is_empty());
    }

    #[test]
    fn a_key_goes_when_the_last_cookie_that_it_signed_has_expired() {
        let of_hours = |hours: u64| Duration::from_secs(hours * 3600);
        let days = vec![key(0), key(24), key(48)];
        assert_eq!(with_new(days.clone(), key(72), of_hours(1)).len(), 2, "the last one, and the new one");
        assert_eq!(with_new(days.clone(), key(72), of_hours(25)).len(), 3);
        assert_eq!(with_new(days, key(72), of_hours(1000)).len(), 4);
        let many = (0..200).map(key).collect();
        assert_eq!(with_new(many, key(201), of_hours(10_000)).len(), MOST_KEYS);
    }

    #[test]
    fn two_gateways_agree_on_a_key_and_use_it() {
        let mut values = Shared::default();
        let (mut ring, keys) = (KeyRing::default(), SessionKeys::of_this_process());
        ring.update(&mut values, 100, Duration::from_secs(60), &keys);
        assert!(values.is_untold(), "it proposes one");
        let proposed = values.get(NAME).map(str::to_owned);
        ring.update(&mut values, 200, Duration::from_secs(60), &keys);
        assert_eq!(values.get(NAME), proposed.as_deref(), "and no other one before the answer");
        assert_eq!(ring.in_use, [read(&proposed.unwrap())[0].1]);
    }
}
