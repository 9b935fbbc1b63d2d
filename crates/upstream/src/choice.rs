//! Which server gets a request: the servers that can take it, and the rule that chooses among them.

use std::{sync::Arc, time::Duration};

use smallvec::SmallVec;

use crate::{
    balance::{Candidate, hash, least_loaded, power_of_two, round_robin},
    config::{Balance, UpstreamConfig},
    server::{Health, Server, ServerMode},
};

/// The properties of a request for the choice of its server.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wish<'a> {
    /// Servers that cannot take it.
    pub(crate) skip: &'a [u64],
    /// Rotates the choice between equals.
    pub(crate) turn: usize,
    /// The number of its key, under a rule with keys.
    pub(crate) key: Option<u64>,
    /// The value of its cookie, which names its server.
    pub(crate) token: Option<&'a [u8]>,
}

/// Servers that can be chosen, and how the rule sees them, in the same order.
#[derive(Default)]
struct Candidates<'a> {
    servers: SmallVec<[&'a Arc<Server>; 8]>,
    seen: SmallVec<[Candidate; 8]>,
}

impl<'a> Candidates<'a> {
    fn of(servers: impl Iterator<Item = &'a Arc<Server>>, slow_start: Duration) -> Self {
        let mut candidates = Self::default();
        servers.for_each(|server| candidates.push(server, slow_start));
        candidates
    }

    fn push(&mut self, server: &'a Arc<Server>, slow_start: Duration) {
        let state = &server.state;
        let weight = server.weight() * state.percent(slow_start);
        self.servers.push(server);
        self.seen.push(Candidate { load: state.in_flight(), weight, identity: server.identity });
    }

    fn remove(&mut self, at: usize) -> &'a Arc<Server> {
        self.seen.remove(at);
        self.servers.remove(at)
    }
}

/// Chooses the server for a request. `servers` are sorted by priority.
///
/// The server that the client's cookie names comes first. Then the priorities are tried in turn. Within a priority, a
/// server whose pause is over and that no request tries yet comes first, then the rule chooses a healthy one. The hash
/// of a key chooses among both. Last comes a paused or ejected server, since no server may be healthy. Servers that
/// are down, disabled or in `skip` are never chosen, and draining ones only by a cookie.
pub(crate) fn choose<'a>(
    servers: &'a [Arc<Server>],
    config: &UpstreamConfig,
    wish: Wish<'_>,
) -> Option<&'a Arc<Server>> {
    let pause = config.passive.pause;
    let has_room = |server: &Server| config.most_requests.is_none_or(|most| server.state.in_flight() < most.get());
    let can_take = |server: &&Arc<Server>| !wish.skip.contains(&server.id) && has_room(server);
    if let Some(token) = wish.token {
        let is_used = |server: &&Arc<Server>| server.state.mode() != ServerMode::Disabled;
        let own = servers.iter().filter(can_take).filter(is_used).find(|server| server.has_token(token));
        if let Some(own) = own.filter(|own| own.state.health() == Health::Healthy || own.state.try_again(pause)) {
            return Some(own);
        }
    }
    let can_take = |server: &&Arc<Server>| can_take(server) && server.state.mode() == ServerMode::Enabled;
    for level in servers.chunk_by(|one, other| one.spec.priority == other.spec.priority) {
        if let Some(chosen) = choose_of_level(level.iter().filter(can_take), config, wish) {
            return Some(chosen);
        }
    }
    let paused = |server: &&Arc<Server>| matches!(server.state.health(), Health::Paused | Health::Ejected);
    for level in servers.chunk_by(|one, other| one.spec.priority == other.spec.priority) {
        let left = Candidates::of(level.iter().filter(can_take).filter(paused), config.slow_start);
        if let Some(at) = least_loaded::choose(&left.seen, wish.turn as u64) {
            return left.servers.get(at).copied();
        }
    }
    None
}

