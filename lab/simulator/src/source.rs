use workload::{
    demand::{Demand, Due},
    sequence::Request,
};

/// A source of requests.
///
/// Call [`Source::poll_request`] until it returns `None`. Go on to [`Source::poll_timeout`] or to the end of
/// a request, whichever is first, and report ends to [`Source::handle_end`]. Then begin again. Times never go
/// back.
pub trait Source {
    /// Time of the next request in nanoseconds; `None` if none comes by itself.
    fn poll_timeout(&self) -> Option<u64>;
    /// The next request that is due by now; each is returned once.
    fn poll_request(&mut self, now_ns: u64) -> Option<Due>;
    /// The request of a waiting user has ended.
    fn handle_end(&mut self, user: u32, now_ns: u64);
}

impl Source for Demand {
    fn poll_timeout(&self) -> Option<u64> {
        self.poll_timeout()
    }

    fn poll_request(&mut self, now_ns: u64) -> Option<Due> {
        self.poll_request(now_ns)
    }

    fn handle_end(&mut self, user: u32, now_ns: u64) {
        self.handle_end(user, now_ns);
    }
}

/// Requests of an iterator sorted by time, without storing them: suits a log of any length.
#[derive(Clone, Debug)]
pub struct Stream<I: Iterator<Item = Request>> {
    requests: std::iter::Peekable<I>,
    next_ns: Option<u64>,
}

impl<I: Iterator<Item = Request>> Stream<I> {
    /// Wraps `requests`. A request that is earlier than the one before it gets the same time.
    pub fn new(requests: I) -> Self {
        let mut requests = requests.peekable();
        let next_ns = requests.peek().map(|request| request.at_ns);
        Self { requests, next_ns }
    }
}

impl<I: Iterator<Item = Request>> Source for Stream<I> {
    fn poll_timeout(&self) -> Option<u64> {
        self.next_ns
    }

    fn poll_request(&mut self, now_ns: u64) -> Option<Due> {
        let due_ns = self.next_ns.filter(|&at_ns| at_ns <= now_ns)?;
        let request = Request { at_ns: due_ns, ..self.requests.next()? };
        self.next_ns = self.requests.peek().map(|next| next.at_ns.max(due_ns));
        Some(Due { request, user: None })
    }

    fn handle_end(&mut self, _user: u32, _now_ns: u64) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_gives_each_request_once_and_never_goes_back_in_time() {
        let at = |at_ns| Request { at_ns, file: 0, size_bytes: 1, group: 0 };
        let mut stream = Stream::new([at(5), at(3), at(9)].into_iter());
        assert_eq!(stream.poll_timeout(), Some(5));
        assert_eq!(stream.poll_request(4), None);
        let moments: Vec<u64> = std::iter::from_fn(|| stream.poll_request(7)).map(|due| due.request.at_ns).collect();
        assert_eq!((moments, stream.poll_timeout()), (vec![5, 5], Some(9)));
        assert_eq!(stream.poll_request(9).map(|due| due.request.at_ns), Some(9));
        assert_eq!((stream.poll_request(u64::MAX), stream.poll_timeout()), (None, None));
    }
}
