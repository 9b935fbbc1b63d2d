//! Closed sets of values: orders, shares, formats.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use scheduler::{Order, admission::Late, control, share::Policy};
use server::config::{Enforce, ForwardedField, LogFormat, MessageFormat, SymlinkPolicy, TraceParents};

use crate::spelling::like;

/// A closed set of values, each with a name and a line of help.
pub trait Named: Copy + Send + Sync + 'static {
    /// All values, with their names and meanings.
    const NAMED: &'static [(Self, &'static str, &'static str)];
    /// Names that others have for these values, beside the name here.
    const ALSO: &'static [(&'static str, &'static str)] = &[];

    /// The value of that name.
    fn named(name: &str) -> Result<Self, String> {
        Self::NAMED.iter().find(|entry| entry.1 == name).map(|entry| entry.0).ok_or_else(|| {
            let names: Vec<_> = Self::NAMED.iter().map(|entry| format!("`{}`", entry.1)).collect();
            let also = Self::ALSO.iter().find(|(also, _)| *also == name.to_lowercase()).map(|(_, name)| *name);
            let like = also.or_else(|| like(name, Self::NAMED.iter().map(|entry| entry.1)));
            let meant = like.map(|meant| format!("; did you mean `{meant}`?")).unwrap_or_default();
            format!("`{name}` is not one of {}{meant}", names.join(", "))
        })
    }
}

/// A parser for a closed set of values. It lists them with their meanings in the help and in completions.
pub fn named<T: Named>() -> impl TypedValueParser<Value = T> {
    let values = T::NAMED.iter().map(|(_, name, help)| PossibleValue::new(name).help(help));
    PossibleValuesParser::new(values).try_map(|name| T::named(&name))
}

impl Named for Order {
    const NAMED: &'static [(Self, &'static str, &'static str)] = &[
        (Self::Fair, Self::Fair.name(), "Everybody in turn, as other servers do"),
        (Self::Fifo, Self::Fifo.name(), "First come, first served"),
        (Self::Srpt, Self::Srpt.name(), "Fewest bytes left first: lowest mean response time"),
        (Self::Srrt, Self::Srrt.name(), "Shortest remaining response time: round trips and windows counted in"),
        (Self::Stert, Self::Stert.name(), "Shortest total estimated response time"),
        (Self::Swift, Self::Swift.name(), "Size, and distance of the client in round trips"),
        (Self::Fcf, Self::Fcf.name(), "Fastest connection first: size over throughput"),
        (Self::Las, Self::Las.name(), "Least sent so far first: needs no sizes"),
        (Self::Fsp, Self::Fsp.name(), "Whom fair sharing would finish first: nobody later than under fair sharing"),
        (
            Self::QuickFix,
            Self::QuickFix.name(),
            "Two bands by size: small responses before large ones, in turn within a band",
        ),
    ];
    const ALSO: &'static [(&'static str, &'static str)] = &[
        ("sjf", "srpt"),
        ("srtf", "srpt"),
        ("shortest", "srpt"),
        ("ps", "fair"),
        ("round-robin", "fair"),
        ("rr", "fair"),
        ("fcfs", "fifo"),
        ("off", "fair"),
    ];
}

impl Named for Enforce {
    const NAMED: &'static [(Self, &'static str, &'static str)] = &[
        (Self::Server, "server", "By pacing in this process: exact order, no privileges"),
        (Self::Kernel, "kernel", "By the kernel, on a device that `serpent attach` has attached"),
        (Self::Off, "off", "By nobody"),
    ];
}

#[cfg(target_os = "linux")]
impl Named for attach::Others {
    const NAMED: &'static [(Self, &'static str, &'static str)] =
        &[(Self::First, "first", "Before all responses"), (Self::Last, "last", "Behind all responses")];
}

impl Named for SymlinkPolicy {
    const NAMED: &'static [(Self, &'static str, &'static str)] = &[
        (Self::Never, "never", "A path with a symbolic link in it answers 404"),
        (Self::WithinRoot, "within-root", "Links are followed as long as they end within the root"),
        (Self::Follow, "follow", "Links are followed wherever they lead"),
    ];
}

impl Named for LogFormat {
    const NAMED: &'static [(Self, &'static str, &'static str)] = &[
        (Self::Combined, "combined", "NCSA combined, followed by class, response time and slowdown"),
        (Self::Json, "json", "One JSON object a line"),
    ];
    const ALSO: &'static [(&'static str, &'static str)] =
        &[("common", "combined"), ("ncsa", "combined"), ("clf", "combined"), ("main", "combined")];
}

impl Named for MessageFormat {
    const NAMED: &'static [(Self, &'static str, &'static str)] =
        &[(Self::Text, "text", "A line for people"), (Self::Json, "json", "One JSON object a line")];
}

impl Named for TraceParents {
    const NAMED: &'static [(Self, &'static str, &'static str)] = &[
        (Self::Trusted, "trusted", "That of trusted proxies"),
        (Self::All, "all", "That of every client"),
        (Self::None, "none", "Nobody's: each request begins a trace"),
    ];
}

impl Named for Policy {
    const NAMED: &'static [(Self, &'static str, &'static str)] = &[
        (Self::Strict, Self::Strict.name(), "The first class that has somebody waiting"),
        (Self::Weighted, Self::Weighted.name(), "In proportion to the weights, evenly spread"),
        (Self::Shared, Self::Shared.name(), "A share of the slots each; what is not used is lent, but for a reserve"),
        (Self::Fixed, Self::Fixed.name(), "A share of the slots each, never lent"),
        (Self::Edf, Self::Edf.name(), "The earliest deadline first"),
        (Self::Wtp, Self::Wtp.name(), "Delays in ratios, by how long the next request of each class has waited"),
        (Self::Pwad, Self::Pwad.name(), "Delays in ratios, by the mean of those that left"),
        (Self::Mdp, Self::Mdp.name(), "Delays in ratios, by the mean of those that left and those that wait"),
        (Self::Ratio, Self::Ratio.name(), "Delays in ratios, kept both now and in the mean"),
    ];
}

impl Named for control::Method {
    const NAMED: &'static [(Self, &'static str, &'static str)] = &[
        (Self::Fixed, Self::Fixed.name(), "They stay as they are"),
        (Self::Probe, Self::Probe.name(), "By how long probing requests take"),
        (Self::Knee, Self::Knee.name(), "By trying the windows beside, and keeping what serves more"),
        (Self::Gradient, Self::Gradient.name(), "By the least service time over that of late"),
    ];
}

impl Named for ForwardedField {
    const NAMED: &'static [(Self, &'static str, &'static str)] = &[
        (Self::XForwardedFor, "x-forwarded-for", "`X-Forwarded-For`, which nearly all proxies write"),
        (Self::Forwarded, "forwarded", "`Forwarded` (RFC 7239)"),
    ];
}

impl Named for Late {
    const NAMED: &'static [(Self, &'static str, &'static str)] = &[
        (Self::Serve, "serve", "It goes behind all that can still make theirs"),
        (Self::Refuse, "refuse", "It is refused as soon as that is certain"),
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_is_named_as_the_scheduler_names_it() {
        let names: Vec<_> = Order::NAMED.iter().map(|entry| entry.0).collect();
        assert_eq!(names, Order::ALL);
        assert_eq!(Order::named("quick-fix"), Ok(Order::QuickFix));
        assert!(Order::named("quickest").unwrap_err().contains("`srpt`"));
    }
}
