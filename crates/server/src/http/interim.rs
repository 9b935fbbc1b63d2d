//! Interim responses (RFC 9110, section 15.2) on their way to an HTTP/1.1 client, past hyper, which has no way for them.
//!
//! Where they may stand: behind the whole of the response before, and before the head of their own. hyper asks for the answer to a
//! request only when the one before is whole in its buffer; it flushes the connection only when its buffer is empty; and the answer is
//! kept from it until what came before is written ([`Interims::poll_written`]). So they are written in a flush, by the intake.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    task::{Context, Poll, Waker},
};

use bytes::{BufMut as _, BytesMut};
use parking_lot::Mutex;

use crate::upstream::Interim;

/// What of them a connection's client has yet to get. There cannot be much: see [`crate::upstream`].
#[derive(Debug, Default)]
pub(super) struct Interims {
    /// There are some. To be seen without the lock, because mostly there are none.
    wait: AtomicBool,
    /// Requests that have their answer. Changes behind the lock.
    answered: AtomicU64,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    bytes: BytesMut,
    /// Who waits until they are written.
    waker: Option<Waker>,
}

impl Interims {
    /// A name for the request that is answered next.
    pub(super) fn next(&self) -> u64 {
        self.answered.load(Relaxed)
    }

    /// One of a request's; from its answer on, it is too late.
    pub(super) fn push(&self, request: u64, interim: &Interim) {
        let mut queue = self.queue.lock();
        if self.answered.load(Relaxed) == request {
            write(&mut queue.bytes, interim);
            self.wait.store(true, Relaxed);
        }
    }

    /// The request has its answer. Whether that has to wait for what came before it.
    pub(super) fn answered(&self) -> bool {
        let _queue = self.queue.lock();
        self.answered.fetch_add(1, Relaxed);
        self.wait()
    }

    /// Ready when all are written.
    pub(super) fn poll_written(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut queue = self.queue.lock();
        if !self.wait() {
            return Poll::Ready(());
        }
        queue.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Whether there are any.
    pub(super) fn wait(&self) -> bool {
        self.wait.load(Relaxed)
    }

    /// What is to be written now. Nothing: that all was written is known here.
    pub(super) fn take(&self) -> BytesMut {
        let mut queue = self.queue.lock();
        if queue.bytes.is_empty() {
            self.wait.store(false, Relaxed);
            if let Some(waker) = queue.waker.take() {
                waker.wake();
            }
        }
        std::mem::take(&mut queue.bytes)
    }
}

fn write(to: &mut BytesMut, interim: &Interim) {
    to.put_slice(b"HTTP/1.1 ");
    to.put_slice(interim.status().as_str().as_bytes());
    to.put_u8(b' ');
    to.put_slice(interim.status().canonical_reason().unwrap_or_default().as_bytes());
    for (name, value) in interim.headers() {
        to.put_slice(b"\r\n");
        to.put_slice(name.as_str().as_bytes());
        to.put_slice(b": ");
        to.put_slice(value.as_bytes());
    }
    to.put_slice(b"\r\n\r\n");
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, future::poll_fn, sync::Arc};

    use bytes::Bytes;
    use http::{Request, Response, StatusCode};
    use http_body_util::{BodyExt as _, Full};
    use hyper::{body::Incoming, service::service_fn};
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::{
        config::Limits,
        http::{Drain, HttpSettings, Marks, intake::Intake},
    };

    const HINTS: &str = "HTTP/1.1 103 Early Hints\r\nlink: ";

    fn hints(link: &str) -> Interim {
        let mut interim = Interim::default();
        *interim.status_mut() = StatusCode::EARLY_HINTS;
        interim.headers_mut().insert("link", link.parse().unwrap());
        interim
    }

    /// What a client gets that sends all of this at once, over a connection that takes a few bytes at a time. Each request has two
    /// interim responses and an answer of some length; all is ready at once, or the body is read between them, or after them.
    async fn served(sent: &str) -> String {
        let marks = Arc::new(Marks::new(Arc::new(Drain::default())));
        let settings = HttpSettings::new(&Limits::default());
        let (mut client, server) = tokio::io::duplex(7);
        let intake = Intake::new(server, settings.head, settings.patience, marks.clone());
        let service = service_fn(|request: Request<Incoming>| {
            let marks = marks.clone();
            Box::pin(async move {
                let path = request.uri().path().to_owned();
                let number = marks.interims.next();
                marks.interims.push(number, &hints(&path));
                let body = request.into_body();
                if path == "/before" {
                    assert_eq!(body.collect().await.unwrap().to_bytes(), "body");
                } else {
                    tokio::spawn(body.collect());
                }
                marks.interims.push(number, &hints("2"));
                if marks.interims.answered() {
                    poll_fn(|cx| marks.interims.poll_written(cx)).await;
                }
                marks.interims.push(number, &hints("late"));
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("x".repeat(3000) + &path))))
            })
        });
        let mut http = settings.http1.serve_connection(TokioIo::new(intake), service);
        let sent = sent.to_owned();
        let client = tokio::spawn(async move {
            let mut got = Vec::new();
            let (mut reader, mut writer) = tokio::io::split(&mut client);
            let (read, written) = tokio::join!(reader.read_to_end(&mut got), async {
                writer.write_all(sent.as_bytes()).await.unwrap();
                writer.shutdown().await
            });
            read.and(written.map(|()| 0)).unwrap();
            String::from_utf8(got).unwrap()
        });
        poll_fn(|cx| http.poll_without_shutdown(cx)).await.unwrap();
        drop(http);
        client.await.unwrap()
    }

    /// Heads and bodies by what they are.
    fn outline(got: &str) -> Vec<String> {
        let parts = got.replace(&"x".repeat(3000), "").replace("HTTP/1.1 ", "\nHTTP/1.1 ");
        let part = |part: &str| {
            let (head, body) = part.split_once("\r\n\r\n").unwrap();
            let link = head.lines().find_map(|line| line.strip_prefix("link: ")).unwrap_or_default();
            format!("{} {link}{body}", &head[9..12])
        };
        parts.split("\nHTTP/1.1 ").skip(1).map(|text| part(&format!("HTTP/1.1 {text}"))).collect()
    }

    #[tokio::test]
    async fn they_come_between_whole_responses_and_before_their_own() {
        let get = |path: &str| format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n");
        let post =
            |path: &str, more: &str| format!("POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n{more}\r\nbody");
        let got = served(&[get("/1"), post("/2", ""), get("/3"), post("/4", ""), post("/5", "")].concat()).await;
        let expected: Vec<_> =
            (1..=5).flat_map(|n| [format!("103 /{n}"), "103 2".to_owned(), format!("200 /{n}")]).collect();
        assert_eq!(outline(&got), expected, "{got}");
        assert!(got.starts_with(&format!("{HINTS}/1\r\n\r\n{HINTS}2\r\n\r\nHTTP/1.1 200 OK\r\n")), "{got}");

        // hyper's own 100 comes once, and breaks none of them.
        let got = served(&[post("/before", "expect: 100-continue\r\n"), get("/last")].concat()).await;
        let mut found = outline(&got);
        let at = found.iter().position(|part| part == "100 ").unwrap();
        assert!(at <= 2, "{got}");
        found.remove(at);
        assert_eq!(found, ["103 /before", "103 2", "200 /before", "103 /last", "103 2", "200 /last"], "{got}");
    }
}
