use workload::{
    outcome::{End, Outcome},
    sequence::Request,
};

/// A finished request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// The request.
    pub request: Request,
    /// When its first byte arrived, in nanoseconds since the start; `None` if none did.
    pub first_byte_ns: Option<u64>,
    /// When its last byte arrived or the client gave up, in nanoseconds since the start.
    pub end_ns: u64,
    /// How it ended: [`End::Done`], [`End::Aborted`], or [`End::Unfinished`] at the end of the simulation.
    pub end: End,
    /// Number of attempts: 1, and one more for each retry after an abort.
    pub attempts: u16,
}

impl Served {
    /// Time from the planned time to the end, in nanoseconds.
    pub fn response_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.request.at_ns)
    }

    /// The same as a load generator would record it.
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
