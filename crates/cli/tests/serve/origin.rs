//! A web server behind the one under test. It answers when the test says so.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::mpsc::{Receiver, Sender, channel},
};

use super::support::PATIENCE;

/// Receives requests. Each waits for the test's answer.
pub struct Origin {
    pub address: SocketAddr,
    asked: Receiver<Asked>,
}

/// A request that waits for its answer.
pub struct Asked {
    /// Its head, without the empty line.
    pub head: String,
    pub body: Vec<u8>,
    /// The connection, for answers that are not plain.
    pub stream: TcpStream,
    answered: Sender<()>,
}

impl Origin {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, asked) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let sender = sender.clone();
                std::thread::spawn(move || hear(stream, &sender));
            }
        });
        Self { address, asked }
    }

    /// The next request.
    pub fn next(&self) -> Asked {
        self.asked.recv_timeout(PATIENCE).expect("a request for the upstream")
    }

    /// A request that has arrived already.
    pub fn try_next(&self) -> Option<Asked> {
        self.asked.try_recv().ok()
    }

    /// Checks that no request has arrived.
    pub fn is_idle(&self) -> bool {
        match self.asked.try_recv() {
            Ok(asked) => panic!("{}", asked.head),
            Err(_) => true,
        }
    }

    /// Answers the next request, and returns its path.
    pub fn answer(&self, body: &str) -> String {
        let asked = self.next();
        let path = asked.path().to_owned();
        asked.answer(body.as_bytes());
        path
    }
}

impl Asked {
    pub fn path(&self) -> &str {
        self.head.split(' ').nth(1).unwrap()
    }

    /// The value of a field; if there are several, all values.
    pub fn field(&self, name: &str) -> Option<String> {
        let values: Vec<_> = self
            .head
            .lines()
            .skip(1)
            .filter_map(|line| line.split_once(':'))
            .filter(|(field, _)| field.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim().to_owned())
            .collect();
        (!values.is_empty()).then(|| values.join(" | "))
    }

    /// Answers with 200 and a body.
    pub fn answer(self, body: &[u8]) {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nserver: origin\r\n\r\n", body.len());
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(body);
        self.send(&bytes);
        let _ = self.answered.send(());
    }

    /// Sends bytes as they are. It is no error if the other side is gone.
    pub fn send(&self, bytes: &[u8]) {
        let _ = (&self.stream).write_all(bytes);
    }

    /// Ends the answer, so that the next request may come.
    pub fn done(self) {
        let _ = self.answered.send(());
    }
}

fn hear(stream: TcpStream, asked: &Sender<Asked>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    loop {
        let mut head = String::new();
        loop {
            let mut line = String::new();
            match reader.read_line(&mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) if line == "\r\n" => break,
                Ok(_) => head.push_str(&line),
            }
        }
        let (answered, go_on) = channel();
        let mut request = Asked { head, body: Vec::new(), stream: stream.try_clone().unwrap(), answered };
        if let Some(length) = request.field("content-length") {
            request.body = vec![0; length.parse().unwrap()];
            if reader.read_exact(&mut request.body).is_err() {
                return;
            }
        } else if request.field("transfer-encoding").is_some() {
            loop {
                let mut size = String::new();
                reader.read_line(&mut size).unwrap();
                let size = usize::from_str_radix(size.trim(), 16).unwrap();
                let mut chunk = vec![0; size + 2];
                reader.read_exact(&mut chunk).unwrap();
                request.body.extend_from_slice(&chunk[..size]);
                if size == 0 {
                    break;
                }
            }
        }
        // From here on an upgraded connection belongs to the test.
        let upgrade = request.field("upgrade").is_some();
        if asked.send(request).is_err() || upgrade || go_on.recv().is_err() {
            return;
        }
    }
}
