//! SURGE's user equivalents.

use rand::RngExt;
use rand_chacha::ChaCha12Rng;

use super::agenda::{Agenda, Due, ns};
use crate::{
    sequence::{FILES, Request, Shares, USERS, stream},
    surge::{Site, Surge, Walk},
};

/// Requests per user that are drawn beforehand, and the most extra requests that one call draws. So no call
/// has to draw for every user at once, which takes milliseconds for a thousand.
const READY_EACH: usize = 8;
const READY_AT_ONCE: usize = 4;

/// Users that request the base file of a page, then its embedded references one by one, with active OFF times
/// between. An inactive OFF time follows before the next page.
///
/// All users draw on one stream of files, which has the site's popularity and temporal locality. User u of n
/// takes the files u, u + n, u + 2n, and so on. So the server sees that stream as far as users keep pace with
/// each other, yet a user's files do not depend on the speed of the others. In SURGE they do: the first user
/// to come takes the next file of a common list. The order alone decides which file is a base and which is
/// embedded: a page's files are drawn again at each visit.
#[derive(Debug)]
pub struct Users {
    surge: Surge,
    sizes_bytes: Vec<u64>,
    users: Vec<User>,
    agenda: Agenda,
    walk: Walk,
    /// The stream drawn so far.
    dealt: Vec<u32>,
    /// The largest number of requests made by any user.
    furthest: usize,
}

#[derive(Debug)]
struct User {
    group: u16,
    rng: ChaCha12Rng,
    /// Requests made so far.
    made: usize,
    /// Embedded references of the page that remain.
    embedded: u32,
}

impl Users {
    pub(super) fn new(site: &Site, users: u32, shares: &Shares, until_ns: u64, seed: u64) -> Self {
        let surge = site.surge().clone();
        let mut agenda = Agenda::new(until_ns);
        let users: Vec<User> = shares
            .deal(users as usize)
            .into_iter()
            .zip(0..)
            .map(|(group, number)| {
                let mut rng = stream(seed, USERS + u64::from(number));
                agenda.add(ns(rng.random::<f64>() * surge.inactive_off_s.median()), number);
                let embedded = surge.draw_embedded(&mut rng);
                User { group, rng, made: 0, embedded }
            })
            .collect();
        let mut walk = Walk::new(site.file_set().popularity(), surge.stack_distance, 0, stream(seed, FILES));
        let dealt = (0..READY_EACH * users.len()).map(|_| walk.next_file()).collect();
        Self { surge, sizes_bytes: site.sizes_bytes().to_vec(), users, agenda, walk, dealt, furthest: 0 }
    }

    pub(super) fn poll_timeout(&self) -> Option<u64> {
        self.agenda.next_ns()
    }

    pub(super) fn poll_request(&mut self, now_ns: u64) -> Option<Due> {
        let (at_ns, number) = self.agenda.take(now_ns)?;
        let sharers = self.users.len();
        let user = &mut self.users[number as usize];
        let place = user.made * sharers + number as usize;
        user.made += 1;
        let group = user.group;
        self.furthest = self.furthest.max(user.made);
        let ready = (self.furthest + READY_EACH) * sharers;
        let until = ready.min(self.dealt.len() + READY_AT_ONCE).max(place + 1);
        self.dealt.extend((self.dealt.len()..until).map(|_| self.walk.next_file()));
        let file = self.dealt[place];
        let request = Request { at_ns, file, size_bytes: self.sizes_bytes[file as usize], group };
        Some(Due { request, user: Some(number) })
    }

    pub(super) fn handle_end(&mut self, user: u32, now_ns: u64) {
        let Some(entry) = self.users.get_mut(user as usize) else {
            debug_assert!(false, "there is no user {user}");
            return;
        };
        let off_s = match entry.embedded.checked_sub(1) {
            Some(rest) => {
                entry.embedded = rest;
                self.surge.active_off_s.draw(&mut entry.rng)
            }
            None => {
                let off_s = self.surge.inactive_off_s.draw(&mut entry.rng);
                entry.embedded = self.surge.draw_embedded(&mut entry.rng);
                off_s
            }
        };
        self.agenda.add(now_ns.saturating_add(ns(off_s)), user);
    }
}
