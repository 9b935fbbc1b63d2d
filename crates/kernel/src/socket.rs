//! TCP socket options and measurements beyond the standard library.

use std::io;
#[cfg(unix)]
use std::os::fd::AsFd as AsHandle;
#[cfg(windows)]
use std::os::windows::io::AsSocket as AsHandle;

#[cfg(target_os = "linux")]
#[path = "socket/linux.rs"]
mod sys;
#[cfg(not(target_os = "linux"))]
#[path = "socket/elsewhere.rs"]
mod sys;
mod tcp_info;

pub use tcp_info::{TcpInfo, TcpState};

/// Reads the kernel's record of a TCP connection (`TCP_INFO`, see tcp(7)).
pub fn tcp_info(socket: impl AsHandle) -> io::Result<TcpInfo> {
    sys::tcp_info(socket)
}

/// Bytes written to the socket that TCP has not sent yet (`SIOCOUTQNSD`, see tcp(7)). A new write must wait
/// for them.
pub fn unsent_bytes(socket: impl AsHandle) -> io::Result<u64> {
    sys::unsent_bytes(socket)
}

/// Bytes written to the socket that the peer has not acknowledged yet, sent or not (`SIOCOUTQ`, see tcp(7)).
pub fn unacked_bytes(socket: impl AsHandle) -> io::Result<u64> {
    sys::unacked_bytes(socket)
}

/// Reports the socket as writable only while fewer than this many bytes are unsent (`TCP_NOTSENT_LOWAT`, see
/// tcp(7)). So data stays under the writer's control until shortly before it is sent.
pub fn set_notsent_lowat(socket: impl AsHandle, bytes: u32) -> io::Result<()> {
    sys::set_notsent_lowat(socket, bytes)
}

/// The limit of [`set_notsent_lowat`]; `None`: none was set. Accepted sockets have that of their listener.
pub fn notsent_lowat(socket: impl AsHandle) -> io::Result<Option<u32>> {
    sys::notsent_lowat(socket)
}

/// Chooses the congestion control of one connection by its name, such as `cubic` or `bbr` (`TCP_CONGESTION`).
///
/// Returns [`io::ErrorKind::NotFound`] if the kernel has no such module. Returns
/// [`io::ErrorKind::PermissionDenied`] if it is not in `net.ipv4.tcp_allowed_congestion_control` and this
/// process is not privileged.
pub fn set_congestion_control(socket: impl AsHandle, name: &str) -> io::Result<()> {
    sys::set_congestion_control(socket, name)
}

/// The congestion control that a connection uses.
pub fn congestion_control(socket: impl AsHandle) -> io::Result<String> {
    sys::congestion_control(socket)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
    };

    use super::*;

    /// Both ends of a connection over the loopback device.
    fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let client = TcpStream::connect(listener.local_addr().expect("bound")).expect("loopback");
        (listener.accept().expect("a client is there").0, client)
    }

    #[test]
    fn tcp_info_counts_what_was_sent_and_acknowledged() {
        let (mut server, mut client) = connection();
        server.write_all(&[7; 10_000]).expect("fits the send buffer");
        let mut received = [0; 10_000];
        client.read_exact(&mut received).expect("the server wrote it");
        // The answer of the client carries the acknowledgement of all 10 000 bytes.
        client.write_all(&[1]).expect("fits");
        server.read_exact(&mut [0]).expect("the client wrote it");

        let info = tcp_info(&server).expect("a TCP socket");
        assert_eq!(info.state, TcpState::Established);
        assert_eq!((info.bytes_sent, info.bytes_acked, info.bytes_retrans), (10_000, 10_000, 0));
        assert_eq!((info.notsent_bytes, info.unacked_segments), (0, 0));
        assert_eq!(info.data_segs_in, 1, "{info:?}");
        // The last segment of the handshake is one without payload.
        assert!(info.segs_in > info.data_segs_in && info.delivered_segments > 0, "{info:?}");
        assert!(info.rtt_us > 0 && info.snd_cwnd_segments > 0 && info.segs_out >= 2, "{info:?}");
        assert!((536..=65_535).contains(&info.snd_mss_bytes), "{info:?}");
        assert!(info.min_rtt_us.is_some_and(|min_rtt_us| min_rtt_us < 1_000_000), "{info:?}");
        assert!(info.delivery_rate_bytes_per_second > 0, "{info:?}");
    }

    #[test]
    fn what_the_peer_does_not_read_is_unacked_and_then_unsent() {
        let (mut server, client) = connection();
        assert_eq!((unsent_bytes(&server).expect("TCP"), unacked_bytes(&server).expect("TCP")), (0, 0));

        // Writes until nothing more fits: the client's window is full, so both counts stay above zero.
        server.set_nonblocking(true).expect("a socket");
        let mut written = 0;
        loop {
            match server.write(&[0; 65_536]) {
                Ok(bytes) => written += bytes as u64,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if unsent_bytes(&server).expect("TCP") > 0 && tcp_info(&server).expect("TCP").unacked_segments == 0
                    {
                        break;
                    }
                    std::thread::yield_now();
                }
                Err(error) => panic!("{error}"),
            }
        }
        let (unsent, unacked) = (unsent_bytes(&server).expect("TCP"), unacked_bytes(&server).expect("TCP"));
        assert!(unsent > 0 && unsent <= unacked && unacked < written, "{unsent} {unacked} {written}");
        assert_eq!(u64::from(tcp_info(&server).expect("TCP").notsent_bytes), unsent);
        drop(client);
    }

    #[test]
    fn options_are_taken() {
        let (server, _client) = connection();
        set_notsent_lowat(&server, 4096).expect("TCP");
        assert_eq!(socket2::SockRef::from(&server).tcp_notsent_lowat().expect("set"), 4096);
        set_congestion_control(&server, "reno").expect("reno is in every kernel");
        assert_eq!(congestion_control(&server).expect("set"), "reno");
    }

    #[test]
    fn refusals_say_why() {
        let (server, _client) = connection();
        let error = set_congestion_control(&server, "nosuchcontrol").expect_err("no such module");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        let datagram = std::net::UdpSocket::bind("127.0.0.1:0").expect("a free port");
        assert!(tcp_info(&datagram).is_err());
    }

    #[test]
    fn an_accepted_socket_inherits_the_listeners_limit_of_unsent_bytes() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        assert_eq!(notsent_lowat(&listener).expect("TCP"), None);
        set_notsent_lowat(&listener, 5792).expect("TCP");
        let _client = TcpStream::connect(listener.local_addr().expect("bound")).expect("loopback");
        let (accepted, _) = listener.accept().expect("a client is there");
        assert_eq!(notsent_lowat(&accepted).expect("TCP"), Some(5792));
    }
}
