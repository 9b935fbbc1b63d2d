//! The uplink: its rate, its order, and how classes share it.

use std::{num::NonZeroU32, ops::Range};

use scheduler::{
    Order,
    share::Policy,
    uplink::{ClassShare, ShareError},
};
use server::config::{AdmissionConfig, ClassConfig, Cutoffs, Enforce, KeepRate, UplinkConfig, UplinkRate};
use toml::Spanned;

use super::{cluster::is_name, named_files::path_in, resolver::Resolver};
use crate::{
    config::{
        overrides::Overrides,
        problems::Problem,
        raw::Raw,
        written::{RawCutoffs, Written},
    },
    values::{self, Named as _},
};

impl Resolver<'_> {
    pub(super) fn uplink(&mut self, raw: &Raw, flags: &Overrides) -> UplinkConfig {
        let (section, folder) = (&raw.uplink, self.folder);
        let cutoffs = section.cutoffs.as_ref().map_or(Cutoffs::Learned, |written| self.cutoffs(written, 6));
        let rate = self.setting(flags.uplink, &section.rate, values::uplink_rate, UplinkRate::Auto);
        let line = section.line.as_ref().and_then(|line| self.line(raw, line, rate));
        let utilisation = matches!(rate, UplinkRate::Given(_)).then_some(scheduler::correction::UTILISATION);
        let uplink = UplinkConfig {
            rate,
            order: self.setting(flags.order, &section.order, Order::named, Order::Srpt),
            enforce: self.setting(flags.enforce, &section.enforce, Enforce::named, Enforce::Server),
            line,
            cutoffs,
            guard_stretch: self.setting(flags.guard, &section.guard, values::stretch_or_off, None),
            utilisation: self.setting(None, &section.utilisation, values::share_or_off, utilisation),
            segment_overhead_bytes: {
                let read = |text: &str| match values::size(text) {
                    Ok(bytes @ 0..=1024) => Ok(bytes as u32),
                    Ok(_) => Err("headers of a segment take at most 1024 bytes".to_owned()),
                    Err(message) => Err(message),
                };
                self.setting(None, &section.segment_overhead, read, 66)
            },
            device: {
                let read = |text: &str| Ok((text != "auto").then(|| text.to_owned()));
                self.setting(flags.device.clone().map(Some), &section.device, read, None)
            },
            keep: {
                let read = |text: &str| match text {
                    "auto" => Ok(KeepRate::StateDirectory),
                    "off" => Ok(KeepRate::Off),
                    "" => Err("give the path of a file, `auto` or `off`".to_owned()),
                    path => Ok(KeepRate::File(path_in(folder, path))),
                };
                self.setting(None, &section.keep, read, KeepRate::StateDirectory)
            },
        };
        if uplink.enforce == Enforce::Kernel && matches!(uplink.rate, UplinkRate::Off) {
            let span = if flags.enforce.is_none() { section.enforce.as_ref().map(Spanned::span) } else { None };
            self.problems.push(
                Problem::new("`enforce = \"kernel\"` and `rate = \"off\"` contradict each other", span)
                    .also(section.rate.as_ref().filter(|_| flags.uplink.is_none()).map(Spanned::span), "off here")
                    .help("leave the rate out: in kernel mode it is the rate that `serpent attach` was given"),
            );
        }
        if let (Some(line), true) = (&section.line, uplink.enforce != Enforce::Server) {
            let span = if flags.enforce.is_none() { section.enforce.as_ref().map(Spanned::span) } else { None };
            self.problems.push(
                Problem::new("only the server itself sends at a part of a line", Some(line.span()))
                    .also(span, "kept by another part here")
                    .help("leave `enforce` out, or `line`"),
            );
        }
        if let Some(device) = section.device.as_ref().filter(|_| uplink.device.is_some() && self.is_as_written())
            && uplink.enforce != Enforce::Kernel
        {
            self.problems.push(
                Problem::warning("`device` has no effect without `enforce = \"kernel\"`", Some(device.span())).help(
                    "add `enforce = \"kernel\"`, for which `serpent attach` prepares the device, or leave it out",
                ),
            );
        }
        let unlimited = matches!(uplink.rate, UplinkRate::Off) || uplink.enforce == Enforce::Off;
        if let Some(share) = section.share.as_ref().filter(|share| unlimited && share.get_ref().0 != "off") {
            self.problems.push(
                Problem::warning("nobody waits for the uplink, so there is nothing to share", Some(share.span()))
                    .help("give the uplink a `rate`, or leave `share` out"),
            );
        }
        if let (Enforce::Kernel, Some(share)) = (uplink.enforce, &section.share)
            && !["off", "strict"].contains(&share.get_ref().0.as_str())
        {
            self.problems.push(
                Problem::new(
                    "the kernel's bands keep a strict order of classes, and no other share",
                    Some(share.span()),
                )
                .also(section.enforce.as_ref().filter(|_| flags.enforce.is_none()).map(Spanned::span), "kernel here")
                .help("share the uplink by `strict`, or with `enforce = \"server\"`, or leave `share` out"),
            );
        }
        if uplink.enforce == Enforce::Kernel && !matches!(uplink.order, Order::Srpt | Order::Las) {
            let span = if flags.order.is_none() { section.order.as_ref().map(Spanned::span) } else { None };
            self.problems.push(
                Problem::new(format!("the order `{}` cannot be put into the kernel's bands", uplink.order), span)
                    .also(
                        section.enforce.as_ref().filter(|_| flags.enforce.is_none()).map(Spanned::span),
                        "kernel here",
                    )
                    .help("use `srpt` or `las` with `enforce = \"kernel\"`, or this order with `enforce = \"server\"`"),
            );
        }
        if let (Enforce::Kernel, Cutoffs::Given(_), Some(written)) = (uplink.enforce, &uplink.cutoffs, &section.cutoffs)
        {
            self.problems.push(
                Problem::new("in kernel mode `serpent attach` has the cutoffs", Some(written.span()))
                    .also(
                        section.enforce.as_ref().filter(|_| flags.enforce.is_none()).map(Spanned::span),
                        "kernel here",
                    )
                    .help("give them to `serpent attach` as `--cutoffs`, and leave them out here"),
            );
        }
        uplink
    }

    /// The name of the line that several gateways send through.
    fn line(&mut self, raw: &Raw, line: &Spanned<Written>, rate: UplinkRate) -> Option<String> {
        let section = &raw.uplink;
        let name = line.get_ref().0.as_str();
        if !is_name(name) {
            self.problems.push(
                Problem::new("the name of a line has 1 to 64 letters, digits, `-`, `_` and `.`", Some(line.span()))
                    .help("as in `line = \"rack-4\"`"),
            );
            return None;
        }
        if raw.cluster.is_none() {
            self.problems.push(
                Problem::new(
                    "gateways divide a line through the store of `[cluster]`, and there is none",
                    Some(line.span()),
                )
                .help("add `[cluster]` with `store` and `site`, or leave `line` out"),
            );
        }
        if !matches!(rate, UplinkRate::Given(_)) {
            self.problems.push(
                Problem::new("the rate of a line that several gateways share has to be given", Some(line.span()))
                    .also(section.rate.as_ref().map(Spanned::span), "not a rate")
                    .help("write the rate of the whole line, as in `rate = \"1gbit\"`: each gateway gets a part of it"),
            );
        }
        let reserves = raw.class.iter().find_map(|class| class.get_ref().reserved.as_ref());
        let share = section.share.as_ref();
        let policy = share.map_or("off", |share| share.get_ref().0.as_str());
        if policy == "fixed" || policy == "shared" && reserves.is_some() {
            self.problems.push(
                Problem::new(
                    "no part of a line that several gateways share can be kept for a class",
                    share.map(Spanned::span),
                )
                .also(reserves.filter(|_| policy == "shared").map(Spanned::span), "kept here")
                .also(Some(line.span()), "shared by gateways here")
                .help(match policy {
                    "fixed" => "a gateway could only keep a part of its own part: share the uplink by `weighted` or `strict`",
                    _ => "a gateway could only keep a part of its own part: leave `reserved` out, or share the uplink by `weighted`",
                }),
            );
        }
        Some(name.to_owned())
    }

    /// Cutoffs between bands or ranks of responses, of which there are one more.
    pub(super) fn cutoffs(&mut self, written: &Spanned<RawCutoffs>, most: usize) -> Cutoffs {
        match written.get_ref() {
            RawCutoffs::Word(word) if word == "learned" => Cutoffs::Learned,
            RawCutoffs::Word(word) => {
                self.problems
                    .push(Problem::new(format!("`{word}` is not a way to choose cutoffs"), Some(written.span())).help(
                        format!("write `learned`, or 1 to {most} sizes as in [\"2KiB\", \"20KiB\", \"200KiB\"]"),
                    ));
                Cutoffs::Learned
            }
            RawCutoffs::Sizes(list) => {
                if !(1..=most).contains(&list.len()) {
                    self.problems.push(
                        Problem::new(format!("{} cutoffs are given", list.len()), Some(written.span()))
                            .help(format!("give 1 to {most}: responses have at most {} places to wait", most + 1)),
                    );
                }
                let mut last: Option<(u64, Range<usize>)> = None;
                let sizes = self.read_each(list, values::size);
                // The order is known only if all of them could be read.
                if sizes.len() == list.len() {
                    for (bytes, place) in sizes.iter().zip(list) {
                        if let Some((before, span)) = last.replace((*bytes, place.span()))
                            && *bytes <= before
                        {
                            self.problems.push(
                                Problem::new("cutoffs must increase", Some(place.span()))
                                    .also(Some(span), "not above this one")
                                    .help("sort them, smallest first, and leave out those given twice"),
                            );
                        }
                    }
                }
                Cutoffs::Given(sizes)
            }
        }
    }

    /// How classes share the uplink; `None` if they do not.
    pub(super) fn uplink_share(&mut self, raw: &Raw) -> Option<Policy> {
        let policy_or_off = |text: &str| match text {
            "off" => Ok(None),
            _ => policy_of_links(text).map(Some),
        };
        self.setting(None, &raw.uplink.share, policy_or_off, None)
    }

    /// Checks the reserves of classes on the uplink. The reserved part is the same as of the slots.
    pub(super) fn uplink_reserves(
        &mut self,
        raw: &Raw,
        classes: &[ClassConfig],
        admission: &AdmissionConfig,
        policy: Option<Policy>,
    ) {
        let Some(policy) = policy.filter(|_| self.is_as_written()) else { return };
        let slots = admission.total.or_else(|| admission.resources.iter().filter_map(|it| it.window).max());
        let classes = classes.iter().map(|class| class.given).collect();
        let share = ClassShare { policy, classes, slots: slots.map(NonZeroU32::get) };
        if share.check() == Err(ShareError::Reserves) {
            let reserved = raw.class.iter().filter_map(|class| class.get_ref().reserved.as_ref()).next_back();
            let of = match slots {
                Some(slots) => format!("of the {slots} slots there are"),
                None => "of as many slots as the weights add up to, there being no other number".to_owned(),
            };
            self.problems.push(
                Problem::new(
                    "the reserves leave nothing of the uplink for a class without one",
                    reserved.map(Spanned::span),
                )
                .also(raw.uplink.share.as_ref().map(Spanned::span), "shared here")
                .help(format!("reserve fewer slots {of}, or share the uplink by `weighted`")),
            );
        }
    }
}

/// A share that the uplink can have.
fn policy_of_links(text: &str) -> Result<Policy, String> {
    let policy = Policy::named(text).ok().filter(|policy| Policy::OF_LINKS.contains(policy));
    policy.ok_or_else(|| {
        let names: Vec<_> = Policy::OF_LINKS.iter().map(|policy| format!("`{policy}`")).collect();
        format!("`{text}` is not one of {}; or `off`", names.join(", "))
    })
}
