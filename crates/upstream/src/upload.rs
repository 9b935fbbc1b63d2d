//! The body of a request over HTTP/2, which is sent while the response is read.

use std::future::poll_fn;

use bodies::RequestBody;
use http2::Sending;
use tokio::task::JoinHandle;

use crate::outgoing::Outgoing;

/// The task that sends the body. It ends with this: nothing is sent behind the response.
#[derive(Debug)]
pub(crate) struct Upload(JoinHandle<Outgoing>);

impl Upload {
    pub(crate) fn start(mut sending: Sending<Outgoing>) -> Self {
        Self(tokio::spawn(async move {
            if let Err(error) = poll_fn(|cx| sending.poll_sent(cx)).await {
                tracing::debug!("the body of a request ends early: {error}");
            }
            sending.into_body()
        }))
    }

    /// The body from its beginning, after its stream was reset; `None`: too much of it is gone.
    pub(crate) async fn again(mut self) -> Option<RequestBody> {
        (&mut self.0).await.ok()?.again()
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        self.0.abort();
    }
}
