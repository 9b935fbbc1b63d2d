//! Where packets of all kinds go, with real servers and clients.

use std::{
    fs,
    net::{TcpListener, TcpStream},
    process::Command,
    thread,
};

use kernel::netns::NetNs;
use socket2::SockRef;

use crate::{
    ATTACH, Bed, DEVICE, ok, response,
    support::{Nginx, Process, connect, get, has, packet, stay_on_one_processor, tcp_counters},
};

fn number(shown: &serde_json::Value, name: &str) -> u64 {
    shown[name].as_u64().unwrap()
}

fn packets_of_class(bed: &Bed, class: u64) -> u64 {
    let shown = bed.shown();
    let ranks = shown["ranks"].as_array().unwrap().iter().filter(|rank| rank["class"] == class);
    ranks.map(|rank| rank["packets"].as_u64().unwrap()).sum()
}

#[test]
fn handshakes_and_acknowledgements_leave_by_the_first_band() {
    let Some(bed) = Bed::new("handshakes_and_acknowledgements_leave_by_the_first_band") else { return };
    bed.does(&ATTACH);
    let before = bed.shown();
    // The client says much, which is acknowledged.
    let namespace = NetNs::open(&bed.server).unwrap();
    let listener = {
        let _inside = namespace.enter().unwrap();
        TcpListener::bind("10.9.0.1:80").unwrap()
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            let (connection, _) = listener.accept().unwrap();
            std::io::copy(&mut &connection, &mut std::io::sink()).unwrap();
        });
        let mut client = connect(&bed.client, "10.9.0.1:80");
        std::io::Write::write_all(&mut client, &vec![1; 1_000_000]).unwrap();
    });
    let after = bed.shown();
    let control = number(&after, "control_packets") - number(&before, "control_packets");
    let first_band = number(&after["bands"][0], "packets") - number(&before["bands"][0], "packets");
    assert!(control > 10 && first_band >= control, "{control} of {first_band}");
    let responses: u64 = (1..8).map(|band| number(&after["bands"][band], "packets")).sum();
    // Only the FIN is behind the data of its connection.
    assert!(responses <= 1, "{after:#}");
}

#[test]
fn responses_of_no_class_belong_to_the_last_one_and_unclassified_packets_to_the_last_band() {
    let Some(bed) = Bed::new("responses_of_no_class_belong_to_the_last_one") else { return };
    bed.does(
        &[&ATTACH[..], &["--class", "a:port=8080", "--class", "b:source=10.9.0.77", "--class", "c:mark=7"]].concat(),
    );
    bed.sends("10.9.0.1", 80, &[response(10)]);
    assert_eq!([0, 1, 2].map(|class| packets_of_class(&bed, class)), [0, 0, 1]);
    assert!(
        bed.tc(&["qdisc", "show", "dev", DEVICE]).contains("default 0x8"),
        "the kernel's own choice is the last band"
    );
}

#[test]
fn a_mark_chooses_the_class() {
    let Some(bed) = Bed::new("a_mark_chooses_the_class") else { return };
    bed.does(&[&ATTACH[..], &["--class", "gold:mark=0x10/0xf0", "--class", "rest"]].concat());
    let namespace = NetNs::open(&bed.server).unwrap();
    let listener = {
        let _inside = namespace.enter().unwrap();
        TcpListener::bind("10.9.0.1:80").unwrap()
    };
    for (mark, class) in [(0x1f, 0), (0x21, 1)] {
        // A connection has the mark that its listener has when it begins.
        SockRef::from(&listener).set_mark(mark).unwrap();
        let before = packets_of_class(&bed, class);
        thread::scope(|scope| {
            scope.spawn(|| {
                let (mut connection, _) = listener.accept().unwrap();
                std::io::Write::write_all(&mut connection, &response(10)).unwrap();
            });
            let mut client: TcpStream = connect(&bed.client, "10.9.0.1:80");
            std::io::Read::read_to_end(&mut client, &mut Vec::new()).unwrap();
        });
        assert!(packets_of_class(&bed, class) > before, "mark {mark:#x}");
    }
}

