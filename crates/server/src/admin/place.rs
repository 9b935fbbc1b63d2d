//! The paths of the API.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// The resource that a path names.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Place {
    Schema,
    Classes,
    Class(String),
    Admission,
    Upstreams,
    /// The servers of a name in an upstream.
    Server(String, String),
    Certificates,
    /// All gateways of the site.
    Cluster,
    Maintenance,
    /// A site that can be closed.
    Site(String),
    Cache,
    Live,
    Events,
    Changes,
    /// The undoing of a change.
    Undo(u64),
    /// The last responses, one by one.
    Responses,
}

impl Place {
    /// The place that a path names, if it names one.
    pub fn of(path: &str) -> Option<Self> {
        match path.strip_prefix("/api/")? {
            "schema" => Some(Self::Schema),
            "classes" => Some(Self::Classes),
            "admission" => Some(Self::Admission),
            "upstreams" => Some(Self::Upstreams),
            "certificates" => Some(Self::Certificates),
            "cluster" => Some(Self::Cluster),
            "maintenance" => Some(Self::Maintenance),
            "cache" => Some(Self::Cache),
            "live" => Some(Self::Live),
            "events" => Some(Self::Events),
            "changes" => Some(Self::Changes),
            "responses" => Some(Self::Responses),
            rest => {
                let decoded = |name: &str| {
                    let is_name = !name.is_empty() && !name.contains('/');
                    is_name.then(|| percent_decode_str(name).decode_utf8().ok().map(Cow::into_owned))?
                };
                if let Some(name) = rest.strip_prefix("classes/") {
                    return Some(Self::Class(decoded(name)?));
                }
                if let Some(name) = rest.strip_prefix("maintenance/") {
                    return Some(Self::Site(decoded(name)?));
                }
                if let Some(id) = rest.strip_prefix("changes/") {
                    return Some(Self::Undo(id.strip_suffix("/undo")?.parse().ok()?));
                }
                let (upstream, server) = rest.strip_prefix("upstreams/")?.split_once('/')?;
                Some(Self::Server(decoded(upstream)?, decoded(server)?))
            }
        }
    }

    /// The methods that it takes.
    pub fn methods(&self) -> &'static str {
        match self {
            Self::Schema | Self::Classes | Self::Upstreams | Self::Certificates => "GET, HEAD",
            Self::Cluster | Self::Maintenance => "GET, HEAD",
            Self::Live | Self::Events | Self::Changes | Self::Responses => "GET, HEAD",
            Self::Undo(_) => "POST",
            Self::Class(_) => "GET, HEAD, PUT, PATCH, DELETE",
            Self::Admission | Self::Server(..) | Self::Site(_) => "GET, HEAD, PATCH",
            Self::Cache => "GET, HEAD, DELETE",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_means_one_thing() {
        assert_eq!(Place::of("/api/classes"), Some(Place::Classes));
        assert_eq!(Place::of("/api/classes/a%20b"), Some(Place::Class("a b".into())));
        let socket = Place::Server("app".into(), "unix:/run/a.sock".into());
        assert_eq!(Place::of("/api/upstreams/app/unix:%2Frun%2Fa.sock"), Some(socket));
        assert_eq!(Place::of("/api/changes/12/undo"), Some(Place::Undo(12)));
        for nothing in [
            "/api",
            "/api/",
            "/api/classes/",
            "/api/classes/a/b",
            "/api/classes/%ff",
            "/apis",
            "/api/x",
            "/api/upstreams/a",
            "/api/upstreams/a/",
            "/api/upstreams//b",
            "/api/changes/12",
            "/api/changes/x/undo",
            "/api/changes/-1/undo",
        ] {
            assert_eq!(Place::of(nothing), None, "{nothing}");
        }
    }
}
