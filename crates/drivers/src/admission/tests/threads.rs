//! Several threads enter and leave concurrently: windows hold, and no request is lost.

use super::*;

const THREADS: usize = 4;
const TASKS: usize = 6;
const REQUESTS: usize = 150;
const WINDOW: u32 = 3;
const GOLD: u32 = 2;
/// Time limit of the test, which normally takes a second.
const PATIENCE: Duration = Duration::from_secs(120);

/// The number of requests that are in, and its maximum.
#[derive(Default)]
struct Inside {
    now: AtomicU32,
    most: AtomicU32,
}

impl Inside {
    fn come(&self) {
        let now = self.now.fetch_add(1, SeqCst) + 1;
        self.most.fetch_max(now, SeqCst);
    }

    fn go(&self) {
        self.now.fetch_sub(1, SeqCst);
    }
}

/// Pseudorandom numbers, the same in every run.
fn draw(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

async fn client(admission: Admission, mut seed: u64, all: Arc<Inside>, gold: Arc<Inside>, served: Arc<AtomicUsize>) {
    for _ in 0..REQUESTS {
        let class = (draw(&mut seed) % 2) as u16;
        let mut enter = Box::pin(admission.enter(arrival(class)));
        if draw(&mut seed).is_multiple_of(4) {
            // Dropped after a few polls, in whatever state it is then.
            for _ in 0..draw(&mut seed) % 3 {
                let waiting = std::future::poll_fn(|cx| Poll::Ready(enter.as_mut().poll(cx))).await;
                if waiting.is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
            continue;
        }
        let Ok(slot) = enter.await else { panic!("no limit that could be the cause of a refusal") };
        all.come();
        if class == 0 {
            gold.come();
        }
        tokio::task::yield_now().await;
        if class == 0 {
            gold.go();
        }
        all.go();
        served.fetch_add(1, SeqCst);
        match draw(&mut seed) % 3 {
            0 => drop(slot),
            _ => slot.finish(),
        }
    }
}

#[test]
fn windows_hold_and_nobody_is_lost_among_threads() {
    let gold = Class { most_running: Some(GOLD), ..Class::default() };
    let settings = |weight| classes(&[("gold", gold), ("plain", Class { weight, ..Class::default() })], Some(WINDOW));
    let admission = Admission::new(settings(1)).unwrap();
    let (all, in_gold, served) = (Arc::<Inside>::default(), Arc::<Inside>::default(), Arc::<AtomicUsize>::default());
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (admission, all, gold, served) = (admission.clone(), all.clone(), in_gold.clone(), served.clone());
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                runtime.block_on(async {
                    let tasks: Vec<_> = (0..TASKS)
                        .map(|task| {
                            let seed = (thread * TASKS + task) as u64 + 1;
                            let seed = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
                            tokio::spawn(client(admission.clone(), seed, all.clone(), gold.clone(), served.clone()))
                        })
                        .collect();
                    for task in tasks {
                        task.await.unwrap();
                    }
                });
            })
        })
        .collect();
    let (mut weight, started) = (1, std::time::Instant::now());
    while !threads.iter().all(std::thread::JoinHandle::is_finished) {
        weight = weight % 9 + 1;
        admission.reconfigure(settings(weight)).unwrap();
        assert!(started.elapsed() < PATIENCE, "somebody waits for ever: {:?}", admission.stats());
        std::thread::yield_now();
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());

    assert!(all.most.load(SeqCst) <= WINDOW, "{}", all.most.load(SeqCst));
    assert!(in_gold.most.load(SeqCst) <= GOLD, "{}", in_gold.most.load(SeqCst));
    let stats = admission.stats();
    let sum = |number: fn(&ClassStats) -> u64| stats.classes.iter().map(|(_, it)| number(it)).sum::<u64>();
    assert_eq!(sum(|it| (it.waiting + it.running) as u64), 0);
    assert_eq!(sum(|it| it.arrived), sum(|it| it.finished + it.gone_running + it.gone_waiting));
    assert!(sum(|it| it.finished) > 0 && sum(|it| it.gone_waiting) > 0, "{stats:?}");
    assert!(served.load(SeqCst) as u64 <= sum(|it| it.finished + it.gone_running));
    assert_eq!(admission.driver.tickets(), (0, 0));
}
