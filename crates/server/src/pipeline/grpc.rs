//! Answers to calls of gRPC, in a form that their clients understand.

use heads::GrpcStatus;
use http::{Response, header};

use super::{answer_body::AnswerBody, call::CallBody, context::RequestContext};
use crate::gate::InBursts;

/// The fields that describe the body of a page.
const OF_PAGE: [header::HeaderName; 8] = [
    header::ACCEPT_RANGES,
    header::CONTENT_ENCODING,
    header::CONTENT_LANGUAGE,
    header::CONTENT_LENGTH,
    header::CONTENT_RANGE,
    header::CONTENT_SECURITY_POLICY,
    header::ETAG,
    header::LAST_MODIFIED,
];

/// Gives an answer the form of gRPC. A response of an upstream stays as it is: clients know what HTTP statuses mean.
pub(super) fn answer(request: &RequestContext, mut response: Response<AnswerBody>) -> Response<AnswerBody> {
    let Some(call) = &request.call else { return response };
    if request.record.server.is_some() && request.is_answered_by_origin {
        if let Some(status) = GrpcStatus::of(response.headers()) {
            call.end.is(status);
        } else if !heads::has_grpc_type(response.headers()) {
            call.end.is(GrpcStatus::of_http(response.status()));
        }
        let call = call.clone();
        response.extensions_mut().insert(InBursts);
        return response.map(|inner| AnswerBody::Call(Box::new(CallBody::new(inner, call))));
    }
    let (status, message) = call.status_of(response.status(), request.record.refused);
    call.end.is(status);
    for name in &OF_PAGE {
        response.headers_mut().remove(name);
    }
    status.write(message, &mut response);
    response
}
