//! Eviction policies of a cache, compared by the requests, bytes and service times that they save. Pure; the policy of
//! the server is that of the library.

use std::collections::{BTreeMap, HashMap, VecDeque};

use serpent_cache::{Gdsf, Rank};

/// A request for an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The object.
    pub object: u64,
    /// Its size.
    pub bytes: u64,
    /// How long the site works on it.
    pub service_us: u64,
}

/// The rule by which a full cache chooses the object to evict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The one that was used least lately.
    Lru,
    /// S3-FIFO (Yang et al., SOSP 2023): a small queue on probation, a main queue, and a memory of what left the first.
    S3Fifo,
    /// GDSF with the same cost for all objects, as it is mostly used.
    Gdsf,
    /// GDSF with the service time as the cost: that of the server.
    GdsfByTime,
}

impl Policy {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Lru, Self::S3Fifo, Self::Gdsf, Self::GdsfByTime];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lru => "LRU",
            Self::S3Fifo => "S3-FIFO",
            Self::Gdsf => "GDSF",
            Self::GdsfByTime => "GDSF by service time",
        }
    }
}

/// The parts of all requests, bytes and service times that a cache saves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Saved {
    /// Of requests.
    pub requests: f64,
    /// Of bytes.
    pub bytes: f64,
    /// Of service time.
    pub service: f64,
}

/// The savings of a cache of this size for these requests. The first tenth fills it and does not count.
pub fn saved(policy: Policy, capacity_bytes: u64, requests: &[Wanted]) -> Saved {
    let mut cache: Box<dyn Cache> = match policy {
        Policy::Lru => Box::new(Lru::default()),
        Policy::S3Fifo => Box::new(S3Fifo::new(capacity_bytes)),
        Policy::Gdsf => Box::new(ByWorth::new(|_| 1)),
        Policy::GdsfByTime => Box::new(ByWorth::new(|wanted| wanted.service_us)),
    };
    let (mut hit, mut all) = ([0_u64; 3], [0_u64; 3]);
    for (at, wanted) in requests.iter().enumerate() {
        let is_hit = cache.hit(wanted.object);
        if at >= requests.len() / 10 {
            for (sum, of) in [(&mut all, true), (&mut hit, is_hit)] {
                if of {
                    sum.iter_mut().zip([1, wanted.bytes, wanted.service_us]).for_each(|(sum, it)| *sum += it);
                }
            }
        }
        // An object that would fill a large part of the cache is not stored, as in the server.
        if !is_hit && wanted.bytes <= capacity_bytes / 16 {
            cache.insert(*wanted);
            while cache.bytes() > capacity_bytes {
                cache.evict();
            }
        }
    }
    let part = |at: usize| hit[at] as f64 / all[at].max(1) as f64;
    Saved { requests: part(0), bytes: part(1), service: part(2) }
}

trait Cache {
    /// Whether it has an object, which is used then.
    fn hit(&mut self, object: u64) -> bool;
    fn insert(&mut self, wanted: Wanted);
    /// Gives up an object, or decides more about it.
    fn evict(&mut self);
    fn bytes(&self) -> u64;
}

#[derive(Default)]
struct Lru {
    objects: HashMap<u64, (u64, u64)>,
    by_use: BTreeMap<u64, u64>,
    uses: u64,
    bytes: u64,
}

impl Cache for Lru {
    fn hit(&mut self, object: u64) -> bool {
        let Some((last, _)) = self.objects.get_mut(&object) else { return false };
        self.uses += 1;
        self.by_use.remove(last);
        *last = self.uses;
        self.by_use.insert(self.uses, object);
        true
    }

    fn insert(&mut self, wanted: Wanted) {
        self.uses += 1;
        self.objects.insert(wanted.object, (self.uses, wanted.bytes));
        self.by_use.insert(self.uses, wanted.object);
        self.bytes += wanted.bytes;
    }

