//! The output of a running program, through a pipe.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bodies::RequestBody;
use bytes::BytesMut;
use tokio::{net::unix::pipe, sync::oneshot, time::Instant};

use super::keeper::{Keeper, RestToDrain};
use crate::{
    output::{Incomplete, Output},
    program::{Running, Started, receiver},
    slot::ProgramSlot,
};

/// Bytes read from a program at once: the capacity of a pipe.
const READ_BYTES: usize = 64 << 10;

/// The output of a program, for the reader of the answer. Dropping it kills the program.
#[derive(Debug)]
pub(super) struct PipeOutput {
    stream: pipe::Receiver,
    read: BytesMut,
    /// `None`: the keeper has finished, so the program has ended.
    incomplete: Option<oneshot::Receiver<Incomplete>>,
    done: Option<oneshot::Sender<RestToDrain>>,
}

impl PipeOutput {
    /// Spawns the keeper of a started program, which is killed at the deadline, that is after `timeout`.
    pub(super) fn keep(
        name: &str,
        started: Started,
        body: RequestBody,
        slot: ProgramSlot,
        (deadline, timeout): (Instant, std::time::Duration),
    ) -> io::Result<Self> {
        let Started { process, input, output, errors } = started;
        let program = Running::new(process)?;
        let input = input.map(pipe::Sender::from_owned_fd).transpose()?;
        let (errors, stream) = (receiver(errors)?, receiver(output)?);
        let (incomplete_sender, incomplete) = oneshot::channel();
        let (done_sender, done) = oneshot::channel();
        let incomplete_sender = Some(incomplete_sender);
        let name = name.to_owned();
        let keeper = Keeper { name, program, deadline, timeout, incomplete: incomplete_sender, done, slot };
        tokio::spawn(keeper.keep(input, body, errors));
        Ok(Self { stream, read: BytesMut::new(), incomplete: Some(incomplete), done: Some(done_sender) })
    }

    /// Reads the output that an ended program left in its pipe. A process outside the group that holds the
    /// pipe open is not waited for. It reads directly, since the runtime may not have been notified of the
    /// data yet.
    fn read_left(&mut self) -> bool {
        let mut buffer = [0; 4096];
        match rustix::io::retry_on_intr(|| rustix::io::read(&self.stream, &mut buffer)) {
            Ok(read) => {
                self.read.extend_from_slice(&buffer[..read]);
                read > 0
            }
            Err(_) => false,
        }
    }
}

impl Output for PipeOutput {
    fn unread(&mut self) -> &mut BytesMut {
        &mut self.read
    }

    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, Incomplete>> {
        if let Some(incomplete) = &mut self.incomplete {
            // Polled first, because the output of a killed program ends too.
            match Pin::new(incomplete).poll(cx) {
                Poll::Pending => {}
                Poll::Ready(Ok(why)) => {
                    self.incomplete = None;
                    return Poll::Ready(Err(why));
                }
                Poll::Ready(Err(_)) => self.incomplete = None,
            }
        }
        self.read.reserve(READ_BYTES);
        if self.incomplete.is_none() {
            return Poll::Ready(Ok(self.read_left()));
        }
        loop {
            if ready!(self.stream.poll_read_ready(cx)).is_err() {
                return Poll::Ready(Ok(false));
            }
            match self.stream.try_read_buf(&mut self.read) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return Poll::Ready(Ok(result.is_ok_and(|read| read > 0))),
            }
        }
    }

    fn finish(&mut self) {
        if let Some(done) = self.done.take() {
            let _ = done.send(None);
        }
    }

    /// The keeper drains the rest.
    fn discard(self) {
        let Self { stream, done, .. } = self;
        if let Some(done) = done {
            let _ = done.send(Some(stream));
        }
    }
}
