//! Compresses responses that the client and the route allow it for (RFC 9110, sections 8.4 and 12.5.3).

use std::{pin::Pin, sync::Arc};

use bytes::Bytes;
use compression::{Coding, CompressedBody, Encoder, Levels, Ratio};
use files::{Copies, FileBody, Form, Preferences};
use heads::append_vary;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use http_body::Body as _;

use crate::{config::CompressionConfig, pipeline::answer_body::AnswerBody};

const CONTENT_DIGEST: HeaderName = HeaderName::from_static("content-digest");
const CONTENT_MD5: HeaderName = HeaderName::from_static("content-md5");

/// The compression of a route.
#[derive(Debug)]
pub(crate) struct Compress {
    config: Arc<CompressionConfig>,
    /// Learned from the responses of the route.
    ratio: Ratio,
    /// Where compressed files are kept.
    copies: Copies,
}

/// A response whose body is being compressed as a whole.
pub(crate) struct Compressing<'a> {
    compress: &'a Compress,
    coding: Coding,
    copy: Pin<Box<dyn Future<Output = Option<Bytes>> + Send>>,
}

impl Compressing<'_> {
    /// Puts the compressed body into the response when it is there, or has it compressed while it is sent.
    pub(crate) async fn finish(self, response: &mut Response<AnswerBody>) {
        match self.copy.await {
            Some(copy) => put_copy(copy, self.coding, false, response),
            None => self.compress.stream(self.coding, response),
        }
    }
}

impl Compress {
    pub(super) fn new(config: Arc<CompressionConfig>, copies: Copies) -> Self {
        Self { config, ratio: Ratio::default(), copies }
    }

    /// Compresses a response, if it may be. A compressed copy that is kept is used at once. If a copy is to be kept,
    /// the response is compressed later as a whole; otherwise, while it is sent.
    pub(super) fn apply(
        &self,
        asked: &HeaderMap,
        is_head: bool,
        response: &mut Response<AnswerBody>,
    ) -> Option<Compressing<'_>> {
        if !self.suits(response) {
            return None;
        }
        let headers = response.headers_mut();
        append_vary(headers, &header::ACCEPT_ENCODING);
        if may_not_be_transformed(headers) || may_not_be_transformed(asked) {
            return None;
        }
        let coding = self.choose(&Preferences::parse(asked))?;
        let levels = self.config.levels;
        let original = match response.body() {
            AnswerBody::File(body) => body.original().filter(|original| self.copies.may_have(original)),
            _ => None,
        };
        if let Some(original) = original {
            let form = form(coding, levels);
            if let Some(copy) = self.copies.get(original, form) {
                put_copy(copy, coding, is_head, response);
                return None;
            }
            if !is_head {
                let (copies, original, ratio) = (self.copies.clone(), original.clone(), self.ratio.clone());
                let make = move |plain: &Bytes| compression::compress(coding, levels, plain, &ratio);
                let copy = Box::pin(async move { copies.make(original, form, make).await });
                return Some(Compressing { compress: self, coding, copy });
            }
        }
        match is_head {
            true => tell_coding(coding, None, response.headers_mut()),
            false => self.stream(coding, response),
        }
        None
    }

    /// Has the body compressed while it is sent. The response carries the prediction of its length as an extension.
    fn stream(&self, coding: Coding, response: &mut Response<AnswerBody>) {
        let encoder = match Encoder::new(coding, self.config.levels) {
            Ok(encoder) => encoder,
            Err(error) => {
                tracing::warn!(%error, "a response is sent as it is: its encoder cannot be made");
                return;
            }
        };
        let plain = std::mem::replace(response.body_mut(), FileBody::empty().into());
        let body = CompressedBody::new(Box::new(plain), encoder, self.ratio.clone());
        if let Some(prediction) = body.prediction() {
            response.extensions_mut().insert(prediction);
        }
        *response.body_mut() = AnswerBody::Compressed(Box::new(body));
        tell_coding(coding, None, response.headers_mut());
    }

    /// Whether the route compresses such responses, for clients that accept it.
    fn suits(&self, response: &Response<AnswerBody>) -> bool {
        let headers = response.headers();
        // Parts of a file are parts of the plain one. Error pages of this server are short, and go first.
        let is_page = matches!(response.body(), AnswerBody::File(_)) && response.status() != StatusCode::OK;
        let has_no_body = response.status().is_informational()
            || matches!(response.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
            || response.status() == StatusCode::SWITCHING_PROTOCOLS;
        if is_page
            || has_no_body
            || response.status() == StatusCode::PARTIAL_CONTENT
            || headers.contains_key(header::CONTENT_ENCODING)
            || headers.contains_key(header::CONTENT_RANGE)
        {
            return false;
        }
        let length = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        if length.or(response.body().size_hint().exact()).is_some_and(|bytes: u64| bytes < self.config.min_bytes) {
            return false;
        }
        let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        kind.is_some_and(|kind| self.config.types.iter().any(|pattern| pattern.matches(kind)))
    }

    /// The coding for a client; `None` if it accepts none of them.
    fn choose(&self, preferences: &Preferences) -> Option<Coding> {
        let mut sizes = [None; files::Coding::COUNT];
        for (place, &coding) in (1..).zip(&self.config.codings) {
            // Among codings that the client likes equally, the one with the smallest size is chosen.
            sizes[of_files(coding).index()] = Some(place);
        }
        let chosen = preferences.choose(sizes);
        self.config.codings.iter().copied().find(|&coding| of_files(coding) == chosen)
    }
}

