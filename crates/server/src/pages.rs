use http::*;
pub fn error_page(s: StatusCode) -> Response<crate::files::FileBody> {
    let mut r = Response::new(crate::files::FileBody(if s == 204 { None } else { Some(s.to_string().into()) }));
    *r.status_mut() = s;
    r
}
