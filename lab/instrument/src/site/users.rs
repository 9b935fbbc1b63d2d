//! The users: each requests its page, waits for the complete answer, thinks, and repeats.
//!
//! Each user has its own generator of think times, seeded by the run's seed and the user's number. So think
//! times do not depend on the gateway or on other users.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Request, header::HOST};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::SeedableRng as _;
use rand_distr::{Distribution as _, Exp1};
use serde::Deserialize;
use tokio::{
    net::TcpStream,
    task::{JoinHandle, JoinSet},
    time::{Instant, sleep, sleep_until, timeout, timeout_at},
};

use super::{
    outcome::{End, Outcome},
    plan::Plan,
};
use crate::LabError;

/// Longer pages are cut off: a page's report of itself is one line.
const MOST_BODY: usize = 1 << 20;
/// Least wait after a failure, even without think time: a port without a listener fails at once.
const AFTER_A_FAILURE: Duration = Duration::from_millis(100);
const LOOK_FOR_STOP: Duration = Duration::from_millis(100);

/// Runs all users until the end of the run. Then it waits until the site has answered requests under way, or
/// `drain` is over. `began` is the start of the run.
pub(super) async fn run(
    plan: &Plan,
    address: SocketAddr,
    began: Instant,
    stop: &AtomicBool,
) -> Result<Vec<Outcome>, LabError> {
    let mut users = JoinSet::new();
    for (number, (class, page)) in plan.each_user().enumerate() {
        let rng = generator(plan.seed, number);
        let client = PageClient::new(plan, class, page, address)?;
        let user = User {
            number,
            class,
            page,
            client,
            rng,
            think_s: plan.think_s,
            timeout: Duration::from_secs_f64(plan.timeout_s),
            silence: plan.silence.filter(|_| class == 0),
            began,
            ends: began + Duration::from_secs(plan.seconds.into()),
            drain: Duration::from_secs(plan.drain_s.into()),
        };
        users.spawn(user.live());
    }
    let mut outcomes = Vec::new();
    loop {
        tokio::select! {
            user = users.join_next() => match user {
                Some(Ok(mine)) => outcomes.extend(mine),
                Some(Err(error)) => return Err(LabError::Io("a user failed".to_owned(), std::io::Error::other(error))),
                None => break,
            },
            () = sleep(LOOK_FOR_STOP) => if stop.load(Ordering::Relaxed) {
                return Err(LabError::Interrupted);
            },
        }
    }
    outcomes.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
    Ok(outcomes)
}

/// A user's own generator: the same in all runs of a seed, and different for each user.
pub(super) fn generator(seed: u64, user: usize) -> ChaCha12Rng {
    let mut rng = ChaCha12Rng::seed_from_u64(seed);
    rng.set_stream(user as u64);
    rng
}

struct User {
    number: usize,
    class: usize,
    page: usize,
    client: PageClient,
    rng: ChaCha12Rng,
    think_s: f64,
    timeout: Duration,
    /// Seconds from the start.
    silence: Option<(u32, u32)>,
    began: Instant,
    ends: Instant,
    drain: Duration,
}

impl User {
    async fn live(mut self) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        loop {
            let next = self.next_request();
            sleep_until(next.min(self.ends)).await;
            if next >= self.ends {
                return outcomes;
            }
            let sent = Instant::now();
            let patience = sent + self.timeout;
            let reply = {
                let asking = self.client.ask();
                tokio::pin!(asking);
                match timeout_at(patience.min(self.ends), &mut asking).await {
                    Ok(answer) => Reply::Answer(answer),
                    // The site still works on this request; it must not be busy at the next run.
                    Err(_) if self.ends <= patience => {
                        let late = timeout(self.drain, &mut asking).await.ok();
                        Reply::Late(late.map(|answer| (sent.elapsed().as_secs_f64(), answer.page_s)))
                    }
                    // The user gives up and closes the connection.
                    Err(_) => Reply::Nothing,
                }
            };
            let took_s = sent.elapsed().as_secs_f64();
            let (end, took_s, page_s, late_s) = match reply {
                Reply::Answer(Answer { end, page_s }) => (end, took_s, page_s, None),
                Reply::Nothing => (End::TimedOut, took_s, None, None),
                Reply::Late(late) => {
                    let page_s = late.and_then(|(_, page_s)| page_s);
                    (End::Unfinished, (self.ends - sent).as_secs_f64(), page_s, late.map(|(late_s, _)| late_s))
                }
            };
            let failed = matches!(end, End::Failed(_));
            let Self { number: user, class, page, .. } = self;
            let at_s = (sent - self.began).as_secs_f64();
            outcomes.push(Outcome { user, class, page, at_s, took_s, end, page_s, late_s });
            if failed {
                sleep(AFTER_A_FAILURE).await;
            }
        }
    }

    /// Now plus a think time; or after the silence, if it applies to this user.
    fn next_request(&mut self) -> Instant {
        let mut think = || {
            let drawn: f64 = Exp1.sample(&mut self.rng);
            Duration::from_secs_f64(drawn * self.think_s)
        };
        let next = Instant::now() + think();
        let Some((from_s, until_s)) = self.silence else { return next };
        let at = |seconds: u32| self.began + Duration::from_secs(seconds.into());
        if at(from_s) <= next && next < at(until_s) { at(until_s) + think() } else { next }
    }
}