/// Puts a compressed body into a response. For HEAD, only its length is told.
fn put_copy(copy: Bytes, coding: Coding, is_head: bool, response: &mut Response<AnswerBody>) {
    tell_coding(coding, Some(copy.len() as u64), response.headers_mut());
    *response.body_mut() = if is_head { FileBody::empty() } else { FileBody::from(copy) }.into();
}

/// Changes the fields to those of the compressed body. `bytes`: its length, if it is known.
fn tell_coding(coding: Coding, bytes: Option<u64>, headers: &mut HeaderMap) {
    headers.insert(header::CONTENT_ENCODING, name(coding));
    // These are about the bytes before the compression.
    for name in [header::CONTENT_LENGTH, header::ACCEPT_RANGES, CONTENT_DIGEST, CONTENT_MD5] {
        headers.remove(name);
    }
    if let Some(bytes) = bytes {
        headers.insert(header::CONTENT_LENGTH, bytes.into());
    }
    weaken_etag(headers);
}

/// The form of a copy: the coding and its level.
fn form(coding: Coding, levels: Levels) -> Form {
    let level = match coding {
        Coding::Zstd => levels.zstd,
        Coding::Brotli => levels.brotli,
        Coding::Gzip => levels.gzip,
    };
    Form(u16::from_be_bytes([of_files(coding).index() as u8, level]))
}

fn of_files(coding: Coding) -> files::Coding {
    match coding {
        Coding::Zstd => files::Coding::Zstd,
        Coding::Brotli => files::Coding::Brotli,
        Coding::Gzip => files::Coding::Gzip,
    }
}

fn name(coding: Coding) -> HeaderValue {
    HeaderValue::from_static(match coding {
        Coding::Zstd => "zstd",
        Coding::Brotli => "br",
        Coding::Gzip => "gzip",
    })
}

/// Whether `Cache-Control` has `no-transform` (RFC 9111, sections 5.2.1.6 and 5.2.2.6).
fn may_not_be_transformed(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::CACHE_CONTROL).iter();
    let mut directives = values.flat_map(|value| value.as_bytes().split(|&byte| byte == b','));
    directives.any(|directive| directive.trim_ascii().eq_ignore_ascii_case(b"no-transform"))
}

