//! Settings of the instrument's own time-critical threads.

use std::num::NonZero;

use thread_priority::{
    RealtimeThreadSchedulePolicy, ThreadPriority, ThreadPriorityValue, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};

/// Makes the calling thread's timers exact to a nanosecond instead of 50 us, and puts it before every
/// ordinary thread. `rank` (0 to 99) is its priority among such threads. If the system refuses, returns the
/// reason and uses the best ordinary priority.
pub(crate) fn sharpen(rank: u8) -> Option<String> {
    // A coarser timer shows in the lateness.
    let _ = rustix::thread::set_current_timer_slack(NonZero::new(1));
    let fifo = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo);
    let realtime = ThreadPriorityValue::try_from(rank).and_then(|rank| {
        let rank = ThreadPriority::Crossplatform(rank);
        set_thread_priority_and_policy(thread_native_id(), rank, fifo).map_err(|error| format!("{error:?}"))
    });
    let reason = realtime.err()?;
    // On Linux, "this process" means the calling thread here.
    let _ = rustix::process::setpriority_process(None, -20);
    Some(reason)
}
