//! Values that all gateways of a site have in common, such as whether the site is closed.
//!
//! Each gateway has a copy of all values, and the store orders their changes by its clock. A store that has forgotten
//! values gets them from the gateways again. A state machine: the connection carries its messages.

use std::collections::{BTreeMap, BTreeSet};

/// A gateway's copy of the common values.
#[derive(Clone, Debug, Default)]
pub struct Shared {
    /// The memory of the store, which is another one after it was emptied; 0 if it is not known.
    epoch: u64,
    /// The time of the last change in it. Not a count: after a replica behind has taken over, a count comes again.
    version: u64,
    values: BTreeMap<String, Entry>,
    /// Counts changes made here.
    serial: u64,
    /// Values that are so as long as a gateway says so, and a gateway does.
    held: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Entry {
    value: String,
    /// When it was set, by the store's clock; 0: it was not there yet.
    stamp: u64,
    /// The kind of message that the store has yet to get about it, and the number of the change.
    untold: Option<(Tell, u64)>,
}

/// The kind of a message about a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tell {
    /// It is so now, whatever it was.
    Set,
    /// It is so, unless it has changed since.
    First,
    /// It was so, in case the store has forgotten it.
    Keep,
}

/// A message to the store.
#[derive(Clone, Debug)]
pub struct SharedAsk {
    pub(crate) epoch: u64,
    pub(crate) version: u64,
    pub(crate) told: Vec<(Tell, String, u64, String)>,
    pub(crate) held: Vec<String>,
    serial: u64,
}

/// An answer of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedReply {
    pub(crate) epoch: u64,
    pub(crate) version: u64,
    /// Its time in microseconds since 1970.
    pub now_us: u64,
    /// All values with their times, if they are other than those that the gateway knows of.
    pub(crate) values: Option<Vec<(String, u64, String)>>,
    /// All that any gateway holds.
    pub(crate) held: Vec<String>,
}

impl Entry {
    /// The store lacks it, or has an older one: it is told again, unless it is to be told anyway.
    fn is_forgotten(&mut self, serial: u64) {
        if self.untold.is_none() && self.stamp > 0 {
            self.untold = Some((Tell::Keep, serial));
        }
    }
}

