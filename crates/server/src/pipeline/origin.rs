//! Origin: who answers a request that no guard has answered.

mod answer;
mod files;
mod program;
pub(super) mod upstream;

use std::sync::Arc;

pub(super) use self::answer::Answer;
use super::{
    admission::Admitted,
    context::{Failure, RequestContext},
};
use crate::{
    sites::{Origin, Routed},
    state::ConfigSnapshot,
};

/// Has the request answered by the origin of its route.
pub(super) async fn answer(
    request: &mut RequestContext,
    snapshot: &Arc<ConfigSnapshot>,
    routed: &Routed<'_>,
    admitted: Admitted,
) -> Result<Answer, Failure> {
    match &routed.route.origin {
        Origin::Files => files::answer(request, snapshot, routed).await.map(Answer::Response),
        Origin::Upstream(upstream) => {
            upstream::answer(request, snapshot, routed, upstream, admitted).await.map(Answer::Response)
        }
        // In a box, because it is larger than the others, and rare.
        Origin::Program(program) => Box::pin(program::answer(request, snapshot, routed, program, admitted)).await,
    }
}
