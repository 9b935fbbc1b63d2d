//! `forward-auth` of a site or a route: another server says whether a request goes on.

use std::sync::Arc;

use http::{HeaderName, uri::PathAndQuery};
use server::config::{ForwardAuth, UpstreamConfig};
use toml::Spanned;

use super::{resolver::Resolver, routes::may_be_changed};
use crate::{
    config::{raw::RawForwardAuth, written::OrOff},
    values,
};

impl Resolver<'_> {
    /// `None`: no server is asked.
    pub(super) fn forward_auth(
        &mut self,
        written: &Spanned<OrOff<RawForwardAuth>>,
        upstreams: &[UpstreamConfig],
    ) -> Option<Arc<ForwardAuth>> {
        let help = "write who is asked, as in `forward-auth = { upstream = \"auth\", path = \"/verify\" }`, or `off`";
        let raw = self.table_or_off(written, "forward-auth", help)?;
        let missing = ("this table has no `upstream`", "add `upstream = \"NAME\"`: the server that is asked");
        // Its name alone; whether there is one of that name is another question.
        self.required(&raw.upstream, written.span(), missing, |text| Ok(text.to_owned()));
        let path = self.setting(None, &raw.path, path_and_query, PathAndQuery::from_static("/"));
        let copy = self.read_each(raw.copy_headers.as_deref().unwrap_or_default(), |text| copied(text, true));
        let to_client = self.read_each(raw.client_headers.as_deref().unwrap_or_default(), |text| copied(text, false));
        let names: Vec<_> = upstreams.iter().map(|upstream| upstream.name.clone()).collect();
        let name = raw.upstream.as_ref()?;
        let help = format!("add `[[upstream]]` with `name = \"{}\"`", name.get_ref().0);
        let upstream = self.index_of("upstream", name, &names, &help)?;
        Some(Arc::new(ForwardAuth { upstream, path, copy, to_client }))
    }
}

fn path_and_query(text: &str) -> Result<PathAndQuery, String> {
    let is_path = text.starts_with('/') && !text.contains('#');
    text.parse()
        .ok()
        .filter(|_| is_path)
        .ok_or_else(|| format!("`{text}` is no path: write it as in `/verify?app=shop`"))
}

fn copied(text: &str, of_request: bool) -> Result<HeaderName, String> {
    let name = values::header_name(text)?;
    may_be_changed(&name, of_request)?;
    Ok(name)
}
