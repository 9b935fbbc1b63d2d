//! Random events in random order, with futures dropped anywhere. No request is lost, windows hold, and
//! exactly the tasks with an answer are woken.

use proptest::{collection::vec, option, prelude::*, sample::select};
use scheduler::admission::Late;

use super::*;
use crate::config::ResourceConfig;

const NAMES: [&str; 4] = ["gold", "silver", "bronze", "plain"];
const RESOURCES: [&str; 3] = ["site", "disk", "database"];

#[derive(Clone, Debug)]
enum Event {
    /// A request arrives by the handle of the last change, or by an older one.
    Came {
        class: u16,
        resource: u16,
        route: u64,
        age: usize,
    },
    Polled {
        pick: usize,
    },
    Dropped {
        pick: usize,
    },
    Finished {
        pick: usize,
    },
    GivenUp {
        pick: usize,
    },
    Passed {
        ms: u64,
    },
    Changed(Box<Classes>),
}

fn given() -> impl Strategy<Value = Class> {
    let order = select(
        &[
            QueueOrder::Adaptive,
            QueueOrder::Fifo,
            QueueOrder::Shortest,
            QueueOrder::LifoUnderOverload { after_ns: 30_000_000 },
            QueueOrder::FairAmongClients,
        ][..],
    );
    let limits = (option::weighted(0.3, 1..4u32), option::weighted(0.5, 1..60u64), 0..6u32);
    (1..5u32, limits, option::weighted(0.5, 0..80u64), order).prop_map(
        |(weight, (most_running, wait_ms, most_waiting), deadline_ms, order)| Class {
            weight,
            delay_ratio: weight,
            reserved_slots: 0,
            most_running,
            deadline_ns: deadline_ms.map(|ms| ms * 1_000_000),
            order,
            most_waiting,
            most_wait_ns: wait_ms.map(|ms| ms * 1_000_000),
        },
    )
}

fn settings() -> impl Strategy<Value = Classes> {
    let resources = vec(option::weighted(0.5, 1..4u32), 1..=RESOURCES.len());
    let late = select(&[Late::Serve, Late::Refuse][..]);
    let names = Just(NAMES.to_vec()).prop_shuffle();
    (
        names,
        vec(given(), 1..=NAMES.len()),
        resources,
        1..6u32,
        select(&Policy::ALL[..]),
        late,
        prop::bool::weighted(0.9),
    )
        .prop_map(|(names, given, windows, total, policy, late, enabled)| {
            let given: Vec<_> = names.into_iter().zip(given).collect();
            let mut classes = classes(&given, Some(total));
            classes.admission.policy = policy;
            classes.admission.late = late;
            classes.admission.enabled = enabled;
            let resource =
                |(name, window): (&&str, Option<u32>)| ResourceConfig::new(*name, window.and_then(NonZeroU32::new));
            classes.admission.resources = RESOURCES.iter().zip(windows).map(resource).collect();
            classes
        })
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        20 => (0..4u16, 0..3u16, 0..3u64, 0..3usize)
            .prop_map(|(class, resource, route, age)| Event::Came { class, resource, route, age }),
        10 => any::<usize>().prop_map(|pick| Event::Polled { pick }),
        5 => any::<usize>().prop_map(|pick| Event::Dropped { pick }),
        10 => any::<usize>().prop_map(|pick| Event::Finished { pick }),
        3 => any::<usize>().prop_map(|pick| Event::GivenUp { pick }),
        8 => (0..40u64).prop_map(|ms| Event::Passed { ms }),
        2 => settings().prop_map(|settings| Event::Changed(Box::new(settings))),
    ]
}

struct World {
    handles: Vec<Admission>,
    classes: Classes,
    waiting: Vec<Asker>,
    slots: Vec<Slot>,
    came: usize,
    ended: usize,
    /// Most requests that may be in: the windows in force, or the number that was in when they shrank.
    most: usize,
}

impl World {
    fn admission(&self) -> &Admission {
        self.handles.last().expect("one for each change")
    }

    fn answered(&mut self, answer: Result<Slot, Refused>) {
        match answer {
            Ok(slot) => self.slots.push(slot),
            Err(_) => self.ended += 1,
        }
    }