fn choose_of_level<'a>(
    servers: impl Iterator<Item = &'a Arc<Server>> + Clone,
    config: &UpstreamConfig,
    wish: Wish<'_>,
) -> Option<&'a Arc<Server>> {
    let pause = config.passive.pause;
    let turn = wish.turn as u64;
    if let (Balance::Hash { bound, .. }, Some(key)) = (&config.balance, wish.key) {
        // A server is tried again by a request of its own.
        let usable = |server: &&Arc<Server>| match server.state.health() {
            Health::Healthy => true,
            Health::Paused => server.state.is_pause_over(),
            Health::Ejected | Health::Down => false,
        };
        let mut left = Candidates::of(servers.filter(usable), config.slow_start);
        while let Some(at) = hash::choose(&left.seen, key, *bound) {
            let server = left.remove(at);
            if server.state.health() == Health::Healthy || server.state.try_again(pause) {
                return Some(server);
            }
        }
        return None;
    }
    let mut healthy = Candidates::default();
    for server in servers {
        match server.state.health() {
            Health::Ejected | Health::Down => {}
            Health::Paused if server.state.try_again(pause) => return Some(server),
            Health::Paused => {}
            Health::Healthy => healthy.push(server, config.slow_start),
        }
    }
    let seen = &healthy.seen;
    let at = match config.balance {
        Balance::LeastLoaded | Balance::Hash { .. } => least_loaded::choose(seen, turn),
        Balance::RoundRobin => round_robin::choose(seen, turn),
        Balance::PowerOfTwo => power_of_two::choose(seen, [fastrand::u64(..), fastrand::u64(..)]),
    };
    healthy.servers.get(at?).copied()
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::{
        config::{ActiveChecks, HashKey, PassiveChecks, UpstreamAddress, UpstreamServer},
        server::{Endpoint, InFlight, ServerChange, ServerState},
    };

    const PAUSE: Duration = Duration::from_secs(10);

    fn server(port: u16, weight: u32, priority: u32) -> Arc<Server> {
        let address: SocketAddr = ([127, 0, 0, 1], port).into();
        let authority = http::uri::Authority::from_static("upstream");
        let spec = UpstreamServer::new(UpstreamAddress::Socket(address), None, false, authority);
        let spec = UpstreamServer { weight, priority, ..spec };
        let token = Some(format!("token{port}").into());
        Arc::new(Server::new(port.into(), &spec, Endpoint::Tcp(address), None, ServerState::new(), token))
    }

    fn servers(count: u16) -> Vec<Arc<Server>> {
        (0..count).map(|port| server(port, 1, 1)).collect()
    }

    fn config() -> UpstreamConfig {
        UpstreamConfig { passive: passive(2), ..UpstreamConfig::new("app", Vec::new()) }
    }

    fn passive(failures: u32) -> PassiveChecks {
        PassiveChecks { failures, pause: PAUSE }
    }

    fn in_flight(server: &Arc<Server>) -> InFlight {
        InFlight::new(server.clone(), None).unwrap()
    }

    fn chosen(servers: &[Arc<Server>], skip: &[u64], turn: usize) -> Option<u64> {
        choose(servers, &config(), Wish { skip, turn, ..Wish::default() }).map(|server| server.id)
    }

    fn chosen_by(servers: &[Arc<Server>], config: &UpstreamConfig, wish: Wish<'_>) -> Option<u64> {
        choose(servers, config, wish).map(|server| server.id)
    }

    #[tokio::test(start_paused = true)]
    async fn the_least_busy_is_chosen_and_equals_take_turns() {
        let servers = servers(3);
        let turns: Vec<_> = (0..6).map(|turn| chosen(&servers, &[], turn).unwrap()).collect();
        assert_eq!(turns, [0, 1, 2, 0, 1, 2]);
        let first = in_flight(&servers[0]);
        let second = in_flight(&servers[1]);
        assert!((0..6).all(|turn| chosen(&servers, &[], turn) == Some(2)));
        drop(first);
        let _third = in_flight(&servers[2]);
        assert!((0..6).all(|turn| chosen(&servers, &[], turn) == Some(0)));
        drop(second);
        assert!((0..6).all(|turn| chosen(&servers, &[0], turn) == Some(1)));
        assert_eq!(chosen(&[], &[], 5), None);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_fails_is_left_alone_and_then_tried_by_one_request() {
        let servers = servers(2);
        let bad = &servers[0];
        bad.failed("app", &passive(2));
        assert_eq!(bad.state.health(), Health::Healthy);
        bad.failed("app", &passive(2));
        assert_eq!(bad.state.health(), Health::Paused);
        assert!((0..4).all(|turn| chosen(&servers, &[], turn) == Some(1)));
        tokio::time::advance(PAUSE).await;
        assert_eq!(chosen(&servers, &[], 1), Some(0), "the one trial");
        assert!((0..4).all(|turn| chosen(&servers, &[], turn) == Some(1)), "everyone else keeps away");
        bad.failed("app", &passive(2));
        tokio::time::advance(PAUSE - Duration::from_nanos(1)).await;
        assert!((0..4).all(|turn| chosen(&servers, &[], turn) == Some(1)), "one failure is enough to wait again");
        tokio::time::advance(PAUSE).await;
        assert_eq!(chosen(&servers, &[], 0), Some(0));
        bad.answered("app");
        assert_eq!(bad.state.health(), Health::Healthy);
        bad.failed("app", &passive(2));
        assert_eq!(bad.state.health(), Health::Healthy, "counted anew");
    }

    #[tokio::test(start_paused = true)]
    async fn where_all_have_failed_one_is_tried_all_the_same() {
        let servers = servers(2);
        servers.iter().for_each(|server| server.failed("app", &passive(1)));
        assert_eq!(chosen(&servers, &[], 0), Some(0));
        assert_eq!(chosen(&servers, &[0], 0), Some(1));
        assert_eq!(chosen(&servers, &[0, 1], 0), None);
    }

    #[tokio::test(start_paused = true)]
    async fn active_checks_rise_and_fall() {
        let checks = ActiveChecks {
            path: http::Uri::from_static("/well"),
            every: PAUSE,
            timeout: PAUSE,
            statuses: (200, 299),
            rise: 2,
            fall: 3,
        };
        let servers = servers(1);
        let mut seen = String::new();
        for passed in [false, false, true, false, false, false, true, false, true, true, false] {
            servers[0].checked("app", if passed { Ok(()) } else { Err("500".to_owned()) }, &checks);
            seen.push(if chosen(&servers, &[], 0).is_some() { 'u' } else { 'd' });
        }
        assert_eq!(seen, "uuuuuddddu".to_owned() + "u");
    }

    #[tokio::test(start_paused = true)]
    async fn backups_and_lower_priorities_wait_for_all_before_them() {
        let servers = [server(0, 1, 1), server(1, 1, 1), server(2, 1, 2), server(3, 1, UpstreamServer::BACKUP)];
        let all = |skip: &[u64]| (0..4).filter_map(|turn| chosen(&servers, skip, turn)).collect::<Vec<_>>();
        assert_eq!(all(&[]), [0, 1, 0, 1]);
        assert_eq!(all(&[0]), [1; 4]);
        assert_eq!(all(&[0, 1]), [2; 4]);
        assert_eq!(all(&[0, 1, 2]), [3; 4]);
        servers[..3].iter().for_each(|server| server.failed("app", &passive(1)));
        assert_eq!(all(&[]), [3; 4], "a backup that is well comes before paused servers");
        servers[3].failed("app", &passive(1));
        assert_eq!(all(&[]), [0, 1, 0, 1], "where none is well, the first priority is tried");
        tokio::time::advance(PAUSE).await;
        assert_eq!(chosen(&servers, &[], 0), Some(0), "a server is tried again before its backup");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_keeps_the_server_of_its_cookie_while_that_one_is_well() {
        let servers = [server(0, 1, 1), server(1, 1, 1), server(2, 1, UpstreamServer::BACKUP)];
        let kept = |token: &'static str, skip| {
            let wish = |turn| Wish { skip, turn, token: Some(token.as_bytes()), ..Wish::default() };
            (0..4).filter_map(|turn| chosen_by(&servers, &config(), wish(turn))).collect::<Vec<_>>()
        };
        let _busy = in_flight(&servers[1]);
        assert_eq!(kept("token1", &[]), [1; 4]);
        assert_eq!(kept("token2", &[]), [2; 4], "a client that came to the backup stays there");
        assert_eq!(kept("token1", &[1]), [0; 4]);
        assert_eq!(kept("token9", &[]), [0; 4], "nothing is known of such a server");
        servers[1].failed("app", &passive(1));
        assert_eq!(kept("token1", &[]), [0; 4]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_keeps_its_server_and_comes_back_to_it() {
        let servers = servers(5);
        let config = UpstreamConfig { balance: Balance::Hash { key: HashKey::Path, bound: None }, ..config() };
        let of = |key, turn| chosen_by(&servers, &config, Wish { key: Some(key), turn, ..Wish::default() }).unwrap();
        let before: Vec<_> = (0..100).map(|key| of(key, 0)).collect();
        assert!((0..5).all(|server| before.contains(&server)));
        assert_eq!((0..100).map(|key| of(key, 3)).collect::<Vec<_>>(), before, "turns do not matter");
        servers[2].failed("app", &passive(1));
        for key in 0..100 {
            match before[key as usize] {
                2 => assert_ne!(of(key, 0), 2),
                same => assert_eq!(of(key, 0), same),
            }
        }
        tokio::time::advance(PAUSE).await;
        let (mut own, mut other) = ((0..100).filter(|key| before[*key as usize] == 2), 0..100);
        let foreign = other.find(|key| before[*key as usize] != 2).unwrap();
        assert_ne!(of(foreign, 0), 2, "another key's request tries no server that is not its own");
        let first = own.next().unwrap();
        assert_eq!(of(first, 0), 2, "the trial");
        assert_ne!(of(first, 0), 2, "there is one trial");
        servers[2].answered("app");
        assert!(own.all(|key| of(key, 0) == 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_draining_server_keeps_its_clients_and_a_disabled_one_none() {
        let servers = servers(2);
        let become_ = |mode| servers[0].state.change(ServerChange { mode: Some(mode), ..ServerChange::default() });
        let new = || (0..4).map(|turn| chosen(&servers, &[], turn)).collect::<Vec<_>>();
        let known = || chosen_by(&servers, &config(), Wish { token: Some(b"token0"), ..Wish::default() });
        become_(ServerMode::Draining);
        assert_eq!((new(), known()), (vec![Some(1); 4], Some(0)));
        become_(ServerMode::Disabled);
        assert_eq!((new(), known()), (vec![Some(1); 4], Some(1)));
        servers[1].failed("app", &passive(1));
        assert_eq!(new(), [Some(1); 4], "a paused server comes before a disabled one");
        assert_eq!(chosen(&servers, &[1], 0), None);
        become_(ServerMode::Enabled);
        assert_eq!(new(), [Some(0); 4]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_has_no_more_requests_than_it_may_have() {
        let servers = servers(2);
        let most = std::num::NonZeroU32::new(1);
        let config = UpstreamConfig { most_requests: most, ..config() };
        let new = || chosen_by(&servers, &config, Wish::default());
        let first = InFlight::new(servers[0].clone(), most).unwrap();
        assert!(InFlight::new(servers[0].clone(), most).is_none());
        assert_eq!(new(), Some(1));
        let _second = InFlight::new(servers[1].clone(), most).unwrap();
        assert_eq!(new(), None);
        drop(first);
        assert_eq!(new(), Some(0));
    }

    #[tokio::test(start_paused = true)]
    async fn an_outlier_is_left_alone_unless_no_other_server_is_well() {
        let servers = servers(2);
        assert_eq!(servers[0].state.eject(PAUSE), PAUSE);
        assert!((0..4).all(|turn| chosen(&servers, &[], turn) == Some(1)));
        assert_eq!(chosen(&servers, &[1], 0), Some(0));
        tokio::time::advance(PAUSE).await;
        servers[0].state.end_ejection("app", "a");
        assert_eq!(servers[0].state.health(), Health::Healthy);
        assert_eq!(servers[0].state.eject(PAUSE), 2 * PAUSE, "longer each time");
    }

    #[tokio::test(start_paused = true)]
    async fn a_weight_can_be_given_and_taken_back() {
        let servers = servers(2);
        let config = UpstreamConfig { balance: Balance::RoundRobin, ..config() };
        let part = || {
            let wish = |turn| Wish { turn, ..Wish::default() };
            (0..100).filter(|turn| chosen_by(&servers, &config, wish(*turn)) == Some(0)).count()
        };
        servers[0].state.change(ServerChange { weight: Some(Some(3)), ..ServerChange::default() });
        assert_eq!((part(), servers[0].state.is_changed()), (75, true));
        servers[0].state.change(ServerChange { weight: Some(None), ..ServerChange::default() });
        assert_eq!((part(), servers[0].state.is_changed()), (50, false));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_comes_back_starts_slowly() {
        let servers = servers(2);
        let config = UpstreamConfig {
            balance: Balance::RoundRobin,
            slow_start: Duration::from_secs(20),
            passive: passive(1),
            ..config()
        };
        let part = || {
            let wish = |turn| Wish { turn, ..Wish::default() };
            (0..1_100).filter(|turn| chosen_by(&servers, &config, wish(*turn)) == Some(0)).count()
        };
        assert_eq!(part(), 550);
        servers[0].failed("app", &config.passive);
        tokio::time::advance(PAUSE).await;
        assert_eq!(chosen_by(&servers, &config, Wish::default()), Some(0), "the trial");
        servers[0].answered("app");
        assert_eq!(part(), 100, "a tenth of the other's part");
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!((380..400).contains(&part()), "{}", part());
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(part(), 550);
    }
}
