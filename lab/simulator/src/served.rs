use workload::{
    outcome::{End, Outcome},
    sequence::Request,
};

/// A request and its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// What was asked for, and when.
    pub request: Request,
    /// When its first byte arrived, in nanoseconds since the start; `None` if none did.
    pub first_byte_ns: Option<u64>,
    /// When its last byte arrived, or when it was given up, in nanoseconds since the start.
    pub end_ns: u64,
    /// How it ended: [`End::Done`], [`End::Aborted`], or [`End::Unfinished`] when the simulation was over.
    pub end: End,
    /// Times that the client asked: 1, and one more for each retry after an abort.
    pub attempts: u16,
}

impl Served {
    /// From the moment at which it was to be sent to its end, in nanoseconds.
    pub fn response_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.request.at_ns)
    }

    /// The same as a load generator would have written it down.
    pub fn outcome(&self) -> Outcome {
        let Request { at_ns, file, size_bytes, group } = self.request;
        Outcome {
            at_ns,
            file,
            size_bytes,
            group,
            attempts: self.attempts,
            sent_ns: at_ns,
            first_byte_ns: self.first_byte_ns,
            end_ns: self.end_ns,
            body_bytes: if self.end == End::Done { size_bytes } else { 0 },
            head_bytes: 0,
            end: self.end,
        }
    }
}