/// The answer that a user got.
enum Reply {
    Answer(Answer),
    /// None before the user gave up.
    Nothing,
    /// None before the end of the run. A late answer has its delay, and the page's own time.
    Late(Option<(f64, Option<f64>)>),
}

/// A client that requests a page repeatedly on a kept connection.
pub(super) struct PageClient {
    address: SocketAddr,
    request: Request<Empty<Bytes>>,
    connection: Option<Connection>,
}

/// The result of a request.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) end: End,
    /// The page's own time, in seconds.
    pub(super) page_s: Option<f64>,
}

impl PageClient {
    pub(super) fn new(plan: &Plan, class: usize, page: usize, address: SocketAddr) -> Result<Self, LabError> {
        // The site's own name, also through a gateway.
        let host = plan.site.url.trim_start_matches("http://");
        let host = HeaderValue::try_from(host);
        let request = host.map_err(http::Error::from).and_then(|host| {
            Request::get(&plan.pages[page].target)
                .header(HOST, host)
                .header(&plan.field, &plan.classes[class].value)
                .body(Empty::new())
        });
        let request = request.map_err(|error| LabError::Request(format!("--page, --site: {error}")))?;
        Ok(Self { address, request, connection: None })
    }

    pub(super) async fn ask(&mut self) -> Answer {
        let failed = |error: String| Answer { end: End::Failed(error), page_s: None };
        let mut kept = self.connection.take().filter(|connection| !connection.sender.is_closed());
        loop {
            let was_kept = kept.is_some();
            let mut connection = match kept.take() {
                Some(connection) => connection,
                None => match Connection::open(self.address).await {
                    Ok(connection) => connection,
                    Err(error) => return failed(format!("no connection: {error}")),
                },
            };
            let sent = match connection.sender.ready().await {
                Ok(()) => connection.sender.send_request(self.request.clone()).await,
                Err(error) => Err(error),
            };
            let answer = match sent {
                Ok(answer) => answer,
                // The server closed the idle connection, and has not seen this request.
                Err(error) if was_kept && (error.is_canceled() || error.is_closed()) => continue,
                Err(error) => return failed(chain(&error)),
            };
            let status = answer.status().as_u16();
            let body = match Limited::new(answer.into_body(), MOST_BODY).collect().await {
                Ok(body) => body.to_bytes(),
                Err(error) => return failed(format!("the answer broke off: {error}")),
            };
            self.connection = Some(connection);
            let end = End::of_status(status);
            let page_s = if matches!(end, End::Answered(_)) { page_s(&body) } else { None };
            return Answer { end, page_s };
        }
    }
}

/// A connection and the task that drives it; both end together.
struct Connection {
    sender: SendRequest<Empty<Bytes>>,
    mover: JoinHandle<()>,
}

impl Connection {
    async fn open(address: SocketAddr) -> Result<Self, String> {
        let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
        // If it cannot be set, the default remains.
        let _ = stream.set_nodelay(true);
        let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|error| chain(&error))?;
        // Errors of the connection are returned by its requests.
        let mover = tokio::spawn(async { drop(connection.await) });
        Ok(Self { sender, mover })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.mover.abort();
    }
}

/// Fetches a path of another server; `None` on any error.
pub(super) async fn fetch(address: SocketAddr, path: &str) -> Option<Bytes> {
    let mut connection = Connection::open(address).await.ok()?;
    let request = Request::get(path).header(HOST, address.to_string()).body(Empty::new()).ok()?;
    let answer = connection.sender.send_request(request).await.ok()?;
    let is_there = answer.status().is_success();
    let body = Limited::new(answer.into_body(), MOST_BODY).collect().await.ok()?;
    is_there.then(|| body.to_bytes())
}

/// The page's own time: `ms` in the one line of JSON in its answer.
fn page_s(body: &[u8]) -> Option<f64> {
    #[derive(Deserialize)]
    struct Said {
        ms: f64,
    }
    let said: Said = serde_json::from_slice(body).ok()?;
    (said.ms >= 0.0 && said.ms.is_finite()).then_some(said.ms / 1e3)
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text += &format!(": {next}");
        cause = next.source();
    }
    text
}

/// Requests each page once, and returns the times in seconds by name; or an error for the first wrong answer.
pub(super) async fn ask_each(
    plan: &Plan,
    address: SocketAddr,
) -> Result<Result<BTreeMap<String, Alone>, String>, LabError> {
    let mut took = BTreeMap::new();
    for (number, page) in plan.pages.iter().enumerate() {
        let mut client = PageClient::new(plan, 0, number, address)?;
        let sent = Instant::now();
        let patience = Duration::from_secs_f64(plan.timeout_s);
        let Ok(answer) = timeout(patience, client.ask()).await else {
            return Ok(Err(format!("{} does not answer within {} s", page.target, plan.timeout_s)));
        };
        match answer.end {
            End::Answered(_) => {}
            End::Failed(reason) => return Ok(Err(format!("{}: {reason}", page.target))),
            end => return Ok(Err(format!("{} answers {}", page.target, end.name()))),
        }
        took.insert(page.name.clone(), Alone { took_s: sent.elapsed().as_secs_f64(), page_s: answer.page_s });
    }
    Ok(Ok(took))
}

/// The time of a page without other users.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub(super) struct Alone {
    pub(super) took_s: f64,
    pub(super) page_s: Option<f64>,
}
