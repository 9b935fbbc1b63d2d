//! A second attempt of a slow request at another server, while the first one goes on.
//!
//! Both race for the head of an answer. The loser is dropped, which closes its connection or resets its stream. Only
//! safe requests without a body are sent twice, and no longer once the client has got a byte.

use std::{
    any::Any,
    future::Future,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use bodies::RequestBody;
use parking_lot::Mutex;
use tokio::time::sleep;

use crate::{
    error::UpstreamError,
    group::Group,
    pools::Pools,
    send::{Begun, Passed, PreparedRequest, answer},
    server::InFlight,
    wire::Interim,
};

/// Held while a request is at a second server: a slot of the site, if requests need one.
pub type SecondSlot = Box<dyn Any + Send>;

impl Pools {
    /// As [`Pools::pass`]. If the upstream says so and the answer takes long, another server is asked as well. `slot`
    /// is called for that; `None`: the site has no room.
    pub async fn pass_hedged(
        &self,
        mut prepared: Box<PreparedRequest>,
        interim: &mut (dyn FnMut(Interim) + Send),
        slot: &mut (dyn FnMut() -> Option<SecondSlot> + Send),
    ) -> Passed {
        let delay = self.group(prepared.upstream).ok().and_then(|group| group.hedge_after(prepared.class));
        match delay.filter(|_| prepared.can_be_sent_twice()) {
            // In a box, because few upstreams do this.
            Some(delay) => Box::pin(self.race(prepared, interim, slot, delay)).await,
            None => {
                let answered = self.pass_counting(&mut prepared, interim).await;
                Passed { answered, attempts: prepared.attempts }
            }
        }
    }

    async fn race(
        &self,
        mut prepared: Box<PreparedRequest>,
        interim: &mut (dyn FnMut(Interim) + Send),
        slot: &mut (dyn FnMut() -> Option<SecondSlot> + Send),
        delay: std::time::Duration,
    ) -> Passed {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let mut twin = prepared.twin();
        prepared.asked = Some(asked.clone());
        let (has_passed, races) = (AtomicBool::new(false), AtomicBool::new(false));
        let mut told = |response| {
            // Of two attempts, the client hears of neither before one of them has answered.
            if !races.load(Relaxed) {
                has_passed.store(true, Relaxed);
                interim(response);
            }
        };
        let (mut held, mut held_of_twin) = (None, None);
        let (ended, is_of_twin) = {
            let mut first = pin!(self.attempt(&mut prepared, &mut told, &mut held, None));
            let early = tokio::select! {
                biased;
                ended = &mut first => Some(ended),
                () = sleep(delay) => None,
            };
            let second = match early {
                None if !has_passed.load(Relaxed) => self.second(&twin, &asked.lock(), slot),
                _ => None,
            };
            match (early, second) {
                (Some(ended), _) => (ended, false),
                (None, None) => (first.await, false),
                (None, Some((server, _slot))) => {
                    races.store(true, Relaxed);
                    let mut nothing = |_| {};
                    let second = pin!(self.attempt(&mut twin, &mut nothing, &mut held_of_twin, Some(server)));
                    first_that_succeeds(first, second).await
                }
            }
        };
        if is_of_twin && let Ok(group) = self.group(twin.upstream) {
            group.hedges.won.fetch_add(1, Relaxed);
        }
        let attempts = prepared.attempts + twin.attempts;
        let (held, prepared) = if is_of_twin { (held_of_twin, &twin) } else { (held, &prepared) };
        let begun = ended.or_else(|error| held.ok_or(error));
        Passed { answered: begun.and_then(|begun| answer(begun, &prepared.head, &prepared.place)), attempts }
    }

    /// The server and the slot for a second attempt, if there are both and the budget allows it.
    fn second(
        &self,
        twin: &PreparedRequest,
        asked: &[u64],
        slot: &mut (dyn FnMut() -> Option<SecondSlot> + Send),
    ) -> Option<(InFlight, SecondSlot)> {
        let group: &Arc<Group> = self.group(twin.upstream).ok()?;
        let server = self.pick(group, twin.class, &twin.place, asked).ok()?;
        if !group.takes_hedge() {
            return None;
        }
        let slot = slot().or_else(|| group.refuses_hedge())?;
        let server = InFlight::new(server, group.config.most_requests).or_else(|| group.refuses_hedge())?;
        group.hedges.sent.fetch_add(1, Relaxed);
        Some((server, slot))
    }
}

/// The first result that is a success, or that of the first attempt if neither is one; and whether it is the second's.
async fn first_that_succeeds(
    mut first: impl Future<Output = Result<Begun, UpstreamError>> + Unpin,
    mut second: impl Future<Output = Result<Begun, UpstreamError>> + Unpin,
) -> (Result<Begun, UpstreamError>, bool) {
    tokio::select! {
        biased;
        ended = &mut first => match ended {
            Ok(begun) => (Ok(begun), false),
            Err(error) => match second.await {
                Ok(begun) => (Ok(begun), true),
                Err(_) => (Err(error), false),
            },
        },
        ended = &mut second => match ended {
            Ok(begun) => (Ok(begun), true),
            Err(_) => (first.await, false),
        },
    }
}

impl PreparedRequest {
    /// Whether a second server may get it while the first one works on it.
    fn can_be_sent_twice(&self) -> bool {
        self.head.method.is_safe() && matches!(self.body, RequestBody::Empty) && self.head.upgrade.is_none()
    }

    /// The same for another server.
    fn twin(&self) -> Box<Self> {
        Box::new(Self {
            upstream: self.upstream,
            class: self.class,
            head: self.head.clone(),
            started: self.started,
            idle: self.idle,
            end: self.end,
            until: self.until,
            place: self.place.clone(),
            ends: self.ends,
            headers: self.headers.clone(),
            body: RequestBody::Empty,
            attempts: 0,
            asked: None,
        })
    }
}