#[test]
fn a_control_group_chooses_the_class() {
    let test = "a_control_group_chooses_the_class";
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"));
    let Some(mount) = mount.and_then(|line| line.split(' ').nth(1)) else {
        assert!(std::env::var_os("CI").is_none(), "in CI {test} must run: control groups of version 2 are not mounted");
        eprintln!("SKIPPED: {test}: control groups of version 2 are not mounted");
        return;
    };
    let Some(bed) = Bed::new(test) else { return };
    let group = format!("{mount}/{}", bed.server);
    fs::create_dir(&group).unwrap();
    // Removed when the server in it has ended.
    struct Group(String);
    impl Drop for Group {
        fn drop(&mut self) {
            let _ = fs::remove_dir(&self.0);
        }
    }
    let group = Group(group);
    let site = tempfile::tempdir().unwrap();
    fs::write(site.path().join("page"), "page").unwrap();
    let class = format!("gold:cgroup={}", group.0);
    // `ip netns exec` mounts /sys anew, without control groups.
    let said = bed.refuses(&[&ATTACH[..], &["--class", &class, "--class", "rest"]].concat());
    assert!(said.contains("nsenter"), "{said}");
    let namespace = NetNs::open(&bed.server).unwrap();
    {
        let _inside = namespace.enter().unwrap();
        let mut attach = Command::new(env!("CARGO_BIN_EXE_serpent"));
        attach.args(ATTACH).args(["--class", &class, "--class", "rest"]);
        let output = attach.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let serve = |port: u16, group: &str| {
        let script = format!("[ -z '{group}' ] || echo $$ > '{group}/cgroup.procs'; exec \"$@\"");
        let mut command = Command::new("sh");
        command.args(["-c", &script, "sh", env!("CARGO_BIN_EXE_serpent"), "serve"]).arg(site.path());
        command.args(["--listen", &format!("10.9.0.1:{port}"), "--uplink", "off", "--workers", "1"]);
        Process::start(&bed.server, &mut command)
    };
    for (port, directory, class) in [(80, group.0.as_str(), 0), (8080, "", 1)] {
        let server = serve(port, directory);
        let before = packets_of_class(&bed, class);
        assert_eq!(get(&mut connect(&bed.client, &format!("10.9.0.1:{port}")), &["/page"]), [b"page"]);
        assert!(packets_of_class(&bed, class) > before, "{directory:?}");
        drop(server);
    }
}

/// The socket is in another namespace, so connections are known by addresses and ports.
#[test]
fn a_server_behind_a_bridge_is_put_in_order() {
    let test = "a_server_behind_a_bridge_is_put_in_order";
    if !has(test, "nginx") {
        return;
    }
    let Some(bed) = Bed::new(test) else { return };
    stay_on_one_processor();
    let container = bed.put_container_behind_bridge();
    let _nginx = Nginx::start(&container.name, &[100, 500_000]);
    for address in ["10.9.0.3:80", "[fd09::3]:80"] {
        // Neighbours are found, and the server listens.
        drop(connect(&bed.client, address));
    }
    bed.does(&[&ATTACH[..], &["--cutoffs", "1000,100000"]].concat());
    let before = tcp_counters(&container.name);
    for address in ["10.9.0.3:80", "[fd09::3]:80"] {
        let before = bed.shown();
        let mut client = connect(&bed.client, address);
        for (path, bytes) in [("/100", 100), ("/500000", 500_000), ("/100", 100)] {
            assert_eq!(get(&mut client, &[path])[0].len(), bytes, "{address}");
        }
        let after = bed.shown();
        assert_eq!(number(&after, "responses_with_length") - number(&before, "responses_with_length"), 3, "{address}");
        assert!(number(&after, "forwarded_packets") > number(&before, "forwarded_packets"), "{address}");
        for rank in [0, 2] {
            assert!(number(&after["ranks"][rank], "packets") > number(&before["ranks"][rank], "packets"), "{address}");
        }
    }
    let after = tcp_counters(&container.name);
    for name in ["TCPFastRetrans", "TCPSACKReorder", "TCPTSReorder"] {
        assert_eq!(after[name], before[name], "{name}: {:#}", bed.shown());
    }
}

/// The order is between connections, never within one: clients get all bytes in sequence.
#[test]
fn no_connection_is_reordered() {
    let test = "no_connection_is_reordered";
    if !has(test, "nginx") || !has(test, "curl") {
        return;
    }
    let Some(bed) = Bed::new(test) else { return };
    stay_on_one_processor();
    let sizes = [300, 2_000, 9_000, 40_000, 150_000, 400_000];
    let _nginx = Nginx::start(&bed.server, &sizes);
    drop(connect(&bed.client, "10.9.0.1:80"));
    bed.does(&["attach", DEVICE, "--rate", "20mbit", "--ports", "80"]);
    // BBR would fill the band of a response that starves. A response may starve for longer than TCP's usual time-out,
    // and is sent again then, which the server's TCP may take for reordering.
    for line in
        ["route change 10.9.0.0/24 dev va src 10.9.0.1", "-6 route replace fd09::/64 dev va proto kernel metric 256"]
    {
        let line: Vec<&str> = line.split(' ').collect();
        ok("ip", &[&["-n", &bed.server][..], &line, &["congctl", "cubic", "rto_min", "10s"]].concat());
    }
    let before = [&bed.server, &bed.client].map(|namespace| tcp_counters(namespace));
    // Large and small responses take turns on each of the connections, so ranks go up and down.
    let mut clients = Vec::new();
    for number in 0..12 {
        let address = if number % 2 == 0 { "10.9.0.1" } else { "[fd09::1]" };
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--fail", "--max-time", "60", "--output", "/dev/null"]);
        for round in 0..12 {
            let size = sizes[(number * 7 + round * 5) % sizes.len()];
            if round > 0 {
                curl.args(["--output", "/dev/null"]);
            }
            curl.arg(format!("http://{address}/{size}"));
        }
        clients.push(Process::start(&bed.client, &mut curl));
    }
    let queue = bed.shows_verdict("queue-is-here");
    assert!(clients.into_iter().all(Process::wait), "a response did not come whole");
    let after = [&bed.server, &bed.client].map(|namespace| tcp_counters(namespace));
    // Packets that are lost or out of order lead to these counters.
    for (side, name) in [
        (0, "TCPFastRetrans"),
        (0, "TCPSACKReorder"),
        (0, "TCPTSReorder"),
        (0, "TCPLostRetransmit"),
        (1, "TCPOFOQueue"),
    ] {
        assert_eq!(after[side][name], before[side][name], "{name} of {}", ["the server", "the client"][side]);
    }
    let shown = bed.shown();
    assert!(number(&shown, "held_packets") > 0, "no rank went up while packets waited: {queue:#}");
    let dropped: u64 = shown["bands"].as_array().unwrap().iter().map(|band| number(band, "dropped_packets")).sum();
    assert_eq!(dropped, 0);
}

#[test]
fn pipelined_responses_are_each_read() {
    let test = "pipelined_responses_are_each_read";
    if !has(test, "nginx") {
        return;
    }
    let Some(bed) = Bed::new(test) else { return };
    let _nginx = Nginx::start(&bed.server, &[10, 5_000, 200_000]);
    drop(connect(&bed.client, "10.9.0.1:80"));
    bed.does(&ATTACH);
    for address in ["10.9.0.1:80", "[fd09::1]:80"] {
        let before = bed.shown();
        let mut client = connect(&bed.client, address);
        let paths = ["/10", "/200000", "/10", "/10", "/5000", "/200000", "/5000", "/10"];
        let bodies = get(&mut client, &paths);
        assert!(bodies.iter().zip(paths).all(|(body, path)| body.len().to_string() == path[1..]));
        let after = bed.shown();
        let grown = |name: &str| number(&after, name) - number(&before, name);
        assert_eq!((grown("responses_with_length"), grown("responses_without_length")), (8, 0), "{address}");
    }
}

#[test]
fn a_packet_with_a_vlan_tag_is_read() {
    let test = "a_packet_with_a_vlan_tag_is_read";
    if !has(test, "python3") {
        return;
    }
    let Some(bed) = Bed::new(test) else { return };
    bed.does(&ATTACH);
    let before = bed.shown();
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let address = |namespace: &str, device: &str| bed.hardware_address(namespace, device).replace(':', "");
    let frame = address(&bed.client, "vb")
        + &address(&bed.server, DEVICE)
        + "810000050800"
        + &hex(&packet([10, 9, 0, 1], [10, 9, 0, 2], &response(5)));
    let script = "import socket, sys\n\
                  s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)\n\
                  s.bind((sys.argv[1], 0))\n\
                  s.send(bytes.fromhex(sys.argv[2]))\n";
    assert!(Process::start(&bed.server, Command::new("python3").args(["-c", script, DEVICE, &frame])).wait());
    let after = bed.shown();
    let grown = |name: &str| number(&after, name) - number(&before, name);
    assert_eq!((grown("responses_with_length"), grown("responses_without_length")), (1, 0));
}

#[test]
fn a_vlan_device_can_be_attached() {
    let test = "a_vlan_device_can_be_attached";
    let Some(bed) = Bed::new(test) else { return };
    let vlan = |namespace: &str, device: &str| {
        let add = ["-n", namespace, "link", "add", "link", device, "name", "vlan5", "type", "vlan", "id", "5"];
        Command::new("ip").args(add).output().unwrap().status.success()
    };
    if !vlan(&bed.server, DEVICE) {
        // Nothing that could be installed brings them.
        eprintln!("SKIPPED: {test}: the kernel has no VLANs (CONFIG_VLAN_8021Q)");
        return;
    }
    assert!(vlan(&bed.client, "vb"));
    for (namespace, address) in [(&bed.server, "10.10.0.1/24"), (&bed.client, "10.10.0.2/24")] {
        ok("ip", &["-n", namespace, "addr", "add", address, "dev", "vlan5"]);
        ok("ip", &["-n", namespace, "link", "set", "vlan5", "up"]);
    }
    bed.does(&["attach", "vlan5", "--rate", "100mbit", "--ports", "80"]);
    bed.sends("10.10.0.1", 80, &[response(10), response(100_000)]);
    let shown: serde_json::Value = serde_json::from_str(&bed.does(&["attach", "vlan5", "--show", "--json"])).unwrap();
    assert_eq!(number(&shown, "responses_with_length"), 2, "{shown:#}");
    bed.does(&["detach", "vlan5"]);
    // The device below it sees the same packets with tags.
    bed.does(&ATTACH);
    bed.sends("10.10.0.1", 80, &[response(10)]);
    assert_eq!(number(&bed.shown(), "responses_with_length"), 1);
}
