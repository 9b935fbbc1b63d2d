//! Measures the load generator itself on this machine: requests per second, lateness and processor time,
//! against nginx on the loopback network. The results are meaningful only on an idle machine, built with
//! `--release`, as root.
//!
//! ```text
//! cargo run --release -p serpent-instrument --example generator -- [REQUESTS_PER_SECOND [SECONDS [BYTES]]]
//! ```

use std::{
    error::Error,
    fs,
    net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream},
    process::Command,
    sync::atomic::AtomicBool,
    thread,
    time::{Duration, Instant},
};

use rcgen::{CertificateParams, KeyPair};
use serpent_instrument::{
    client::{ClientGroup, Load, TlsServer},
    docroot::{Content, DocRoot},
};
use workload::{
    behaviour::{Behaviour, Protocol},
    demand::Demand,
    outcome::End,
    sequence::Request,
};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<u64>());
    let mut number = |default| arguments.next().unwrap_or(Ok(default));
    let (per_second, seconds, size_bytes) = (number(5_000)?, number(5)?, number(2_500)?);

    let root = DocRoot::write(&[size_bytes])?;
    let dir = tempfile::tempdir()?;
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(vec!["lab.example".to_owned()])?.self_signed(&key)?;
    fs::write(dir.path().join("key.pem"), key.serialize_pem())?;
    fs::write(dir.path().join("cert.pem"), certificate.pem())?;
    let ports = [(); 4].map(|()| TcpListener::bind("127.0.0.1:0"));
    let mut addresses = Vec::new();
    for port in ports {
        addresses.push(port?.local_addr()?.to_string().parse::<SocketAddrV4>()?);
    }
    let server = |address: SocketAddrV4, kind: &str| {
        format!("server {{ listen {address} {kind} backlog=65535; root {}; }}\n", root.path().display())
    };
    let servers: String =
        addresses.iter().zip(["", "ssl", "http2", "ssl http2"]).map(|(&address, kind)| server(address, kind)).collect();
    let path = dir.path().display();
    fs::write(
        dir.path().join("nginx.conf"),
        format!(
            "daemon off; master_process off; worker_rlimit_nofile 65536; pid {path}/pid; error_log {path}/error.log;\n\
             events {{ worker_connections 60000; }}\n\
             http {{ access_log off; keepalive_requests 1000000; ssl_certificate {path}/cert.pem;\n\
             ssl_certificate_key {path}/key.pem;\n{servers}}}\n"
        ),
    )?;
    let mut nginx =
        Command::new("nginx").arg("-c").arg(dir.path().join("nginx.conf")).arg("-p").arg(dir.path()).spawn()?;
    while TcpStream::connect(addresses[3]).is_err() && nginx.try_wait()?.is_none() {
        thread::sleep(Duration::from_millis(1));
    }

    println!("{per_second} requests per second of {size_bytes} bytes, {seconds} s each");
    println!(
        "kind                    done  others  connections  lateness ms: p50    p99    max  response ms: p50    p99   CPU of the client"
    );
    for (number, &address) in addresses.iter().enumerate() {
        for requests_per_connection in [1, 0] {
            let behaviour = Behaviour {
                protocol: if number < 2 { Protocol::Http1 } else { Protocol::Http2 },
                tls: number % 2 == 1,
                requests_per_connection,
                ..Behaviour::default()
            };
            let sources = Ipv4Addr::new(127, 10, (number * 2) as u8 + requests_per_connection as u8, 0);
            let group = ClientGroup { sources, behaviour: behaviour.clone(), mss_bytes: None };
            let request = |i: u64| Request { at_ns: i * 1_000_000_000 / per_second, file: 0, size_bytes, group: 0 };
            let load = Load {
                demand: Demand::sequence((0..per_second * seconds).map(request).collect()),
                groups: &[group],
                server: address,
                tls: Some(TlsServer { address, certificate_der: certificate.der() }),
                until: Duration::from_secs(seconds),
                drain: Duration::from_secs(5),
                content: &Content::new(),
                start: Instant::now() + Duration::from_millis(50),
                stop: &AtomicBool::new(false),
            };
            let began = Instant::now();
            // A separate thread, so that the processor time is the generator's alone.
            let (drive, cpu) = thread::scope(|scope| {
                scope
                    .spawn(|| {
                        let drive = load.drive();
                        (drive, rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime))
                    })
                    .join()
                    .expect("the generator does not panic")
            });
            let drive = drive?;
            let cpu_s = cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9;
            let done = drive.outcomes.iter().filter(|outcome| outcome.end == End::Done).count();
            let mut late: Vec<u64> = drive.outcomes.iter().map(|outcome| outcome.lateness_ns()).collect();
            let mut took: Vec<u64> = drive.outcomes.iter().map(|outcome| outcome.response_ns()).collect();
            late.sort_unstable();
            took.sort_unstable();
            let at = |sorted: &[u64], share: f64| sorted[((sorted.len() - 1) as f64 * share) as usize] as f64 / 1e6;
            println!(
                "{:<20} {done:>7} {:>7} {:>12} {:>17.3} {:>6.3} {:>6.3} {:>17.3} {:>6.3} {:>18.0} %",
                format!(
                    "{:?}{}{}",
                    behaviour.protocol,
                    if behaviour.tls { " TLS" } else { "" },
                    if requests_per_connection == 0 { " kept" } else { "" }
                ),
                drive.outcomes.len() - done,
                drive.connections,
                at(&late, 0.5),
                at(&late, 0.99),
                at(&late, 1.0),
                at(&took, 0.5),
                at(&took, 0.99),
                cpu_s / began.elapsed().as_secs_f64() * 100.0,
            );
            drive.notes.iter().for_each(|note| println!("  {note}"));
        }
    }
    nginx.kill()?;
    nginx.wait()?;
    Ok(())
}
