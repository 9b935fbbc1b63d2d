//! Spans that wait for the collector, up to a bound.
//!
//! The lock is held for a few instructions, never over I/O. Only a batch that is full wakes the exporter: waking it for
//! each request would cost a system call each.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::span::Trace;

/// Most spans that wait; a request has two to six.
pub(crate) const MOST_SPANS: usize = 8192;
/// So many spans are sent at once, as far as the spans of a request stay together.
pub(crate) const BATCH_SPANS: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    /// A batch is full.
    filled: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    traces: VecDeque<Trace>,
    spans: usize,
    is_closed: bool,
}

impl Queue {
    /// Whether spans would be taken. The next one may find the queue full all the same.
    pub(crate) fn has_room(&self) -> bool {
        let waiting = self.waiting.lock();
        !waiting.is_closed && waiting.spans < MOST_SPANS
    }

    /// Takes the spans of a request, all of them or none; returns whether it has.
    pub(crate) fn push(&self, trace: Trace) -> bool {
        let is_filled = {
            let mut waiting = self.waiting.lock();
            let (before, after) = (waiting.spans, waiting.spans + trace.spans.len());
            if waiting.is_closed || after > MOST_SPANS {
                return false;
            }
            waiting.spans = after;
            waiting.traces.push_back(trace);
            before < BATCH_SPANS && after >= BATCH_SPANS
        };
        if is_filled {
            self.filled.notify_one();
        }
        true
    }

    /// Waits until a batch is full.
    pub(crate) async fn filled(&self) {
        self.filled.notified().await;
    }

    /// Spans that wait.
    pub(crate) fn spans(&self) -> usize {
        self.waiting.lock().spans
    }

    /// The next batch, with the number of its spans. One that is not full is taken only if it `is_due`.
    pub(crate) fn take(&self, is_due: bool) -> Option<(Vec<Trace>, usize)> {
        let mut waiting = self.waiting.lock();
        if !is_due && waiting.spans < BATCH_SPANS {
            return None;
        }
        let (mut count, mut spans) = (0, 0);
        for trace in &waiting.traces {
            if count > 0 && spans + trace.spans.len() > BATCH_SPANS {
                break;
            }
            count += 1;
            spans += trace.spans.len();
        }
        waiting.spans -= spans;
        let batch: Vec<_> = waiting.traces.drain(..count).collect();
        (!batch.is_empty()).then_some((batch, spans))
    }

    /// Takes nothing more.
    pub(crate) fn close(&self) {
        self.waiting.lock().is_closed = true;
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use http::HeaderMap;
    use tokio::time::timeout;

    use super::*;
    use crate::{
        context::{Context, SpanId},
        span::{Kind, Span},
    };

    fn trace(spans: usize) -> Trace {
        let context = Context::begin(&HeaderMap::new(), false, 1.0);
        let span = |_| Span::new(SpanId::random(), "a", Kind::Internal, 1, 2);
        Trace { context, state: None, spans: (0..spans).map(span).collect() }
    }

    #[test]
    fn what_there_is_no_room_for_is_refused_and_what_was_taken_comes_out_in_order() {
        let queue = Queue::default();
        let taken = (0..MOST_SPANS).filter(|_| queue.push(trace(3))).count();
        assert_eq!(taken, MOST_SPANS / 3);
        assert!(queue.has_room() && queue.push(trace(2)), "the last two places");
        assert!(!queue.has_room() && !queue.push(trace(1)));
        let mut came = 0;
        while let Some((batch, spans)) = queue.take(true) {
            assert_eq!(spans, batch.iter().map(|trace| trace.spans.len()).sum::<usize>());
            assert!(spans <= BATCH_SPANS);
            came += spans;
        }
        assert_eq!(came, MOST_SPANS);
        assert!(queue.push(trace(BATCH_SPANS + 1)), "there is room again");
        assert_eq!(queue.take(false).unwrap().1, BATCH_SPANS + 1, "the spans of a request stay together");
        assert!(queue.push(trace(1)) && queue.take(false).is_none() && queue.spans() == 1, "it is not full");
        queue.close();
        assert!(!queue.has_room() && !queue.push(trace(1)));
    }

    #[tokio::test]
    async fn a_full_batch_wakes_the_other_task_once() {
        let queue = Arc::new(Queue::default());
        let waits = tokio::spawn({
            let queue = queue.clone();
            async move { queue.filled().await }
        });
        (0..BATCH_SPANS - 1).for_each(|_| assert!(queue.push(trace(1))));
        tokio::task::yield_now().await;
        assert!(!waits.is_finished(), "one is missing");
        queue.push(trace(1));
        timeout(Duration::from_secs(60), waits).await.unwrap().unwrap();
        queue.push(trace(1));
        assert!(timeout(Duration::ZERO, queue.filled()).await.is_err(), "it was told already");
    }
}
