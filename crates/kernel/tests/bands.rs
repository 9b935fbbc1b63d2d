//! Bands on a real device in network namespaces. Run as root: `cargo test -p serpent-kernel --test bands`.
#![cfg(target_os = "linux")]

mod support;

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::PathBuf,
};

use serpent_kernel::{
    bands::{self, BandShown, BandsError, How, InstallOptions, Installed, Qdisc, Shape},
    socket,
};
use support::{DEVICE, Flood, Testbed, description, ip, receive, shown, tc};

/// The disciplines to test.
const QDISCS: [Qdisc; 2] = [Qdisc::Htb, Qdisc::Prio];

fn options(rate_bits_per_second: u64) -> InstallOptions {
    InstallOptions::new(DEVICE, rate_bits_per_second)
}

/// Installs bands of a kind, or reports that this kernel lacks it. HTB is always required.
fn try_install(qdisc: Qdisc, rate_bits_per_second: u64) -> Option<Installed> {
    match bands::install(&InstallOptions { qdisc, ..options(rate_bits_per_second) }) {
        Ok(installed) => Some(installed),
        Err(BandsError::Kernel { said, .. }) if qdisc == Qdisc::Prio && said.contains("kind is unknown") => {
            eprintln!("SKIPPED: prio: this kernel does not have it");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// The file with the saved earlier state, if there is one.
fn note() -> Option<PathBuf> {
    let namespace = std::fs::read_link("/proc/thread-self/ns/net").expect("Linux").to_string_lossy().into_owned();
    let inode = namespace.trim_start_matches("net:[").trim_end_matches(']');
    let note = PathBuf::from(format!("/run/serpent/uplink-{DEVICE}@{inode}.json"));
    note.exists().then_some(note)
}

/// Reads the bands until they are as wanted, and returns the final reading.
fn until(wanted: impl Fn(&[BandShown]) -> bool) -> Vec<BandShown> {
    loop {
        let seen = shown().bands;
        if wanted(&seen) {
            return seen;
        }
    }
}

fn dropped(bands: &[BandShown]) -> u64 {
    bands.iter().map(|band| band.dropped_packets).sum()
}

#[test]
fn installing_and_removing_leaves_everything_as_it_was() {
    let Some(testbed) = Testbed::new("install and remove") else { return };
    testbed.in_server(|| {
        // An unusual packet size shows that the size is restored and not reset.
        ip(&["link", "set", "dev", DEVICE, "gso_max_segs", "40"]);
        let before = description();
        assert_eq!(bands::find(None).expect("tc"), None);
        assert!(bands::show(None).expect("tc").is_empty());

        for qdisc in QDISCS {
            let Some(installed) = try_install(qdisc, 10_000_000) else { continue };
            assert_eq!((installed.how, installed.bands, installed.gso_max_segs), (How::New, 8, 1));
            assert!(note().is_some(), "what was there before is noted");
            let found = bands::find(None).expect("tc").expect("installed");
            assert_eq!(found, Installed { how: How::Found, ..installed.clone() });
            assert_eq!(bands::find(Some(DEVICE)).expect("tc"), Some(found));
            let shown = bands::show(None).expect("tc").remove(0);
            assert!(shown.ours);
            assert_eq!((shown.shape, shown.rate_bits_per_second), (Some(installed.shape), Some(10_000_000)));
            let priorities: Vec<u32> = shown.bands.iter().map(|band| band.priority).collect();
            assert_eq!(priorities, (0..8).map(|band| installed.priority(band)).collect::<Vec<_>>());

            let removed = bands::remove(DEVICE).expect("installed");
            assert_eq!((removed.gso_max_segs, removed.replaced), (40, None));
            assert_eq!(description(), before);
            assert_eq!(note(), None);
        }
    });
}

#[test]
fn what_is_not_ours_is_neither_replaced_nor_removed() {
    let Some(testbed) = Testbed::new("foreign qdisc") else { return };
    testbed.in_server(|| {
        tc(&["qdisc", "add", "dev", DEVICE, "root", "handle", "1:", "pfifo", "limit", "77"]);
        let before = description();
        let error = bands::install(&options(10_000_000)).expect_err("foreign");
        assert!(matches!(&error, BandsError::ForeignQdisc { found, .. } if found == "pfifo 1:"), "{error}");
        assert!(error.to_string().contains("--replace"), "{error}");
        let error = bands::remove(DEVICE).expect_err("foreign");
        assert!(matches!(&error, BandsError::NotInstalled { found, .. } if found == "pfifo 1:"), "{error}");
        assert_eq!(description(), before);
        assert!(!shown().ours);

        let installed = bands::install(&InstallOptions { replace: true, ..options(10_000_000) }).expect("let replace");
        assert_eq!(installed.how, How::New);
        let removed = bands::remove(DEVICE).expect("installed");
        assert_eq!(removed.replaced.as_deref(), Some("pfifo 1:"), "the operator is told what is not put back");
    });
}

#[test]
fn a_socket_chooses_its_band_and_what_chooses_none_goes_first() {
    let Some(testbed) = Testbed::new("SO_PRIORITY") else { return };
    for qdisc in QDISCS {
        let Some(installed) = testbed.in_server(|| try_install(qdisc, 1_000_000_000)) else { continue };
        testbed.in_server(|| {
            for band in 1..8 {
                let _sent = Flood::queue(5000, installed.priority(band), 10 + usize::from(band));
            }
            // Ordinary priorities, a missing band, and another discipline's handle: all count as
            // unclassified.
            for priority in [0, 6, 15, 0x05e7_0009, 0x0001_0003] {
                let _sent = Flood::queue(5000, priority, 1);
            }
            let bands = until(|bands| bands.iter().map(|band| band.packets).sum::<u64>() == 103);
            let packets: Vec<u64> = bands.iter().map(|band| band.packets).collect();
            assert_eq!(packets, [5, 11, 12, 13, 14, 15, 16, 17]);
            bands::remove(DEVICE).expect("installed");
        });
    }
}

#[test]
fn a_band_sends_nothing_while_an_earlier_one_has_packets() {
    let Some(testbed) = Testbed::new("strict order") else { return };
    for qdisc in QDISCS {
        // 4 ms a frame: slow enough to observe the queue before it is empty.
        let Some(installed) = testbed.in_server(|| try_install(qdisc, 3_000_000)) else { continue };
        testbed.in_server(|| {
            let _last = Flood::queue(5007, installed.priority(7), 100);
            let _middle = Flood::queue(5004, installed.priority(4), 400);
            let _first = Flood::queue(5001, installed.priority(1), 200);
            let all_wait = shown().bands;
            assert!([1, 4, 7].iter().all(|&band| all_wait[band].backlog_packets > 0), "{all_wait:#?}");
            let passed = |bands: &[BandShown], band: usize| bands[band].packets - all_wait[band].packets;

            let first_drains = until(|bands| bands[1].backlog_packets < 150);
            assert!(first_drains[1].backlog_packets > 0, "too slow a machine to see anything: {first_drains:#?}");
            assert_eq!((passed(&first_drains, 4), passed(&first_drains, 7)), (0, 0), "{first_drains:#?}");

            let middle_drains = until(|bands| bands[4].backlog_packets < 350);
            assert!(middle_drains[4].backlog_packets > 0, "too slow a machine to see anything: {middle_drains:#?}");
            assert_eq!((middle_drains[1].packets, passed(&middle_drains, 7)), (200, 0), "{middle_drains:#?}");

            bands::install(&options(1_000_000_000)).expect("ours");
            let drained = until(|bands| bands.iter().all(|band| band.backlog_packets == 0));
            assert_eq!(dropped(&drained), 0);
            assert_eq!([1, 4, 7].map(|band| drained[band].packets), [200, 400, 100]);
            bands::remove(DEVICE).expect("installed");
        });
    }
}

#[test]
fn a_starved_connection_loses_nothing_and_ends_whole() {
    let Some(testbed) = Testbed::new("starved connection") else { return };
    // 800 frames ahead take 9.8 s at this rate; the test does not wait for them.
    let installed = testbed.in_server(|| bands::install(&options(1_000_000)).expect("installs"));
    let listener = testbed.in_server(|| TcpListener::bind("10.9.0.1:8080").expect("free"));
    let clients: Vec<TcpStream> =
        (0..40).map(|_| testbed.in_client(|| TcpStream::connect("10.9.0.1:8080").expect("band 0 is free"))).collect();
    let body = vec![7; 30_000];
    testbed.in_server(|| {
        let _ahead = Flood::queue(5001, installed.priority(1), 800);
        for _ in &clients {
            let (mut stream, _) = listener.accept().expect("connected");
            socket::set_priority(&stream, installed.priority(7)).expect("root may");
            socket2::SockRef::from(&stream).set_send_buffer_size(100_000).expect("a socket");
            stream.write_all(&body).expect("fits the send buffer");
        }
        let starved = until(|bands| bands[7].backlog_packets >= 200 || bands[1].backlog_packets == 0);
        // A class that was idle for long may send two packets out of order.
        assert!(starved[1].backlog_packets > 0 && starved[7].packets <= 2, "{starved:#?}");
        bands::install(&options(100_000_000)).expect("ours");
    });
    for mut client in clients {
        let mut received = Vec::new();
        client.read_to_end(&mut received).expect("not cut off");
        assert!(received == body, "{} bytes", received.len());
    }
    assert_eq!(testbed.in_server(|| dropped(&shown().bands)), 0);
}

#[test]
fn installing_again_changes_the_rate_under_waiting_packets() {
    let Some(testbed) = Testbed::new("change of rate") else { return };
    for qdisc in QDISCS {
        let Some(slow) = testbed.in_server(|| try_install(qdisc, 1_000_000)) else { continue };
        assert_eq!(slow.gso_max_segs, 1);
        let _waiting = testbed.in_server(|| {
            let waiting = Flood::queue(5007, slow.priority(7), 100);
            let before = shown();
            let fast =
                bands::install(&InstallOptions { leaf_limit_packets: 2000, ..options(100_000_000) }).expect("ours");
            assert_eq!((fast.how, fast.shape, fast.gso_max_segs), (How::Updated, slow.shape, 4));
            let after = shown();
            assert_eq!((before.rate_bits_per_second, after.rate_bits_per_second), (Some(1_000_000), Some(100_000_000)));
            assert!(description().contains("limit 2000p"));
            // The counters continue, so the bands are the same ones.
            assert!(after.bands[7].packets >= before.bands[7].packets);
            assert!(after.bands[7].backlog_packets > 0 || after.bands[7].packets == 100, "{after}");
            waiting
        });
        testbed.in_server(|| {
            let drained = until(|bands| bands[7].backlog_packets == 0);
            assert_eq!((drained[7].packets, dropped(&drained)), (100, 0));
            assert_eq!(bands::remove(DEVICE).expect("installed").gso_max_segs, 65_535);
        });
    }
}

#[test]
fn the_rate_is_kept() {
    let Some(testbed) = Testbed::new("rate") else { return };
    for qdisc in QDISCS {
        let Some(installed) = testbed.in_server(|| try_install(qdisc, 20_000_000)) else { continue };
        // 400 frames of 1538 bytes on the wire at 20 Mbit/s take 246 ms, less the burst that may leave at
        // once.
        let start = std::time::Instant::now();
        let _sent = testbed.in_server(|| Flood::queue(5003, installed.priority(3), 400));
        testbed.in_server(|| until(|bands| bands[3].packets == 400));
        let elapsed_ms = start.elapsed().as_millis();
        assert!(elapsed_ms >= 240, "faster than the rate: {elapsed_ms} ms");
        testbed.in_server(|| bands::remove(DEVICE).expect("installed"));
    }
}

#[test]
fn packets_arrive_at_the_client() {
    let Some(testbed) = Testbed::new("arrival") else { return };
    let installed = testbed.in_server(|| bands::install(&options(10_000_000)).expect("installs"));
    let sockets = [5001, 5006];
    let receiver = std::thread::scope(|scope| {
        let receiver = scope.spawn(|| receive(&testbed, &[(5001, 20), (5006, 20)]));
        // Sends repeatedly, because the receiver may not be bound yet.
        while !receiver.is_finished() {
            for port in sockets {
                testbed.in_server(|| drop(Flood::queue(port, installed.priority((port - 5000) as u8), 10)));
            }
            testbed.in_server(|| until(|bands| bands.iter().all(|band| band.backlog_packets == 0)));
        }
        receiver.join().expect("received")
    });
    assert_eq!(receiver.into_iter().collect::<Vec<_>>(), [(5001, 20), (5006, 20)]);
}

#[test]
fn bands_that_a_crash_left_incomplete_are_known_and_completed() {
    let Some(testbed) = Testbed::new("incomplete bands") else { return };
    testbed.in_server(|| {
        bands::install(&options(10_000_000)).expect("installs");
        // The state after a crash before the last step, which makes band 0.
        tc(&["qdisc", "del", "dev", DEVICE, "parent", "5e7:1", "handle", "5e71:"]);
        assert_eq!(bands::find(None).expect("tc"), None, "a server must not use them");
        let shown = bands::show(None).expect("tc").remove(0);
        assert!(!shown.ours && shown.to_string().contains("some are missing"), "{shown}");
        let completed = bands::install(&options(20_000_000)).expect("ours");
        assert_eq!(completed.how, How::New);
        assert!(bands::find(None).expect("tc").is_some());
        assert_eq!(bands::remove(DEVICE).expect("ours").gso_max_segs, 65_535, "as before the first installation");
    });
}

#[test]
fn without_the_note_the_devices_default_is_restored() {
    let Some(testbed) = Testbed::new("lost note") else { return };
    testbed.in_server(|| {
        let before = description();
        bands::install(&options(10_000_000)).expect("installs");
        std::fs::remove_file(note().expect("written")).expect("root may");
        bands::remove(DEVICE).expect("installed");
        assert_eq!(description(), before);
    });
}

#[test]
fn after_the_root_was_removed_by_hand_the_packet_size_is_still_restored() {
    let Some(testbed) = Testbed::new("root removed by hand") else { return };
    testbed.in_server(|| {
        let before = description();
        bands::install(&options(10_000_000)).expect("installs");
        tc(&["qdisc", "del", "dev", DEVICE, "root"]);
        bands::remove(DEVICE).expect("the packet size is still ours");
        assert_eq!(description(), before);
        let error = bands::remove(DEVICE).expect_err("now nothing is");
        assert!(matches!(error, BandsError::NotInstalled { .. }), "{error}");
    });
}

#[test]
fn what_this_kernel_does_not_have_is_found_out_before_the_device_is_touched() {
    let Some(testbed) = Testbed::new("missing qdisc") else { return };
    testbed.in_server(|| {
        tc(&["qdisc", "add", "dev", DEVICE, "root", "handle", "1:", "pfifo", "limit", "77"]);
        let before = description();
        let wanted = InstallOptions { qdisc: Qdisc::Prio, replace: true, ..options(10_000_000) };
        match bands::install(&wanted) {
            Ok(installed) => assert_eq!(installed.shape, Shape::Prio),
            Err(error) => {
                assert!(error.to_string().contains("install the kernel's full set of modules"), "{error}");
                assert_eq!(description(), before);
                assert_eq!(note(), None);
            }
        }
    });
}

#[test]
fn without_privileges_one_may_look_but_not_touch() {
    let Some(testbed) = Testbed::new("privileges") else { return };
    let installed = testbed.in_server(|| bands::install(&options(10_000_000)).expect("root may"));
    testbed.in_server(|| {
        let nobody = rustix::process::Uid::from_raw(65_534);
        // On Linux this changes the user of this thread, and of programs that it starts.
        rustix::thread::set_thread_res_uid(nobody, nobody, nobody).expect("root may become anybody");
        for error in
            [bands::install(&options(20_000_000)).expect_err("may not"), bands::remove(DEVICE).expect_err("may not")]
        {
            assert!(matches!(error, BandsError::NotPermitted { .. }), "{error}");
            assert!(error.to_string().contains("as root or with CAP_NET_ADMIN"), "{error}");
        }
        assert_eq!(bands::find(None).expect("looking is free"), Some(Installed { how: How::Found, ..installed }));
        assert!(!serpent_kernel::capabilities::may_set_high_priority().expect("a socket"));
    });
}

#[test]
fn devices_that_are_not_there_and_devices_that_are_too_many() {
    let Some(testbed) = Testbed::new("devices") else { return };
    testbed.in_server(|| {
        let error = bands::install(&InstallOptions::new("eth99", 10_000_000)).expect_err("no such device");
        assert!(matches!(&error, BandsError::NoDevice { device } if device == "eth99"), "{error}");
        assert!(matches!(bands::show(Some("eth99")), Err(BandsError::NoDevice { .. })));

        bands::install(&options(10_000_000)).expect("installs");
        bands::install(&InstallOptions::new("lo", 10_000_000)).expect("installs");
        let error = bands::find(None).expect_err("which one?");
        assert!(matches!(&error, BandsError::SeveralDevices { devices } if devices.len() == 2), "{error}");
        assert_eq!(bands::find(Some("lo")).expect("named").map(|found| found.device), Some("lo".into()));
        bands::remove("lo").expect("installed");
    });
}
