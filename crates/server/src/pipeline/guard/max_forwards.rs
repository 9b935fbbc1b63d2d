//! `Max-Forwards`: how far an OPTIONS request goes (RFC 9110, section 7.6.2).

use http::{HeaderValue, Method, Response, StatusCode, header::MAX_FORWARDS, request::Parts};

use files::FileBody;

/// Counts this server in the field of an OPTIONS request. The request is answered here when the field is 0. A value
/// that is no number stays as it is. Of several values the least counts.
pub(super) fn answer(request: &mut Parts) -> Option<Response<FileBody>> {
    if request.method != Method::OPTIONS {
        return None;
    }
    let number = |value: &HeaderValue| {
        let digits = value.as_bytes();
        let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
        // A number that is too large stands for the largest.
        is_number.then(|| value.to_str().ok().and_then(|digits| digits.parse().ok()).unwrap_or(u64::MAX))
    };
    let left = request.headers.get_all(MAX_FORWARDS).iter().filter_map(number).min()?;
    if let Some(left) = left.checked_sub(1) {
        request.headers.insert(MAX_FORWARDS, left.into());
        return None;
    }
    let mut response = Response::new(FileBody::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    Some(response)
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn a_request_is_passed_on_as_often_as_it_says() {
        for (said, left) in [
            (&[][..], Some(&[][..])),
            (&["0"], None),
            (&["00"], None),
            (&["1"], Some(&["0"])),
            (&["10"], Some(&["9"])),
            (&["99999999999999999999"], Some(&["18446744073709551614"])),
            (&["x"], Some(&["x"])),
            (&["-1"], Some(&["-1"])),
            (&[""], Some(&[""])),
            (&["3", "2"], Some(&["1"])),
            (&["3", "0"], None),
        ] {
            let (mut request, ()) = Request::options("/").body(()).unwrap().into_parts();
            for value in said {
                request.headers.append(MAX_FORWARDS, HeaderValue::from_static(value));
            }
            let goes_on = answer(&mut request).is_none();
            let found: Vec<_> =
                request.headers.get_all(MAX_FORWARDS).iter().map(|value| value.to_str().unwrap()).collect();
            assert_eq!(goes_on.then_some(&*found), left, "{said:?}");
        }
    }
}
