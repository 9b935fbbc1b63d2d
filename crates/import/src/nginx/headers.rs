//! Fields of requests and responses: `proxy_set_header`, `add_header`.

use super::{
    forward_auth::is_copied,
    freshness::kept_for,
    location::Pattern,
    state::{Translation, in_force, one_in_force},
    values,
};
use crate::{
    draft::{Section, Settings},
    fields::Fields,
    syntax::Directive,
};

impl<'a> Translation<'a> {
    pub(super) fn request_headers(&mut self, levels: &[&'a [Directive]], settings: &mut Settings) {
        let mut fields = Fields::default();
        for header in in_force(levels, "proxy_set_header") {
            let (name, value) = (header.arg(0), header.arg(1));
            match (name.to_ascii_lowercase().as_str(), value) {
                ("host", "$host" | "$http_host" | "$host:$server_port") => settings.set("keep-host", true),
                ("host", "$proxy_host") => {}
                ("host", _) => self.leave(header, "an upstream sees the client's Host (`keep-host`) or its own"),
                ("upgrade" | "connection" | "accept-encoding", _) => {}
                ("content-length" | "transfer-encoding", _) => {
                    self.leave(header, "a body is passed on with its length")
                }
                // Serpent writes these by itself. An address or scheme that nginx knows better is not lost in silence.
                (field, value) if values::has_variable(value) && is_written_anyway(field, value) => {}
                ("x-forwarded-proto" | "x-forwarded-host" | "x-forwarded-for" | "forwarded", value)
                    if values::has_variable(value) =>
                {
                    self.leave(
                        header,
                        "it says how this server was asked, or what a proxy of `trusted-proxies` says in this field",
                    );
                }
                ("x-forwarded-port" | "x-forwarded-server" | "x-scheme" | "x-forwarded-ssl", value)
                    if values::has_variable(value) =>
                {
                    self.leave(
                        header,
                        "the client is named in `X-Forwarded-For`, `X-Forwarded-Proto` and `X-Forwarded-Host`",
                    );
                }
                _ if is_copied(header, levels) => {}
                (_, "$remote_addr") => fields.client.push(name.to_owned()),
                // As the client has sent it.
                (field, value) if value.strip_prefix("$http_") == Some(field.replace('-', "_").as_str()) => {}
                (_, "") => fields.remove.push(name.to_owned()),
                (_, value) if values::has_variable(value) => {
                    self.leave(header, "the value of a field has no variables")
                }
                (_, value) => fields.set(name, value),
            }
        }
        // nginx names its server, and Serpent the host that the client asked for.
        settings.set("keep-host", false);
        fields.write("request-headers", settings);
    }

    /// `add_header` that is in force, as fields of the response. `has_words`: `expires` has taken `Cache-Control`.
    /// `is_error`: the response is an error, which has the fields with `always` only.
    pub(super) fn response_headers(&mut self, levels: &[&'a [Directive]], has_words: bool, is_error: bool) -> Fields {
        let mut fields = Fields::default();
        for header in in_force(levels, "add_header") {
            let (name, value) = (header.arg(0), header.arg(1));
            let is_elsewhere = has_words && name.eq_ignore_ascii_case("Cache-Control") || is_copied(header, levels);
            if is_elsewhere || is_error && header.arg(2) != "always" {
                continue;
            }
            match fields.sets(name) {
                // Without a value these two go, and others are not added.
                _ if value.is_empty() && ["etag", "last-modified"].contains(&name.to_ascii_lowercase().as_str()) => {
                    fields.remove.push(name.to_owned());
                }
                _ if value.is_empty() => {}
                true => self.leave(header, "a second field of this name: write it with `response-headers.add`"),
                false if values::has_variable(value) => self.leave(header, "the value of a field has no variables"),
                false => fields.set(name, value),
            }
        }
        fields
    }

    /// Gives routes that answer at once the fields that are in force around them.
    pub(super) fn headers_of_answers(&mut self, levels: &[&'a [Directive]], routes: &mut [(Pattern, Section)]) {
        for (_, route) in routes {
            let settings = &mut route.settings;
            let status = settings.text_of("respond").and_then(|status| status.parse::<u16>().ok());
            if status.is_none() && !settings.has("redirect") || settings.has_any("response-headers") {
                continue;
            }
            self.response_headers(levels, false, status.is_some_and(|status| status >= 400))
                .write("response-headers", settings);
        }
    }

    /// `add_header Cache-Control` without `always` is for responses without an error, and so is `expires`. Returns
    /// whether it is that now. `is_proxied`: an application may say it, too.
    pub(super) fn cache_control(
        &mut self,
        levels: &[&'a [Directive]],
        is_proxied: bool,
        settings: &mut Settings,
    ) -> bool {
        let is_it = |header: &&Directive| header.arg(0).eq_ignore_ascii_case("Cache-Control");
        let mut added = in_force(levels, "add_header").into_iter().filter(is_it);
        let (Some(header), None, None) = (added.next(), added.next(), one_in_force(levels, "expires")) else {
            return false;
        };
        let Some(value) = kept_for(header.arg(1)).filter(|_| header.arg(2) != "always") else { return false };
        settings.set("expires", value);
        if is_proxied {
            settings.set("expires-override", true);
        }
        true
    }
}

/// Whether Serpent gives a field of the forwarded request the value that a variable of nginx has.
fn is_written_anyway(field: &str, value: &str) -> bool {
    match field {
        "x-forwarded-for" => matches!(value, "$remote_addr" | "$proxy_add_x_forwarded_for"),
        "x-forwarded-proto" => value == "$scheme",
        "x-forwarded-host" => {
            matches!(value, "$host" | "$http_host" | "$server_name" | "$host:$server_port" | "$http_host:$server_port")
        }
        _ => false,
    }
}
