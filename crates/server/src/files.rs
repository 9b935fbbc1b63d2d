use bytes::Bytes;
use http::*;
use http_body::*;
use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};
#[derive(Clone)]
pub struct Cache;
impl Cache {
    pub fn new(_: crate::config::CacheConfig) -> Self {
        Cache
    }
}
pub struct Files {
    root: std::path::PathBuf,
}
pub struct FileBody(pub Option<Bytes>);
pub enum Served {
    Ready(Response<FileBody>),
    Later(Pin<Box<dyn Future<Output = Response<FileBody>> + Send>>),
}
impl Files {
    pub fn open(site: &crate::config::Site, _: Cache) -> io::Result<Self> {
        std::fs::read_dir(&site.root)?;
        Ok(Self { root: site.root.clone() })
    }
    pub fn serve(&self, m: &Method, uri: &Uri, _: &HeaderMap) -> Served {
        let r = match std::fs::read(self.root.join(uri.path().trim_start_matches('/'))) {
            Ok(b) if m == Method::HEAD => {
                let mut r = Response::new(FileBody(None));
                r.headers_mut().insert("content-length", b.len().into());
                r
            }
            Ok(b) => Response::new(FileBody(Some(b.into()))),
            Err(_) => crate::pages::error_page(StatusCode::NOT_FOUND),
        };
        if uri.path().starts_with("/later") {
            Served::Later(Box::pin(async move {
                tokio::task::yield_now().await;
                r
            }))
        } else {
            Served::Ready(r)
        }
    }
}
impl Body for FileBody {
    type Data = Bytes;
    type Error = io::Error;
    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, io::Error>>> {
        Poll::Ready(self.0.take().map(|b| Ok(Frame::data(b))))
    }
    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }
    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.as_ref().map_or(0, |b| b.len() as u64))
    }
}