impl Shared {
    /// The value with a name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(|entry| &*entry.value)
    }

    /// All values whose names begin so, with the rest of their names.
    pub fn all<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.values.iter().filter_map(move |(name, entry)| Some((name.strip_prefix(prefix)?, &*entry.value)))
    }

    /// Whether a gateway said lately that it holds this.
    pub fn is_held(&self, name: &str) -> bool {
        self.held.iter().any(|held| held == name)
    }

    /// Sets a value for all gateways.
    pub fn set(&mut self, name: &str, value: String) {
        self.change(name, value, Tell::Set);
    }

    /// Sets a value for all gateways, unless another one does so first.
    pub fn propose(&mut self, name: &str, value: String) {
        self.change(name, value, Tell::First);
    }

    fn change(&mut self, name: &str, value: String, tell: Tell) {
        self.serial += 1;
        let entry = self.values.entry(name.to_owned()).or_default();
        (entry.value, entry.untold) = (value, Some((tell, self.serial)));
    }

    /// Whether the store is to be told something.
    pub fn is_untold(&self) -> bool {
        self.values.values().any(|entry| entry.untold.is_some())
    }

    /// The message to the store, with all changes that it has not been told. `held`: names that this gateway holds.
    pub fn ask(&self, held: Vec<String>) -> SharedAsk {
        let told = self.values.iter().filter_map(|(name, entry)| {
            let (tell, _) = entry.untold?;
            Some((tell, name.clone(), entry.stamp, entry.value.clone()))
        });
        SharedAsk { epoch: self.epoch, version: self.version, told: told.collect(), held, serial: self.serial }
    }

    /// The store has answered. Returns whether anything is other than before.
    pub fn handle_reply(&mut self, asked: &SharedAsk, reply: SharedReply) -> bool {
        (self.epoch, self.version) = (reply.epoch, reply.version);
        let mut changed = self.held != reply.held;
        self.held = reply.held;
        for entry in self.values.values_mut() {
            // A change that was made after the ask was sent is still to be told.
            entry.untold = entry.untold.filter(|(_, serial)| *serial > asked.serial);
        }
        let Some(values) = reply.values else { return changed };
        let there: BTreeSet<&str> = values.iter().map(|(name, ..)| &**name).collect();
        for (_, entry) in self.values.iter_mut().filter(|(name, _)| !there.contains(&***name)) {
            entry.is_forgotten(self.serial);
        }
        for (name, stamp, value) in values {
            let entry = self.values.entry(name).or_default();
            if entry.untold.is_some_and(|(tell, _)| tell != Tell::Keep) {
                // It goes on from what is there.
                entry.stamp = stamp;
            } else if stamp >= entry.stamp {
                changed |= entry.value != value;
                *entry = Entry { value, stamp, untold: None };
            } else {
                entry.is_forgotten(self.serial);
            }
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A model of the function in the store, except for held values.
    #[derive(Clone, Default)]
    struct Model {
        epoch: u64,
        version: u64,
        values: BTreeMap<String, (u64, String)>,
    }

    impl Model {
        fn answer(&mut self, now_us: u64, ask: &SharedAsk) -> SharedReply {
            if self.epoch == 0 {
                self.epoch = now_us;
            }
            for (tell, name, stamp, value) in &ask.told {
                let had = self.values.get(name).map_or(0, |it| it.0);
                let new = match tell {
                    Tell::Set => Some(now_us.max(had + 1)),
                    Tell::First => (had == *stamp).then(|| now_us.max(had + 1)),
                    Tell::Keep => (*stamp > had).then_some(*stamp),
                };
                if let Some(new) = new {
                    self.values.insert(name.clone(), (new, value.clone()));
                    self.version = now_us.max(self.version + 1);
                }
            }
            let same = ask.epoch == self.epoch && ask.version == self.version && ask.told.is_empty();
            let values =
                (!same).then(|| self.values.iter().map(|(name, (at, it))| (name.clone(), *at, it.clone())).collect());
            SharedReply { epoch: self.epoch, version: self.version, now_us, values, held: vec![] }
        }
    }

    fn exchange(model: &mut Model, now_us: u64, gateway: &mut Shared) {
        let ask = gateway.ask(vec![]);
        let reply = model.answer(now_us, &ask);
        gateway.handle_reply(&ask, reply);
    }

    #[test]
    fn what_one_sets_the_other_hears_and_a_proposal_yields() {
        let (mut store, mut a, mut b) = (Model::default(), Shared::default(), Shared::default());
        a.propose("key", "of a".to_owned());
        b.propose("key", "of b".to_owned());
        exchange(&mut store, 1, &mut b);
        exchange(&mut store, 2, &mut a);
        assert_eq!((a.get("key"), b.get("key")), (Some("of b"), Some("of b")));
        a.set("closed", "yes".to_owned());
        exchange(&mut store, 3, &mut a);
        exchange(&mut store, 4, &mut b);
        assert_eq!(b.get("closed"), Some("yes"));
        // The later change holds.
        b.set("closed", "no".to_owned());
        exchange(&mut store, 5, &mut b);
        exchange(&mut store, 6, &mut a);
        assert_eq!((a.get("closed"), a.all("clo").next()), (Some("no"), Some(("sed", "no"))));
        assert!(!a.is_untold() && !b.is_untold());
    }

    #[test]
    fn a_change_while_an_answer_is_on_its_way_is_not_lost() {
        let (mut store, mut a) = (Model::default(), Shared::default());
        a.set("closed", "yes".to_owned());
        let ask = a.ask(vec![]);
        let reply = store.answer(1, &ask);
        a.set("closed", "no".to_owned());
        a.handle_reply(&ask, reply);
        assert_eq!((a.get("closed"), a.is_untold()), (Some("no"), true));
        exchange(&mut store, 2, &mut a);
        assert_eq!(store.values["closed"].1, "no");
    }

    proptest! {
        /// In the end all gateways have the same values, wherever values are set and however often the store forgets.
        /// They are the values that were set last, unless the store forgot those before another gateway heard of them.
        #[test]
        fn all_agree_in_the_end(events in prop::collection::vec((0_usize..3, 0_u8..8, 0_u8..2), 1..60)) {
            let mut store = Model::default();
            let mut copies: Vec<Model> = Vec::new();
            let mut gateways = vec![Shared::default(); 3];
            let mut now = 1_000;
            for (at, what, name) in events {
                now += 10;
                match what {
                    0 => gateways[at].set(&format!("v{name}"), format!("{now}")),
                    1 => gateways[at].propose(&format!("v{name}"), format!("{now}")),
                    2 => copies.push(store.clone()),
                    // It is empty, or a replica that lags has taken over.
                    3 => store = copies.pop().unwrap_or_default(),
                    _ => exchange(&mut store, now, &mut gateways[at]),
                }
            }
            for _ in 0..4 {
                for gateway in &mut gateways {
                    now += 10;
                    exchange(&mut store, now, gateway);
                }
            }
            for gateway in &gateways {
                prop_assert!(!gateway.is_untold());
                let values: Vec<_> = gateway.all("").collect();
                let there: Vec<_> = store.values.iter().map(|(name, (_, value))| (&**name, &**value)).collect();
                prop_assert_eq!(values, there);
            }
        }

        /// Without a store that forgets, the last change is what all have.
        #[test]
        fn the_last_change_holds(events in prop::collection::vec((0_usize..3, any::<bool>()), 1..40)) {
            let (mut store, mut gateways, mut now, mut last) = (Model::default(), vec![Shared::default(); 3], 1, None);
            for (at, sets) in events {
                now += 1;
                if sets {
                    gateways[at].set("v", format!("{now}"));
                    last = Some(format!("{now}"));
                }
                exchange(&mut store, now, &mut gateways[at]);
            }
            gateways.iter_mut().for_each(|gateway| exchange(&mut store, now, gateway));
            prop_assert!(gateways.iter().all(|gateway| gateway.get("v") == last.as_deref()));
        }
    }
}
