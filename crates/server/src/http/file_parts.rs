//! Files on their way from the page cache to the client, without a copy.

use std::{
    io,
    task::{Context, Poll},
};

use crate::{
    gate::{Gate, GatedBody, Transport},
    pipeline::answer_body::AnswerBody,
};

/// Sends the next bytes of a body, at most `left_bytes`, behind the bytes `ahead`. `None`: they do not lie in a file,
/// or the page cache lacks them.
pub(crate) fn send_part<T: Transport>(
    gate: &mut Gate<T>,
    cx: &mut Context<'_>,
    ahead: &[u8],
    body: &mut GatedBody<AnswerBody>,
    left_bytes: u64,
) -> Option<Poll<io::Result<usize>>> {
    let AnswerBody::File(body_of_file) = body.inner_mut()? else { return None };
    let (file, part) = body_of_file.cached_part(left_bytes.min(gate.most_file_bytes()), gate.grant_bytes())?;
    let sent = gate.poll_send_file(cx, ahead, file, part);
    if let Poll::Ready(Ok(taken)) = sent {
        if taken == 0 {
            body_of_file.refuse_parts();
            return None;
        }
        let bytes = taken.saturating_sub(ahead.len()) as u64;
        body_of_file.handle_sent(bytes);
        body.handle_passed(bytes);
    }
    Some(sent)
}
