//! Routes of files: a path that is no file goes on with the route of another path, and so does a directory whose index is a
//! script.

use files::{Looked, Place};
use http::uri::PathAndQuery;

use super::{
    redirect::source,
    ruling::{Checked, Guarded, Ruling},
};
use crate::config::{Rewrite, Route, Site, is_script};

/// Where the requests of a route go for which there is no file.
#[derive(Clone, Debug)]
pub(crate) struct Fallback {
    /// `None`: they get 404.
    to: Option<Rewrite>,
    /// The names that are tried in a directory.
    index: Vec<String>,
    /// The extensions of scripts, which are no files.
    scripts: Vec<String>,
    /// Whether directories without an index are listed.
    lists: bool,
}

impl Fallback {
    /// `None`: all requests of the route are for files.
    pub(super) fn of(route: &Route, site: &Site) -> Option<Self> {
        let (index, scripts) = (site.files.index.clone(), site.scripts());
        let lists = route.listing.unwrap_or(site.files.listing);
        let has_scripts = index.iter().any(|name| is_script(&scripts, name));
        (route.fallback.is_some() || has_scripts).then(|| Self { to: route.fallback.clone(), index, scripts, lists })
    }

    fn ruling(&self, place: Place, to: Option<PathAndQuery>, query: Option<&str>) -> Ruling {
        match (place, to) {
            (Place::Index(path), _) if is_script(&self.scripts, &path) => {
                let to = query.map_or(path.clone(), |query| format!("{path}?{query}"));
                PathAndQuery::try_from(to).map_or(Ruling::GoesOn, Ruling::Elsewhere)
            }
            (Place::NoIndex, Some(to)) if !self.lists => Ruling::Elsewhere(to),
            (Place::Missing, Some(to)) => Ruling::Elsewhere(to),
            _ => Ruling::GoesOn,
        }
    }
}

/// Has the request go on elsewhere, if there is no file for it.
pub(super) fn check(fallback: &Fallback, request: &Guarded<'_>) -> Checked<'static> {
    let uri = &request.parts.uri;
    let Some(files) = request.files else { return Checked::Now(Ruling::GoesOn) };
    let to = fallback.to.as_ref().and_then(|to| to.path(&source(request)));
    // The file that takes the place of missing ones is missing.
    let to = to.filter(|to| to.path() != uri.path());
    match files.place(uri.path(), &fallback.index) {
        Looked::Ready(place) => Checked::Now(fallback.ruling(place, to, uri.query())),
        Looked::Later(place) => {
            let (fallback, query) = (fallback.clone(), uri.query().map(str::to_owned));
            Checked::Later(Box::pin(async move { fallback.ruling(place.await, to, query.as_deref()) }))
        }
    }
}
