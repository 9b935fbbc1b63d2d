//! The last step of every response before it is sent: the name of the server, the transforms of its route, and the
//! cookie of its session.

use http::{HeaderMap, HeaderName, HeaderValue, Response, Version, header};

use super::{
    answer_body::AnswerBody,
    context::RequestContext,
    transform::{Asked, Compressing},
};
use crate::{sites::SERVER_NAME, state::ConfigSnapshot};

pub(super) const CLOSE: HeaderValue = HeaderValue::from_static("close");

/// Finishes a response, whatever its origin. If its body is to be compressed as a whole first, that is to be awaited.
pub(super) fn finish<'a>(
    request: &mut RequestContext,
    snapshot: &'a ConfigSnapshot,
    response: &mut Response<AnswerBody>,
) -> Option<Compressing<'a>> {
    // Replaces the name of the origin. The rules of a route may say otherwise.
    response.headers_mut().insert(header::SERVER, SERVER_NAME);
    let sets_cookie = request.of_auth.iter().any(|(name, _)| name == header::SET_COOKIE);
    add_of_auth(std::mem::take(&mut request.of_auth), response.headers_mut());
    let mut compressing = None;
    let transforms = snapshot.sites.transforms(request.site, request.route);
    if !transforms.is_empty() {
        let is_secure = request.is_secure() == Some(true);
        let asked = Asked { fields: &request.parts.headers, is_head: request.record.is_head, is_secure };
        for transform in transforms {
            compressing = transform.apply(&asked, response).or(compressing);
        }
    }
    if let (Some(page), Some(hints)) = (request.page.take(), snapshot.sites.early_hints(request.site, request.route)) {
        hints.learn(page, response.status(), response.headers());
    }
    if request.record.version != Version::HTTP_2 && !request.is_read() {
        // The rest of the body comes before the next request, and is not read.
        response.headers_mut().insert(header::CONNECTION, CLOSE);
    }
    if let Some(cookie) = request.verdict.set_cookie.take() {
        response.headers_mut().append(header::SET_COOKIE, cookie);
        keep_private(response.headers_mut());
    } else if sets_cookie {
        keep_private(response.headers_mut());
    }
    compressing
}

/// Adds fields that a server of `forward-auth` has for the client. They take the place of those of the origin, but for
/// cookies.
fn add_of_auth(fields: Vec<(HeaderName, HeaderValue)>, headers: &mut HeaderMap) {
    for (name, _) in fields.iter().filter(|(name, _)| name != header::SET_COOKIE) {
        headers.remove(name);
    }
    for (name, value) in fields {
        headers.append(name, value);
    }
}

/// Lets no shared cache keep a response, which would hand one client's cookie to all.
fn keep_private(headers: &mut HeaderMap) {
    let text = headers.get_all(header::CACHE_CONTROL).iter().map(|value| value.to_str().unwrap_or("\""));
    let text = text.collect::<Vec<_>>().join(",").to_ascii_lowercase();
    let directives = || text.split(',').map(str::trim).filter(|directive| !directive.is_empty());
    // Names of fields stand in quotes, and may be those of directives.
    let quotes = text.contains('"');
    if !quotes && directives().any(|it| it == "private" || it == "no-store") {
        return;
    }
    let for_all = |it: &str| it == "public" || it == "proxy-revalidate" || it.starts_with("s-maxage");
    let kept = match quotes {
        true => vec!["private", "no-cache"],
        false => std::iter::once("private").chain(directives().filter(|it| !for_all(it))).collect(),
    };
    let value = HeaderValue::try_from(kept.join(", ")).unwrap_or(HeaderValue::from_static("private"));
    headers.insert(header::CACHE_CONTROL, value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_shared_cache_keeps_a_cookie_and_the_rest_of_what_the_origin_says_stays() {
        for (said, left) in [
            (&[][..], &["private"][..]),
            (&["public"], &["private"]),
            (&["Public, max-age=60, s-maxage=600"], &["private, max-age=60"]),
            (&["no-cache", "public"], &["private, no-cache"]),
            (&["max-age=60, PRIVATE"], &["max-age=60, PRIVATE"]),
            (&["public", "no-store"], &["public", "no-store"]),
            (&["public, no-cache=\"a, private\""], &["private, no-cache"]),
            (&["private=\"x-user\""], &["private, no-cache"]),
        ] {
            let mut headers = HeaderMap::new();
            for value in said {
                headers.append(header::CACHE_CONTROL, HeaderValue::from_static(value));
            }
            keep_private(&mut headers);
            let found: Vec<_> = headers.get_all(header::CACHE_CONTROL).iter().map(|it| it.to_str().unwrap()).collect();
            assert_eq!(found, left, "{said:?}");
        }
    }
}
