//! `set_real_ip_from`: the address of a client behind a proxy.

use super::state::Translation;
use crate::{
    draft::{Settings, list},
    syntax::Directive,
};

/// The directives that are translated here.
pub(super) const NAMES: [&str; 3] = ["set_real_ip_from", "real_ip_header", "real_ip_recursive"];

impl<'a> Translation<'a> {
    /// The proxies that are believed, for all servers together.
    pub(super) fn believed_proxies(&mut self, http: &'a [Directive], top: &mut Settings) {
        let blocks: Vec<&'a Directive> =
            http.iter().chain(http.iter().filter(|one| one.name == "server").flat_map(Directive::inner)).collect();
        let inner = blocks.iter().filter(|one| one.name == "location").flat_map(|one| one.inner());
        let blocks: Vec<&'a Directive> = blocks.iter().copied().chain(inner).collect();
        let of = |name: &'static str| blocks.iter().copied().filter(move |one| one.name == name);
        let mut proxies: Vec<&str> = Vec::new();
        for directive in of("set_real_ip_from") {
            let net = directive.arg(0);
            match net.split('/').next().unwrap_or_default().parse::<std::net::IpAddr>() {
                Ok(_) if proxies.contains(&net) => {}
                Ok(_) => proxies.push(net),
                Err(_) => self.leave(directive, "a proxy is named by its address or network (`trusted-proxies`)"),
            }
        }
        let Some(first) = of("set_real_ip_from").next() else {
            return of("real_ip_header").for_each(|one| self.leave(one, "no `set_real_ip_from` names a proxy"));
        };
        let fields: Vec<&Directive> = of("real_ip_header").collect();
        let is = |name: &str| !fields.is_empty() && fields.iter().all(|field| field.arg(0).eq_ignore_ascii_case(name));
        let is_by_header_of_connection = is("proxy_protocol");
        if proxies.is_empty() || !is("x-forwarded-for") && !is_by_header_of_connection {
            let field = fields.iter().copied().find(|it| !it.arg(0).eq_ignore_ascii_case("x-forwarded-for"));
            let field = field.unwrap_or(first);
            self.lost_address = Some(field);
            return self.leave(field, "proxies name their client in `X-Forwarded-For` or `Forwarded` (`forwarded-by`)");
        }
        self.has_proxy_protocol = is_by_header_of_connection;
        top.set(if is_by_header_of_connection { "proxy-protocol" } else { "trusted-proxies" }, list(proxies));
    }
}