    async fn happens(&mut self, event: Event) {
        let pick = |pick: usize, from: usize| (from > 0).then(|| pick % from);
        match event {
            Event::Came { class, resource, route, age } => {
                let handle = &self.handles[self.handles.len().saturating_sub(1 + age)];
                let arrival = Arrival {
                    class: ClassId(class),
                    resource: ResourceId(resource),
                    client: route,
                    route,
                    within: None,
                };
                self.came += 1;
                let (asker, answer) = Asker::new(handle, arrival);
                match answer {
                    Poll::Pending => self.waiting.push(asker),
                    Poll::Ready(answer) => self.answered(answer),
                }
            }
            Event::Polled { pick: number } => {
                if let Some(at) = pick(number, self.waiting.len())
                    && let Poll::Ready(answer) = self.waiting[at].poll()
                {
                    self.waiting.swap_remove(at);
                    self.answered(answer);
                }
            }
            Event::Dropped { pick: number } => {
                if let Some(at) = pick(number, self.waiting.len()) {
                    self.waiting.swap_remove(at);
                    self.ended += 1;
                }
            }
            Event::Finished { pick: number } => {
                if let Some(at) = pick(number, self.slots.len()) {
                    self.slots.swap_remove(at).finish();
                    self.ended += 1;
                }
            }
            Event::GivenUp { pick: number } => {
                if let Some(at) = pick(number, self.slots.len()) {
                    self.slots.swap_remove(at);
                    self.ended += 1;
                }
            }
            Event::Passed { ms } => {
                pass(ms).await;
                if self.admission().alarm_at().is_some_and(|at| at <= tokio::time::Instant::now()) {
                    self.admission().ring();
                }
            }
            Event::Changed(settings) => {
                if let Ok(new) = self.admission().reconfigure(&*settings) {
                    self.handles.push(new);
                    self.classes = *settings;
                }
            }
        }
    }

    /// Slots in use, as the scheduler counts them.
    fn running(&self) -> usize {
        self.admission().stats().classes.iter().map(|(_, stats)| stats.running).sum()
    }

    fn check(&mut self) {
        let running = self.running();
        let held = self.slots.iter().filter(|slot| slot.held.is_some()).count();
        assert_eq!(running, held + self.admission().driver.given(), "each slot in use is somebody's");
        let total = match self.classes.admission.enabled {
            true => self.classes.admission.total.map_or(usize::MAX, |total| total.get() as usize),
            false => usize::MAX,
        };
        // Requests above a lowered limit may stay, but no more enter.
        self.most = self.most.min(running).max(total);
        assert!(running <= self.most, "{running} in, {total} allowed");
        self.most = running.max(total);
        for asker in &self.waiting {
            let decided = asker.ticket().is_some_and(|at| self.admission().driver.is_decided(at));
            assert_eq!(asker.rung(), usize::from(decided), "woken once if there is an answer, and not otherwise");
        }
        assert_eq!(self.admission().driver.tickets().0, self.waiting.len(), "a ticket for each who waits");
    }

    /// All requests come to an end.
    async fn end(mut self) {
        for _ in 0..self.came + 1 {
            self.ended += self.slots.len();
            self.slots.drain(..).for_each(Slot::finish);
            for mut asker in std::mem::take(&mut self.waiting) {
                match asker.poll() {
                    Poll::Ready(answer) => self.answered(answer),
                    Poll::Pending => self.waiting.push(asker),
                }
            }
        }
        assert_eq!((self.waiting.len(), self.ended), (0, self.came), "nobody is lost");
        let stats = self.admission().stats();
        let (waiting, running) = stats
            .classes
            .iter()
            .fold((0, 0), |(waiting, running), (_, stats)| (waiting + stats.waiting, running + stats.running));
        assert_eq!((waiting, running), (0, 0));
        assert_eq!(self.admission().driver.tickets(), (0, 0));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn nobody_is_lost_and_windows_hold(first in settings(), events in vec(event(), 0..120)) {
        prop_assume!(Admission::check(&first).is_ok());
        by_hand(async {
            let admission = Admission::by_hand(&first).unwrap();
            let mut world = World {
                handles: vec![admission],
                classes: first,
                waiting: Vec::new(),
                slots: Vec::new(),
                came: 0,
                ended: 0,
                most: usize::MAX,
            };
            world.check();
            for event in events {
                world.happens(event).await;
                world.check();
            }
            world.end().await;
        });
    }
}
