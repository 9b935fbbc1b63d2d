//! A network that is split in two: one gateway reaches the store, the other one does not, and both reach the site.

use std::{
    io::ErrorKind,
    os::unix::net::UnixStream,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread::sleep,
    time::{Duration, Instant},
};

use super::{
    cluster::{Clients, Site, Store, WINDOW, gateway_at, has_slots},
    *,
};

/// A proxy before the store that can be cut. Then it neither passes nor ends anything, as a network that drops packets.
pub(super) struct StoreProxy {
    pub address: SocketAddr,
    is_cut: Arc<AtomicBool>,
}

impl StoreProxy {
    pub fn to(store: &Store) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, socket) = (listener.local_addr().unwrap(), store.socket());
        let is_cut = Arc::new(AtomicBool::new(false));
        let cut = is_cut.clone();
        std::thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let Ok(far) = UnixStream::connect(&socket) else { continue };
                let limit = Some(Duration::from_millis(20));
                near.set_read_timeout(limit).unwrap();
                far.set_read_timeout(limit).unwrap();
                let (near_too, far_too) = (near.try_clone().unwrap(), far.try_clone().unwrap());
                for (from, to) in [
                    (Box::new(near) as Box<dyn Read + Send>, Box::new(far_too) as Box<dyn Write + Send>),
                    (Box::new(far), Box::new(near_too)),
                ] {
                    let cut = cut.clone();
                    std::thread::spawn(move || pass(from, to, &cut));
                }
            }
        });
        Self { address, is_cut }
    }

    pub fn cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, SeqCst);
    }
}

fn pass(mut from: Box<dyn Read + Send>, mut to: Box<dyn Write + Send>, is_cut: &AtomicBool) {
    let mut buffer = vec![0; 1 << 16];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return,
            Ok(bytes) => {
                while is_cut.load(SeqCst) {
                    sleep(Duration::from_millis(1));
                }
                if to.write_all(&buffer[..bytes]).is_err() {
                    return;
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => return,
        }
    }
}

#[test]
fn a_gateway_that_is_cut_off_from_the_store_has_its_part_and_the_others_divide_the_whole() {
    let Some(store) = Store::start() else { return };
    let (site, proxy) = (Site::start(), StoreProxy::to(&store));
    let (_a, a, admin_a) = gateway_at(&format!("unix://{}", store.socket().display()), &site, "");
    let (_b, b, admin_b) = gateway_at(&format!("redis://{}", proxy.address), &site, "");
    wait_for_metric(admin_a, "serpent_lease_gateways 2");
    wait_for_metric(admin_b, "serpent_lease_gateways 2");
    let clients = [Clients::start(&a, 12), Clients::start(&b, 12)];
    clients.iter().for_each(|clients| clients.wait_for_answers(200));
    assert_eq!(site.most(), WINDOW);

    proxy.cut(true);
    wait_for_metric(admin_b, "serpent_lease_in_force 0");
    has_slots(admin_b, WINDOW / 2);
    has_slots(admin_a, WINDOW);
    clients.iter().for_each(|clients| clients.wait_for_answers(200));
    let most = site.most();
    println!("split: at most {most} of {WINDOW}");
    assert!(most > WINDOW, "both work on: {most}");
    assert!(most <= WINDOW + WINDOW / 2, "the bound is the equal part of the gateway that is cut off: {most}");

    proxy.cut(false);
    let joined = Instant::now();
    wait_for_metric(admin_b, "serpent_lease_in_force 1");
    wait_for_metric(admin_a, "serpent_lease_gateways 2");
    // Until the store knows what both hold, nothing is granted beyond that.
    while {
        site.most();
        clients.iter().for_each(|clients| clients.wait_for_answers(100));
        site.most() > WINDOW
    } {
        assert!(joined.elapsed() < PATIENCE, "more than the window goes on");
    }
    let took = joined.elapsed();
    println!("joined again: exact after {took:.3?}");
    assert!(took < Duration::from_secs(3), "{took:?}");
    clients.iter().for_each(|clients| clients.wait_for_answers(300));
    assert_eq!(site.most(), WINDOW);
    assert_eq!(clients.map(Clients::end), [0, 0], "no request is lost");
}
