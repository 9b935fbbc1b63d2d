use ppp::{HeaderResult, v1, v2};
use proptest::prelude::*;

use super::{header::address, *};

fn ends(source: &str, destination: &str) -> Ends {
    Ends { source: source.parse().unwrap(), destination: destination.parse().unwrap() }
}

fn found(bytes: &[u8]) -> Header {
    match read(bytes) {
        Ok(Progress::Complete(header, len)) => {
            assert_eq!(len, bytes.len());
            fuzz::proxy_protocol(bytes);
            header
        }
        other => panic!("{other:?}"),
    }
}

/// A binary header.
fn binary(kinds: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let len = (rest.len() as u16).to_be_bytes();
    [binary::SIGNATURE, &[kinds, family], &len, rest].concat()
}

const V4: [u8; 12] = [192, 0, 2, 7, 198, 51, 100, 1, 0xdc, 0x04, 0x01, 0xbb];

#[test]
fn lines_of_text() {
    let v4 = Header::Proxied(ends("192.0.2.7:56324", "198.51.100.1:443"));
    assert_eq!(found(b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 443\r\n"), v4);
    let v6 = Header::Proxied(ends("[2001:db8::7]:0", "[2001:db8::1]:65535"));
    assert_eq!(found(b"PROXY TCP6 2001:db8::7 2001:db8::1 0 65535\r\n"), v6);
    let mapped = Header::Proxied(ends("192.0.2.7:1", "198.51.100.1:2"));
    assert_eq!(found(b"PROXY TCP6 ::ffff:192.0.2.7 ::ffff:198.51.100.1 1 2\r\n"), mapped);
    assert_eq!(found(b"PROXY UNKNOWN\r\n"), Header::Local);
    assert_eq!(found(b"PROXY UNKNOWN ffff::f 1 whatever\r\n"), Header::Local);
    let longest = format!("PROXY UNKNOWN {}\r\n", "x".repeat(91));
    assert_eq!((longest.len(), found(longest.as_bytes())), (107, Header::Local));
}

#[test]
fn what_is_no_line_of_the_protocol_is_refused() {
    for (line, expected) in [
        ("GET / HTTP/1.1\r\n", Malformed::NoHeader),
        ("proxy TCP4 1.1.1.1 1.1.1.1 1 1\r\n", Malformed::NoHeader),
        ("PROXY\tTCP4 1.1.1.1 1.1.1.1 1 1\r\n", Malformed::NoHeader),
        ("PROXY TCP4 1.1.1.1 1.1.1.1 1 1\n", Malformed::Text),
        ("PROXY TCP4 1.1.1.1 1.1.1.1 1\r\n", Malformed::Text),
        ("PROXY TCP4 1.1.1.1 1.1.1.1 1 1 1\r\n", Malformed::Text),
        ("PROXY TCP4  1.1.1.1 1.1.1.1 1 1\r\n", Malformed::Text),
        ("PROXY TCP4 1.1.1.1 1.1.1.1 01 1\r\n", Malformed::Text),
        ("PROXY TCP4 1.1.1.1 1.1.1.1 +1 1\r\n", Malformed::Text),
        ("PROXY TCP4 1.1.1.1 1.1.1.1 65536 1\r\n", Malformed::Text),
        ("PROXY TCP4 1.1.1.1 1.1.1.1  1\r\n", Malformed::Text),
        ("PROXY TCP4 1.1.1.1 1.1.1.1 1 1\r\r\n", Malformed::Text),
        ("PROXY TCP4 01.1.1.1 1.1.1.1 1 1\r\n", Malformed::Text),
        ("PROXY TCP4 ::1 ::1 1 1\r\n", Malformed::Text),
        ("PROXY TCP6 1.1.1.1 1.1.1.1 1 1\r\n", Malformed::Text),
        ("PROXY TCP5 1.1.1.1 1.1.1.1 1 1\r\n", Malformed::Text),
        ("PROXY UNKNOWNS\r\n", Malformed::Text),
        ("PROXY \r\n", Malformed::Text),
        (&format!("PROXY UNKNOWN {}\r\n", "x".repeat(92)), Malformed::TooLong),
        (&format!("PROXY UNKNOWN {}", "x".repeat(93)), Malformed::TooLong),
    ] {
        assert_eq!(read(line.as_bytes()), Err(expected), "{line:?}");
        fuzz::proxy_protocol(line.as_bytes());
    }
    assert_eq!(read(b"PROXY TCP4 \xff\r\n"), Err(Malformed::Text));
    assert_eq!(read(b""), Ok(Progress::Incomplete));
    assert_eq!(read(b"PRO"), Ok(Progress::Incomplete));
    assert_eq!(read(b"PRI * HTTP/2.0"), Err(Malformed::NoHeader), "as the preface of HTTP/2 begins");
}

#[test]
fn binary_headers() {
    let v4 = Header::Proxied(ends("192.0.2.7:56324", "198.51.100.1:443"));
    assert_eq!(found(&binary(0x21, 0x11, &V4)), v4);
    let extensions = [&V4[..], &[0x01, 0, 2, b'h', b'2'], &[0x04, 0, 0], &[0xe0, 0, 1, 9]].concat();
    assert_eq!(found(&binary(0x21, 0x11, &extensions)), v4, "extensions are skipped");
    let mut v6 = [0; 36];
    (v6[15], v6[31], v6[33], v6[35]) = (1, 2, 80, 81);
    assert_eq!(found(&binary(0x21, 0x21, &v6)), Header::Proxied(ends("[::1]:80", "[::2]:81")));
    assert_eq!(found(&binary(0x20, 0x00, &[])), Header::Local);
    assert_eq!(found(&binary(0x20, 0x11, &V4)), Header::Local, "the addresses of LOCAL are skipped");
    assert_eq!(found(&binary(0x20, 0x00, &[1, 2, 3])), Header::Local);
    for family in [0x00, 0x12, 0x31, 0xff] {
        assert_eq!(found(&binary(0x21, family, &[0; 216])), Header::Local, "{family:#x}: not by TCP");
    }
    let longest = [&V4[..], &[0x04, 0x0f, 0xe1], &[0; 4065]].concat();
    assert_eq!(found(&binary(0x21, 0x11, &longest)), v4);
}

#[test]
fn what_is_no_binary_header_is_refused_as_soon_as_that_is_certain() {
    assert_eq!(read(b"\r\n\r\n\0\r\nQUIT\r"), Err(Malformed::NoHeader));
    assert_eq!(read(b"\r\nGET /"), Err(Malformed::NoHeader));
    let too_long = [&V4[..], &[0x04, 0x0f, 0xe2], &[0; 4066]].concat();
    for (bytes, expected) in [
        (binary(0x11, 0x11, &V4), Malformed::Version),
        (binary(0x31, 0x11, &V4), Malformed::Version),
        (binary(0x22, 0x11, &V4), Malformed::Binary),
        (binary(0x21, 0x11, &V4[..11]), Malformed::Binary),
        (binary(0x21, 0x21, &V4), Malformed::Binary),
        (binary(0x21, 0x11, &[&V4[..], &[1, 0]].concat()), Malformed::Binary),
        (binary(0x21, 0x11, &[&V4[..], &[1, 0, 3, 0, 0]].concat()), Malformed::Binary),
        (binary(0x21, 0x11, &too_long), Malformed::TooLong),
    ] {
        assert_eq!(read(&bytes), Err(expected), "{bytes:x?}");
        fuzz::proxy_protocol(&bytes);
    }
    assert_eq!(read(&binary(0x21, 0x11, &too_long)[..16]), Err(Malformed::TooLong), "before it is there");
    assert_eq!(read(&binary(0x51, 0x11, &V4)[..13]), Err(Malformed::Version));
}

#[test]
fn ends_of_two_families_are_written_as_ipv6() {
    let mixed = ends("192.0.2.7:1", "[2001:db8::1]:2");
    let mut out = Vec::new();
    write(Version::V1, Some(mixed), &mut out);
    assert_eq!(String::from_utf8_lossy(&out), "PROXY TCP6 ::ffff:192.0.2.7 2001:db8::1 1 2\r\n");
    out.clear();
    write(Version::V2, Some(mixed), &mut out);
    assert_eq!(found(&out), Header::Proxied(mixed));
    out.clear();
    write(Version::V1, Some(ends("[::ffff:192.0.2.7]:1", "192.0.2.8:2")), &mut out);
    assert_eq!(String::from_utf8_lossy(&out), "PROXY TCP4 192.0.2.7 192.0.2.8 1 2\r\n");
}

#[test]
fn every_seed_passes_the_fuzz_target() {
    let seeds = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/proxy_protocol");
    let files: Vec<_> = std::fs::read_dir(seeds).unwrap().map(|file| file.unwrap().path()).collect();
    assert!(files.len() >= 6);
    for file in files {
        let bytes = std::fs::read(&file).unwrap();
        fuzz::proxy_protocol(&bytes);
        agrees(&bytes);
    }
}

/// The ends and the length of a whole header, as the crate `ppp` reads them.
fn by_ppp(bytes: &[u8]) -> Option<(Option<Ends>, usize)> {
    match HeaderResult::parse(bytes) {
        HeaderResult::V1(Ok(header)) => {
            let ends = match header.addresses {
                v1::Addresses::Tcp4(it) => Some(Ends {
                    source: address(it.source_address, it.source_port),
                    destination: address(it.destination_address, it.destination_port),
                }),
                v1::Addresses::Tcp6(it) => Some(Ends {
                    source: address(it.source_address, it.source_port),
                    destination: address(it.destination_address, it.destination_port),
                }),
                v1::Addresses::Unknown => None,
            };
            Some((ends, header.header.len()))
        }
        HeaderResult::V2(Ok(header)) => {
            let is_tcp = header.command == v2::Command::Proxy && header.protocol == v2::Protocol::Stream;
            let ends = match header.addresses {
                v2::Addresses::IPv4(it) if is_tcp => Some(Ends {
                    source: address(it.source_address, it.source_port),
                    destination: address(it.destination_address, it.destination_port),
                }),
                v2::Addresses::IPv6(it) if is_tcp => Some(Ends {
                    source: address(it.source_address, it.source_port),
                    destination: address(it.destination_address, it.destination_port),
                }),
                _ => None,
            };
            Some((ends, header.len()))
        }
        _ => None,
    }
}

/// Another parser reads the same in each header that is read.
fn agrees(bytes: &[u8]) {
    if let Ok(Progress::Complete(header, len)) = read(bytes) {
        let ours = match header {
            Header::Local => None,
            Header::Proxied(ends) => Some(ends),
        };
        if let Some(theirs) = by_ppp(&bytes[..len]) {
            assert_eq!((ours, len), theirs, "{bytes:x?}");
        } else {
            // It knows fewer kinds of binary headers, and refuses addresses that are to be skipped.
            assert!(ours.is_none(), "only we read {bytes:x?}");
        }
    }
}

fn any_ends() -> impl Strategy<Value = Option<Ends>> {
    let ip = || prop_oneof![any::<[u8; 4]>().prop_map(IpAddr::from), any::<[u8; 16]>().prop_map(IpAddr::from)];
    let end = move || (ip(), any::<u16>()).prop_map(|(ip, port)| SocketAddr::new(ip, port));
    prop::option::of((end(), end()).prop_map(|(source, destination)| Ends { source, destination }))
}

proptest! {
    #[test]
    fn what_is_written_is_read_by_us_and_by_others(
        ends in any_ends(),
        v2 in any::<bool>(),
        behind in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let mut bytes = Vec::new();
        write(if v2 { Version::V2 } else { Version::V1 }, ends, &mut bytes);
        let len = bytes.len();
        bytes.extend(behind);
        let canonical = |at: SocketAddr| address(at.ip(), at.port());
        let expected = ends.map_or(Header::Local, |it| Header::Proxied(Ends {
            source: canonical(it.source),
            destination: canonical(it.destination),
        }));
        prop_assert_eq!(read(&bytes), Ok(Progress::Complete(expected, len)));
        fuzz::proxy_protocol(&bytes);
        agrees(&bytes);
        prop_assert!(by_ppp(&bytes[..len]).is_some());
    }

    #[test]
    fn changed_headers_read_the_same_however_they_are_cut(
        ends in any_ends(),
        v2 in any::<bool>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        extensions in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let mut bytes = Vec::new();
        write(if v2 { Version::V2 } else { Version::V1 }, ends, &mut bytes);
        bytes.extend(extensions);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        fuzz::proxy_protocol(&bytes);
        agrees(&bytes);
    }
}
