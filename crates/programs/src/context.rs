//! The parameters of a program, beside the request.

use std::{net::SocketAddr, path::Path};

use heads::{ForwardedField, HeaderRules, remove_client_fields, remove_connection_fields};
use http::{HeaderMap, uri::PathAndQuery};

use crate::config::Priority;

/// The parameters of a program, beside the request.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The decoded part of the path that matched the route; the program's name and its path follow. Empty
    /// where a pattern without a prefix matched.
    pub prefix: &'a str,
    /// The directory of the site's files, absolute, if it has any: `DOCUMENT_ROOT` and the beginning of
    /// `PATH_TRANSLATED`.
    pub root: Option<&'a Path>,
    /// The client's address, as told by trusted proxies.
    pub client: SocketAddr,
    /// This server's end of the connection.
    pub local: SocketAddr,
    /// The host of the request, without port.
    pub host: &'a str,
    /// Whether the connection is TLS.
    pub tls: bool,
    /// The user's name, if a correct password was given.
    pub user: Option<&'a str>,
    /// The field whose word about the client is passed on, because it came from a proxy that is trusted.
    pub believed: Option<ForwardedField>,
    /// Changes to the request's header. They are made here, after the client's hop-by-hop fields were taken out.
    /// Before that, a client could have the fields of a rule taken out, by naming them in `Connection`.
    pub rules: Option<&'a HeaderRules>,
    /// The class's name, as `SERPENT_CLASS`.
    pub class: &'a str,
    /// The class's processor priority.
    pub priority: Priority,
    /// The target that the client asked for, where another route has sent the request here: `REQUEST_URI`.
    pub asked: Option<&'a PathAndQuery>,
}

impl Context<'_> {
    /// Takes the fields out that are about the client's connection, and makes the changes of the rules.
    pub(crate) fn prepare(&self, headers: &mut HeaderMap) {
        remove_connection_fields(headers);
        remove_client_fields(headers, self.believed);
        if let Some(rules) = self.rules {
            rules.apply_to_request(headers, self.client.ip());
        }
    }
}