/// The compressed body stands for the plain one, but is not the same bytes (RFC 9110, section 8.8.1).
fn weaken_etag(headers: &mut HeaderMap) {
    let Some(etag) = headers.get(header::ETAG).filter(|etag| etag.as_bytes().starts_with(b"\"")) else { return };
    match HeaderValue::from_bytes(&[b"W/", etag.as_bytes()].concat()) {
        Ok(weak) => drop(headers.insert(header::ETAG, weak)),
        Err(_) => drop(headers.remove(header::ETAG)),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        time::{Duration, SystemTime},
    };

    use files::{Cache, CacheConfig, Files, FilesConfig};
    use http::{Method, Uri};

    use super::*;
    use crate::{body::full, config::TypePattern};

    fn compress() -> Compress {
        let types = CompressionConfig::TYPES.iter().filter_map(|kind| TypePattern::parse(kind));
        let config = CompressionConfig {
            codings: vec![Coding::Zstd, Coding::Brotli, Coding::Gzip],
            types: types.collect(),
            min_bytes: 100,
            levels: Levels::default(),
        };
        Compress::new(Arc::new(config), Cache::new(CacheConfig::default()).copies().clone())
    }

    /// The response to a request with these fields, where the origin answers with a text and these fields.
    fn answer(
        request: &[(&'static str, &str)],
        response: &[(&'static str, &str)],
        status: u16,
    ) -> Response<AnswerBody> {
        let headers = |fields: &[(&'static str, &str)]| -> HeaderMap {
            fields.iter().map(|&(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
        };
        let mut answer = Response::new(AnswerBody::Program(full(vec![b'a'; 1000])));
        *answer.status_mut() = StatusCode::from_u16(status).unwrap();
        *answer.headers_mut() = headers(response);
        answer.headers_mut().entry("content-type").or_insert(HeaderValue::from_static("text/plain"));
        assert!(compress().apply(&headers(request), false, &mut answer).is_none(), "only files are kept");
        answer
    }

    fn coding(request: &[(&'static str, &str)], response: &[(&'static str, &str)], status: u16) -> Option<String> {
        let answer = answer(request, response, status);
        let is_compressed = matches!(answer.body(), AnswerBody::Compressed(_));
        let coding = answer.headers().get("content-encoding").map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(is_compressed, coding.is_some() && !response.iter().any(|field| field.0 == "content-encoding"));
        coding
    }

    #[test]
    fn the_client_chooses_the_coding_and_the_operator_among_equals() {
        let accepted = |value| coding(&[("accept-encoding", value)], &[], 200);
        assert_eq!(accepted("gzip, br, zstd").as_deref(), Some("zstd"));
        assert_eq!(accepted("gzip, deflate, br").as_deref(), Some("br"));
        assert_eq!(accepted("gzip, deflate").as_deref(), Some("gzip"));
        assert_eq!(accepted("gzip;q=1, zstd;q=0.5, br;q=0.9").as_deref(), Some("gzip"));
        assert_eq!(accepted("gzip;q=0.1, zstd;q=0, br;q=0.2").as_deref(), Some("br"));
        assert_eq!(accepted("*, zstd;q=0").as_deref(), Some("br"));
        assert_eq!(accepted("identity"), None);
        assert_eq!(coding(&[], &[], 200), None);
    }

    #[test]
    fn what_may_not_be_compressed_stays_as_it_is() {
        let gzip = ("accept-encoding", "gzip");
        for (field, value) in [
            ("content-encoding", "deflate"),
            ("cache-control", "public, No-Transform"),
            ("content-type", "image/png"),
            ("content-length", "99"),
            ("content-range", "bytes 0-9/20"),
        ] {
            assert!(!matches!(answer(&[gzip], &[(field, value)], 200).body(), AnswerBody::Compressed(_)), "{field}");
        }
        assert_eq!(coding(&[gzip, ("cache-control", "no-transform")], &[], 200), None);
        for status in [204, 206, 304] {
            assert_eq!(coding(&[gzip], &[], status), None, "{status}");
        }
        assert_eq!(coding(&[gzip], &[], 404).as_deref(), Some("gzip"), "an origin's own page");
    }

    #[test]
    fn the_fields_are_those_of_the_compressed_body() {
        let fields = [
            ("etag", "\"abc\""),
            ("content-length", "1000"),
            ("accept-ranges", "bytes"),
            ("vary", "origin"),
            ("content-md5", "x"),
        ];
        let compressed = answer(&[("accept-encoding", "gzip")], &fields, 200);
        let headers = compressed.headers();
        assert_eq!(headers["etag"], "W/\"abc\"");
        let vary: Vec<_> = headers.get_all("vary").iter().map(|it| it.to_str().unwrap()).collect();
        assert_eq!(vary, ["origin", "accept-encoding"]);
        for gone in ["content-length", "accept-ranges", "content-md5"] {
            assert!(!headers.contains_key(gone), "{gone}");
        }
        let plain = answer(&[], &[("etag", "\"abc\""), ("vary", "Accept-Encoding")], 200);
        assert_eq!(
            (&plain.headers()["etag"], &plain.headers()["vary"]),
            (&"\"abc\"".parse().unwrap(), &"Accept-Encoding".parse().unwrap())
        );
        assert!(plain.extensions().get::<compression::Prediction>().is_none());
        assert_eq!(compressed.extensions().get::<compression::Prediction>().unwrap().left_bytes(), 250);
    }
    #[tokio::test]
    async fn a_file_is_compressed_once_and_its_length_is_exact() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        fs::write(&path, "the connection, the scheduler, the request\n".repeat(4000)).unwrap();
        let modified = SystemTime::now() - Duration::from_secs(60);
        fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
        let cache = Cache::new(CacheConfig::default());
        let files = Files::open(folder.path(), &FilesConfig::default(), cache.clone()).unwrap();
        let compress = Compress { copies: cache.copies().clone(), ..compress() };
        let asked = HeaderMap::from_iter([(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"))]);
        let served = async |method: Method| {
            let response = files.serve(&method, &Uri::from_static("/a.txt"), &HeaderMap::new()).response().await;
            let mut response = response.map(AnswerBody::from);
            let is_made = match compress.apply(&asked, method == Method::HEAD, &mut response) {
                Some(compressing) => {
                    compressing.finish(&mut response).await;
                    true
                }
                None => false,
            };
            assert!(response.extensions().get::<compression::Prediction>().is_none());
            let length =
                response.headers().get("content-length").map(|it| it.to_str().unwrap().parse::<u64>().unwrap());
            (is_made, length, response.body().size_hint().exact())
        };
        assert_eq!(served(Method::HEAD).await, (false, None, Some(0)), "nothing is compressed for HEAD");
        let (is_made, length, body_bytes) = served(Method::GET).await;
        assert!(
            is_made && length == body_bytes && length.is_some_and(|bytes| bytes < 5000),
            "{length:?} {body_bytes:?}"
        );
        assert_eq!(served(Method::GET).await, (false, length, length));
        assert_eq!(served(Method::HEAD).await, (false, length, Some(0)));
        let other_level = Levels { gzip: 9, ..Levels::default() };
        assert_ne!(form(Coding::Gzip, other_level), form(Coding::Gzip, Levels::default()));
        assert_eq!(form(Coding::Brotli, other_level), form(Coding::Brotli, Levels::default()));
    }
}
