//! Access to a site or a route: `allow`, `deny` and `require`.

use std::ops::Range;

use server::config::{Access, AddressRules, Require, Requirement};
use toml::Spanned;

use super::{resolver::Resolver, rules::Configured, targets::Targets};
use crate::{
    config::{
        problems::Problem,
        raw::{RawForwardAuth, RawRequire},
        written::{OrOff, Written},
    },
    values,
};

/// `allow`, `deny`, `require` and `forward-auth` of a site or a route.
pub(super) struct WrittenAccess<'a> {
    pub allow: &'a Option<Vec<Spanned<Written>>>,
    pub deny: &'a Option<Vec<Spanned<Written>>>,
    pub require: &'a Option<Spanned<OrOff<RawRequire>>>,
    pub forward_auth: &'a Option<Spanned<OrOff<RawForwardAuth>>>,
}

impl Resolver<'_> {
    /// The access of a route or site. The rest is taken from `outer`, the access of the route's site.
    pub(super) fn access(
        &mut self,
        written: &WrittenAccess<'_>,
        outer: Option<&Access>,
        targets: &Targets<'_>,
    ) -> Access {
        let mut access = outer.cloned().unwrap_or_default();
        if written.allow.is_some() || written.deny.is_some() {
            access.addresses = self.address_rules(written);
        }
        if let Some(require) = written.require {
            access.require = self.require(require, targets.configured);
        }
        if let Some(written) = written.forward_auth {
            access.forward_auth = self.forward_auth(written, targets.upstreams);
        }
        access
    }

    fn address_rules(&mut self, written: &WrittenAccess<'_>) -> AddressRules {
        let list = |list: &'_ Option<Vec<Spanned<Written>>>| list.clone().unwrap_or_default();
        let (allow, deny) = (list(written.allow), list(written.deny));
        for denied in &deny {
            let same = |allowed: &&Spanned<Written>| allowed.get_ref() == denied.get_ref();
            if let Some(allowed) = allow.iter().find(same) {
                self.problems.push(
                    Problem::new(format!("`{}` is both allowed and denied", denied.get_ref().0), Some(denied.span()))
                        .also(Some(allowed.span()), "allowed here")
                        .help("leave one of them out; of several networks with an address, the smallest decides"),
                );
            }
        }
        AddressRules { allow: self.read_each(&allow, values::network), deny: self.read_each(&deny, values::network) }
    }

    /// `None`: nothing is required.
    fn require(&mut self, written: &Spanned<OrOff<RawRequire>>, configured: &Configured) -> Option<Require> {
        let help = "write what a request must show, as in `require = { user = true }`, or `off`";
        let raw = self.table_or_off(written, "require", help)?;
        self.credentials_exist(&raw.user, &raw.key, &raw.certificate, configured);
        let any = self.setting(None, &raw.satisfy, satisfy, false);
        let requirement = Requirement {
            clients: self.list(&raw.client, values::network),
            certificates: self.list_or_any(&raw.certificate),
            keys: self.list_or_any(&raw.key),
            users: self.list_or_any(&raw.user),
            any,
        };
        self.contradictions(raw, written.span(), any, configured);
        let read = |text: &str| Require::new(requirement.clone(), text);
        match &raw.realm {
            Some(_) => self.optional(&raw.realm, read),
            None => read(Require::DEFAULT_REALM).ok(),
        }
    }

    fn contradictions(&mut self, raw: &RawRequire, owner: Range<usize>, any: bool, configured: &Configured) {
        if [&raw.user, &raw.key, &raw.certificate, &raw.client].into_iter().all(Option::is_none) && self.shape_is_sound
        {
            self.problems.push(
                Problem::new("this table requires nothing", Some(owner.clone()))
                    .help("add `user`, `key`, `certificate` or `client`, or write `require = \"off\"`"),
            );
        }
        let asks = raw.user.is_some() || (raw.key.is_some() && configured.bearer_keys);
        if let Some(realm) = raw.realm.as_ref().filter(|_| !asks) {
            self.problems.push(
                Problem::new("`realm` has no effect: clients are not asked for a password here", Some(realm.span()))
                    .help("leave it out, or add `user = true`"),
            );
        }
        let (Some(user), Some(key)) = (&raw.user, &raw.key) else { return };
        if !any && configured.bearer_keys {
            self.problems.push(
                Problem::new("no request can show both: password and key come in the same field", Some(key.span()))
                    .also(Some(user.span()), "needs `Authorization: Basic`")
                    .help("add `satisfy = \"any\"`, or give `[keys]` another `header`"),
            );
        }
    }
}

fn satisfy(text: &str) -> Result<bool, String> {
    match text {
        "all" => Ok(false),
        "any" => Ok(true),
        _ => Err(format!("`{text}` is neither `all` nor `any`")),
    }
}
