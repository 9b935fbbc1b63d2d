//! `cors` of a site or a route: which pages of other origins may read responses.

use std::{sync::Arc, time::Duration};

use http::{HeaderValue, Method};
use server::config::{Cors, OriginPattern, Origins};
use toml::Spanned;

use super::resolver::Resolver;
use crate::{
    config::{problems::Problem, raw::RawCors, written::OrOff},
    values,
};

/// For how long browsers keep what they were told, as they do by themselves.
const MAX_AGE: Duration = Duration::from_secs(5);

impl Resolver<'_> {
    /// `None`: nothing is said.
    pub(super) fn cors(&mut self, written: &Spanned<OrOff<RawCors>>) -> Option<Arc<Cors>> {
        let help = "write whose pages may read it, as in `cors = { origins = \"https://app.example\" }`, or `off`";
        let raw = self.table_or_off(written, "cors", help)?;
        let Some(origins) = raw.origins.as_deref().filter(|origins| !origins.is_empty()) else {
            if self.shape_is_sound {
                let problem = Problem::new("this table names no origin", Some(written.span()));
                self.problems.push(problem.help("add `origins = [\"https://app.example\"]`, or `\"*\"` for all"));
            }
            return None;
        };
        let credentials = raw.credentials.as_ref().filter(|on| *on.get_ref());
        let any = origins.iter().find(|origin| origin.get_ref().0 == "*");
        let origins = match any {
            Some(_) if origins.len() == 1 => Origins::Any,
            _ => Origins::Of(self.read_each(origins, origin)),
        };
        if let (Origins::Any, Some(any), Some(credentials)) = (&origins, any, credentials) {
            self.problems.push(
                Problem::new(
                    "no browser sends passwords or cookies along where all origins are let in",
                    Some(credentials.span()),
                )
                .also(Some(any.span()), "all")
                .help("name the origins, as in `https://app.example` or `https://*.example`"),
            );
        }
        let mut list = |written: &Option<Vec<Spanned<_>>>, read: fn(&str) -> Result<String, String>| {
            written.as_ref().map(|written| joined(&self.read_each(written, read)))
        };
        let methods = list(&raw.methods, method);
        let headers = list(&raw.allow_headers, header_name);
        let expose = list(&raw.expose_headers, header_name).filter(|names| !names.is_empty());
        let max_age = self.setting(None, &raw.max_age, values::duration_or_zero, MAX_AGE);
        let standard = || joined(&Cors::METHODS.map(str::to_owned));
        let methods = methods.unwrap_or_else(standard);
        let credentials = credentials.is_some();
        Some(Arc::new(Cors { origins, methods, headers, expose, credentials, max_age }))
    }
}

fn origin(text: &str) -> Result<OriginPattern, String> {
    OriginPattern::parse(text).ok_or_else(|| match text {
        "*" => "`*` stands for all origins, and others beside it say nothing".to_owned(),
        _ => format!(
            "`{text}` is no origin: write it as browsers do, as in `https://app.example`, `http://localhost:3000` or \
             `https://*.app.example`, without a path and without the scheme's own port"
        ),
    })
}

fn method(text: &str) -> Result<String, String> {
    let method =
        Method::from_bytes(text.as_bytes()).map_err(|_| format!("`{text}` is no method: write it as in `PUT`"))?;
    Ok(method.as_str().to_owned())
}

fn header_name(text: &str) -> Result<String, String> {
    values::header_name(text).map(|name| name.as_str().to_owned())
}

/// Names of methods or fields are valid in a field.
fn joined(names: &[String]) -> HeaderValue {
    HeaderValue::try_from(names.join(", ")).unwrap_or(HeaderValue::from_static(""))
}