    fn evict(&mut self) {
        if let Some((_, object)) = self.by_use.pop_first()
            && let Some((_, bytes)) = self.objects.remove(&object)
        {
            self.bytes -= bytes;
        }
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

struct ByWorth {
    cost: fn(&Wanted) -> u64,
    queue: Gdsf,
    objects: HashMap<u64, (Rank, u64)>,
    bytes: u64,
}

impl ByWorth {
    fn new(cost: fn(&Wanted) -> u64) -> Self {
        Self { cost, queue: Gdsf::default(), objects: HashMap::new(), bytes: 0 }
    }
}

impl Cache for ByWorth {
    fn hit(&mut self, object: u64) -> bool {
        self.objects.get(&object).inspect(|(rank, _)| self.queue.touch(rank)).is_some()
    }

    fn insert(&mut self, wanted: Wanted) {
        let rank = self.queue.insert(wanted.object, 1, (self.cost)(&wanted), wanted.bytes);
        self.objects.insert(wanted.object, (rank, wanted.bytes));
        self.bytes += wanted.bytes;
    }

    fn evict(&mut self) {
        if let Some(object) = self.queue.pop(|object| Some(&self.objects.get(&object)?.0))
            && let Some((_, bytes)) = self.objects.remove(&object)
        {
            self.bytes -= bytes;
        }
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// The queues are bounded by bytes, as objects differ in size: a tenth for the small one.
struct S3Fifo {
    small_bytes_most: u64,
    /// Size, uses (at most 3), and whether it is in the main queue.
    objects: HashMap<u64, (u64, u8, bool)>,
    small: VecDeque<u64>,
    main: VecDeque<u64>,
    /// Objects that were evicted from the small queue lately: at most as many as the main queue has, or 16.
    ghosts: VecDeque<u64>,
    is_ghost: HashMap<u64, usize>,
    small_bytes: u64,
    bytes: u64,
}

impl S3Fifo {
    fn new(capacity_bytes: u64) -> Self {
        Self {
            small_bytes_most: capacity_bytes / 10,
            objects: HashMap::new(),
            small: VecDeque::new(),
            main: VecDeque::new(),
            ghosts: VecDeque::new(),
            is_ghost: HashMap::new(),
            small_bytes: 0,
            bytes: 0,
        }
    }

    fn remember(&mut self, object: u64) {
        self.ghosts.push_back(object);
        *self.is_ghost.entry(object).or_default() += 1;
        while self.ghosts.len() > self.main.len().max(16) {
            let Some(oldest) = self.ghosts.pop_front() else { break };
            if let Some(times) = self.is_ghost.get_mut(&oldest) {
                *times -= 1;
                if *times == 0 {
                    self.is_ghost.remove(&oldest);
                }
            }
        }
    }
}

impl Cache for S3Fifo {
    fn hit(&mut self, object: u64) -> bool {
        self.objects.get_mut(&object).map(|(_, uses, _)| *uses = (*uses + 1).min(3)).is_some()
    }

    fn insert(&mut self, wanted: Wanted) {
        let returns = self.is_ghost.contains_key(&wanted.object);
        self.objects.insert(wanted.object, (wanted.bytes, 0, returns));
        self.bytes += wanted.bytes;
        if returns {
            self.main.push_back(wanted.object);
        } else {
            self.small.push_back(wanted.object);
            self.small_bytes += wanted.bytes;
        }
    }

    fn evict(&mut self) {
        if self.small_bytes >= self.small_bytes_most || self.main.is_empty() {
            let Some(object) = self.small.pop_front() else { return };
            let Some((bytes, uses, is_main)) = self.objects.get_mut(&object) else { return };
            self.small_bytes -= *bytes;
            if *uses > 1 {
                (*uses, *is_main) = (0, true);
                self.main.push_back(object);
            } else {
                self.bytes -= *bytes;
                self.objects.remove(&object);
                self.remember(object);
            }
        } else if let Some(object) = self.main.pop_front()
            && let Some((bytes, uses, _)) = self.objects.get_mut(&object)
        {
            if *uses > 0 {
                *uses -= 1;
                self.main.push_back(object);
            } else {
                self.bytes -= *bytes;
                self.objects.remove(&object);
            }
        }
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(object: u64, bytes: u64, service_us: u64) -> Wanted {
        Wanted { object, bytes, service_us }
    }

    #[test]
    fn a_cache_that_holds_all_saves_all_but_the_first_time() {
        let requests: Vec<_> = (0..10_000).map(|at| wanted(at % 100, 10, 5)).collect();
        for policy in Policy::ALL {
            assert_eq!(
                saved(policy, 1_000_000, &requests),
                Saved { requests: 1.0, bytes: 1.0, service: 1.0 },
                "{policy:?}"
            );
            let none = saved(policy, 1, &requests);
            assert_eq!(none.requests, 0.0, "{policy:?}");
        }
    }

    #[test]
    fn a_scan_spoils_lru_only() {
        // Ten objects in turn, three times each, between objects that are wanted once.
        let mut requests = Vec::new();
        for at in 0..20_000_u64 {
            requests.extend([wanted(at % 10, 10, 5); 3]);
            requests.extend((0..3).map(|scan| wanted(1000 + 3 * at + scan, 10, 5)));
        }
        let of = |policy| saved(policy, 190, &requests).requests;
        assert!((of(Policy::Lru) - 1.0 / 3.0).abs() < 0.01, "{}", of(Policy::Lru));
        assert!(of(Policy::S3Fifo) > 0.45, "{}", of(Policy::S3Fifo));
        assert!(of(Policy::Gdsf) > 0.45, "{}", of(Policy::Gdsf));
    }

    #[test]
    fn the_service_time_counts_for_the_policy_of_the_server_alone() {
        let requests: Vec<_> = (0..40_000_u64)
            .map(|at| if at % 2 == 0 { wanted(at / 2 % 16, 10, 1000) } else { wanted(100 + at / 2 % 16, 10, 1) })
            .collect();
        let of = |policy| saved(policy, 200, &requests).service;
        assert!(of(Policy::GdsfByTime) > 0.95, "{}", of(Policy::GdsfByTime));
        assert!(of(Policy::Lru) < 0.05 && of(Policy::Gdsf) < of(Policy::GdsfByTime));
    }
}
