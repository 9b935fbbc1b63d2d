//! Error pages of a site: files or texts in place of what an origin, or this server, says with an error.

use std::{
    fs::File,
    io::{self, Read as _},
    path::PathBuf,
};

use bytes::Bytes;
use files::{ContentTypes, FileBody, Files, FilesConfig};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Uri, header};

use super::answer_body::AnswerBody;
use crate::config::PageSource;

const TEXT_TYPE: &str = "text/plain; charset=utf-8";

/// The fields that describe a body, which are those of the page then. The policy is that of the page that is replaced.
const OF_BODY: [HeaderName; 10] = [
    header::ACCEPT_RANGES,
    header::CONTENT_ENCODING,
    header::CONTENT_LANGUAGE,
    header::CONTENT_LENGTH,
    header::CONTENT_RANGE,
    header::CONTENT_SECURITY_POLICY,
    header::CONTENT_TYPE,
    header::ETAG,
    header::LAST_MODIFIED,
    header::TRAILER,
];

/// Largest page that is kept in memory.
const MOST_BYTES: u64 = 1024 * 1024;

/// A page, ready for errors.
#[derive(Debug)]
pub(crate) enum Page {
    /// A file of the root, by its path.
    OfRoot(Uri),
    /// A text, and its type.
    Kept(Bytes, HeaderValue),
}

impl Page {
    /// Reads a page. Blocks. `files`: the settings of the site, which have the types of files.
    pub(crate) fn open(source: &PageSource, files: &FilesConfig) -> Result<Self, (PathBuf, io::Error)> {
        match source {
            PageSource::OfRoot(path) => Ok(Self::OfRoot(path.clone())),
            PageSource::Text(text) => Ok(Self::Kept(text.clone().into(), HeaderValue::from_static(TEXT_TYPE))),
            PageSource::File(path) => {
                let failed = |error| (path.clone(), error);
                let mut bytes = Vec::new();
                let file = File::open(path).map_err(failed)?;
                file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
                if bytes.len() as u64 > MOST_BYTES {
                    let message = format!("an error page may have {MOST_BYTES} bytes at most");
                    return Err(failed(io::Error::new(io::ErrorKind::FileTooLarge, message)));
                }
                let types = ContentTypes::new(&files.mime_types).map_err(failed)?;
                Ok(match without_head(&bytes) {
                    Some((content_type, body)) => Self::Kept(Bytes::copy_from_slice(body), content_type),
                    None => Self::Kept(bytes.into(), types.of(path)),
                })
            }
        }
    }
}

/// The type and the body of a page that is a whole response, as HAProxy's `errorfile` names them.
fn without_head(page: &[u8]) -> Option<(HeaderValue, &[u8])> {
    if !page.starts_with(b"HTTP/1.") {
        return None;
    }
    let ends = |end: &[u8]| page.windows(end.len()).position(|part| part == end).map(|at| (at, at + end.len()));
    let (head, body) = match (ends(b"\r\n\r\n"), ends(b"\n\n")) {
        (Some(one), Some(other)) => one.min(other),
        (one, other) => one.or(other)?,
    };
    let head = std::str::from_utf8(&page[..head]).ok()?;
    let mut fields = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    let of_type = fields.find(|(name, _)| name.eq_ignore_ascii_case("content-type"));
    let of_type = of_type.and_then(|(_, value)| HeaderValue::from_str(value.trim()).ok());
    Some((of_type.unwrap_or(HeaderValue::from_static("text/html")), &page[body..]))
}

/// Puts a page into a response. Status and other fields stay. A page that cannot be read leaves the response as it is.
pub(super) async fn put(files: Option<&Files>, page: &Page, response: Response<AnswerBody>) -> Response<AnswerBody> {
    let (of_page, body) = match (page, files) {
        (Page::Kept(text, content_type), _) => {
            let mut fields = HeaderMap::new();
            fields.insert(header::CONTENT_TYPE, content_type.clone());
            fields.insert(header::CONTENT_LENGTH, HeaderValue::from(text.len()));
            (fields, FileBody::from(text.clone()))
        }
        (Page::OfRoot(path), Some(files)) => {
            let page = files.serve(&Method::GET, path, &HeaderMap::new()).response().await;
            if page.status() != StatusCode::OK {
                tracing::warn!(%path, status = page.status().as_u16(), "an error page of a site cannot be read");
                return response;
            }
            let (head, body) = page.into_parts();
            (head.headers, body)
        }
        (Page::OfRoot(_), None) => return response,
    };
    let (mut head, _) = response.into_parts();
    for name in OF_BODY {
        head.headers.remove(name);
    }
    for name in [header::CONTENT_TYPE, header::CONTENT_LENGTH] {
        if let Some(value) = of_page.get(&name) {
            head.headers.insert(name, value.clone());
        }
    }
    Response::from_parts(head, body.into())
}
