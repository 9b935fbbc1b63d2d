//! Subjects: gateways between the users and the site.

use std::{fmt, str::FromStr};

use super::target::Page;
use crate::LabError;

/// A gateway, or none.
#[derive(Clone, Debug, PartialEq)]
pub enum Subject {
    /// No gateway: the users access the site directly.
    Direct,
    /// Serpent without limits: the paper's PSTD gateway.
    Uncontrolled,
    /// Serpent with one window for all: the paper's SR-PSTD gateway.
    Single {
        /// Most requests at the site at once.
        slots: u32,
        /// The policy by which classes share the slots.
        share: String,
        /// The rule of the window: `fixed`, `knee` or `gradient`.
        method: String,
    },
    /// Serpent with a window for each page: the paper's MR-PSTD gateway.
    Multi {
        /// The windows, by the names of the pages.
        windows: Vec<(String, Window)>,
        /// The policy by which classes share the slots.
        share: String,
        /// The rule of the windows: `fixed` and others.
        method: String,
        /// Further keys of `[admission]`, such as `probe-every`.
        others: Vec<(String, String)>,
    },
    /// HAProxy with a backend for each page, whose server has this many connections.
    HaProxy {
        /// By the names of the pages.
        windows: Vec<(String, u32)>,
        /// Whether classes go in strict order; otherwise first come, first served.
        strict: bool,
    },
}

/// The window of a page, with its range.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    /// Most requests at the site at once, at the start.
    pub first: u32,
    /// Least and most, if a rule adjusts it.
    pub range: Option<(u32, u32)>,
    /// Bound of a probing request's time, as in a configuration file: `205ms`.
    pub bound: Option<String>,
}

/// The default subjects of the short form. The windows are the knees from `docs/guide/two-tier.md`.
pub(super) const QUICK: &[&str] = &[
    "uncontrolled",
    "direct",
    "single:slots=4",
    "multi:cpu=1,disk=2,db=8",
    "multi:cpu=1,disk=2,db=8,share=ratio",
    "multi:cpu=1,disk=2,db=8,share=ratio,windows=knee",
    "haproxy:cpu=1,disk=2,db=8",
];

/// The default subjects of the full form: all of the paper's except its adjustment of windows, whose bounds
/// must be measured at the site. There are several single windows, as its figure 11 has several bounds, and
/// one adjusted by a gradient, as Envoy's.
pub(super) const FULL: &[&str] = &[
    "uncontrolled",
    "direct",
    "single:slots=2",
    "single:slots=4",
    "single:slots=8",
    "single:slots=4,windows=gradient",
    "multi:cpu=1,disk=2,db=8",
    "multi:cpu=1,disk=2,db=8,share=pwad",
    "multi:cpu=1,disk=2,db=8,share=mdp",
    "multi:cpu=1,disk=2,db=8,share=ratio",
    "multi:cpu=1,disk=2,db=8,share=ratio,windows=knee",
    "haproxy:cpu=1,disk=2,db=8",
];

/// The paper presents its throughput under this policy.
const DEFAULT_SHARE: &str = "wtp";
const SHARES: &[&str] = &["wtp", "pwad", "mdp", "ratio", "weighted", "strict"];
const DEFAULT_METHOD: &str = "fixed";
const METHODS: &[&str] = &["fixed", "probe", "knee", "gradient"];
/// Rules for one window for all pages. A probing request would have to choose a page, so `probe` is not
/// possible.
const SINGLE_METHODS: &[&str] = &["fixed", "knee", "gradient"];
/// Keys of `[admission]` that are passed on unchanged.
const OTHERS: &[&str] = &["probe-every", "probe-after", "shrink-above", "grow-below", "delay-window"];
const MOST_SLOTS: u32 = 1_000_000;

impl Subject {
    /// A short name, not always unique.
    pub(super) fn label(&self) -> String {
        match self {
            Self::Direct => "direct".to_owned(),
            Self::Uncontrolled => "uncontrolled".to_owned(),
            Self::Single { slots, share, method } => {
                let other =
                    |word: &str, default: &str| if word == default { String::new() } else { format!(" {word}") };
                format!("single {slots}{}{}", other(share, DEFAULT_SHARE), other(method, DEFAULT_METHOD))
            }
            Self::Multi { share, method, .. } if method == DEFAULT_METHOD => format!("multi {share}"),
            Self::Multi { share, method, .. } => format!("multi {share} {method}"),
            Self::HaProxy { strict: false, .. } => "haproxy".to_owned(),
            Self::HaProxy { strict: true, .. } => "haproxy strict".to_owned(),
        }
    }

    /// Returns an error for windows of unknown pages, and for pages without a window.
    pub(super) fn suits(&self, pages: &[Page]) -> Result<(), LabError> {
        let named: Vec<&str> = match self {
            Self::Multi { windows, .. } => windows.iter().map(|(name, _)| name.as_str()).collect(),
            Self::HaProxy { windows, .. } => windows.iter().map(|(name, _)| name.as_str()).collect(),
            _ => return Ok(()),
        };
        if let Some(stranger) = named.iter().find(|name| pages.iter().all(|page| page.name != **name)) {
            return Err(LabError::Request(format!("subject `{self}`: there is no page `{stranger}`")));
        }
        match pages.iter().find(|page| !named.contains(&page.name.as_str())) {
            Some(page) => {
                Err(LabError::Request(format!("subject `{self}`: the page `{0}` has no window; add {0}=N", page.name)))
            }
            None => Ok(()),
        }
    }

    /// The first window of a page, and the bound of its probing requests: table 4 of the paper.
    pub(super) fn window_of(&self, page: &str) -> Option<(u32, Option<&str>)> {
        match self {
            Self::Single { slots, .. } => Some((*slots, None)),
            Self::Multi { windows, .. } => {
                let (_, window) = windows.iter().find(|(name, _)| name == page)?;
                Some((window.first, window.bound.as_deref()))
            }
            Self::HaProxy { windows, .. } => Some((windows.iter().find(|(name, _)| name == page)?.1, None)),
            Self::Direct | Self::Uncontrolled => None,
        }
    }

    /// Whether it adjusts its windows.
    pub(super) fn adjusts(&self) -> bool {
        matches!(self, Self::Single { method, .. } | Self::Multi { method, .. } if method != DEFAULT_METHOD)
    }

    /// The policy that keeps delays in ratios, if it has one.
    pub(super) fn share(&self) -> Option<&str> {
        match self {
            Self::Single { share, .. } | Self::Multi { share, .. } => Some(share),
            _ => None,
        }
    }
}

impl FromStr for Subject {
    type Err = LabError;

    fn from_str(text: &str) -> Result<Self, LabError> {
        let wrong = |what: &str| LabError::Request(format!("subject `{text}`: {what}"));
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        let pair = |part: &str| match part.split_once('=') {
            Some((key, value)) if !key.is_empty() && !value.is_empty() => Ok((key.to_owned(), value.to_owned())),
            _ => Err(wrong(&format!("`{part}` is no KEY=VALUE"))),
        };
        let mut keys: Vec<(String, String)> =
            rest.split(',').filter(|part| !part.is_empty()).map(pair).collect::<Result<_, _>>()?;
        if let Some((key, _)) =
            keys.iter().enumerate().find(|(n, (k, _))| keys[..*n].iter().any(|(o, _)| o == k)).map(|(_, k)| k)
        {
            return Err(wrong(&format!("`{key}` is there twice")));
        }
        let mut take = |key: &str| {
            let place = keys.iter().position(|(known, _)| known == key)?;
            Some(keys.remove(place).1)
        };
        let one_of = |value: Option<String>, all: &[&str], default: &str| match value {
            None => Ok(default.to_owned()),
            Some(value) if all.contains(&value.as_str()) => Ok(value),
            Some(value) => Err(wrong(&format!("`{value}` is none of {}", all.join(", ")))),
        };
        let count = |value: &str| {
            let count = value.parse().ok().filter(|count| (1..=MOST_SLOTS).contains(count));
            count.ok_or_else(|| wrong(&format!("`{value}` is no number from 1 to {MOST_SLOTS}")))
        };
        let subject = match kind {
            "direct" => Self::Direct,
            "uncontrolled" => Self::Uncontrolled,
            "single" => Self::Single {
                slots: count(&take("slots").ok_or_else(|| wrong("write single:slots=N"))?)?,
                share: one_of(take("share"), SHARES, DEFAULT_SHARE)?,
                method: one_of(take("windows"), SINGLE_METHODS, DEFAULT_METHOD)?,
            },
            "multi" => {
                let share = one_of(take("share"), SHARES, DEFAULT_SHARE)?;
                let method = one_of(take("windows"), METHODS, DEFAULT_METHOD)?;
                let others: Vec<_> = OTHERS.iter().filter_map(|key| Some(((*key).to_owned(), take(key)?))).collect();
                if others
                    .iter()
                    .any(|(_, value)| !value.bytes().all(|b| b.is_ascii_alphanumeric() || b".-".contains(&b)))
                {
                    return Err(wrong("times are written as in 120s, numbers as in -9"));
                }
                let windows = std::mem::take(&mut keys);
                let windows: Vec<_> = windows
                    .into_iter()
                    .map(|(page, value)| Ok((page, Window::read(&value).ok_or_else(|| wrong(WINDOW))?)))
                    .collect::<Result<_, LabError>>()?;
                if method == "probe" && windows.iter().any(|(_, window)| window.bound.is_none()) {
                    return Err(wrong(
                        "windows=probe needs a bound for each page, as in cpu=5@205ms; `serpent probe` measures windows and bounds",
                    ));
                }
                if windows.is_empty() {
                    return Err(wrong("write multi:PAGE=N,... with a window for each page"));
                }
                Self::Multi { windows, share, method, others }
            }
            "haproxy" => {
                let share = one_of(take("share"), &["strict"], "")?;
                let windows = std::mem::take(&mut keys);
                let windows: Vec<_> = windows
                    .into_iter()
                    .map(|(page, value)| Ok((page, count(&value)?)))
                    .collect::<Result<_, LabError>>()?;
                if windows.is_empty() {
                    return Err(wrong("write haproxy:PAGE=N,... with a number of connections for each page"));
                }
                Self::HaProxy { windows, strict: share == "strict" }
            }
            _ => {
                return Err(wrong(
                    "it is none: use uncontrolled, direct, single:slots=N[,share=SHARE][,windows=METHOD], \
                     multi:PAGE=N,...[,share=SHARE][,windows=METHOD], or haproxy:PAGE=N,...[,share=strict]",
                ));
            }
        };
        match keys.first() {
            Some((key, _)) => Err(wrong(&format!("`{key}` means nothing here"))),
            None => Ok(subject),
        }
    }
}

const WINDOW: &str = "a window is N, N/LEAST-MOST, N@BOUND or N/LEAST-MOST@BOUND, as in cpu=5/1-64@205ms";

impl Window {
    fn read(text: &str) -> Option<Self> {
        let count = |text: &str| text.parse().ok().filter(|count| (1..=MOST_SLOTS).contains(count));
        let (text, bound) = match text.split_once('@') {
            Some((text, bound)) => (text, Some(bound.to_owned())),
            None => (text, None),
        };
        let (first, range) = match text.split_once('/') {
            Some((first, range)) => {
                let (least, most) = range.split_once('-')?;
                (first, Some((count(least)?, count(most)?)))
            }
            None => (text, None),
        };
        let first = count(first)?;
        let is_time = |bound: &String| {
            bound.starts_with(|c: char| c.is_ascii_digit())
                && bound.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.')
        };
        let sound = range.is_none_or(|(least, most)| least <= first && first <= most);
        (sound && bound.as_ref().is_none_or(is_time)).then_some(Self { first, range, bound })
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.first)?;
        if let Some((least, most)) = self.range {
            write!(f, "/{least}-{most}")?;
        }
        self.bound.as_ref().map_or(Ok(()), |bound| write!(f, "@{bound}"))
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Direct => f.write_str("direct"),
            Self::Uncontrolled => f.write_str("uncontrolled"),
            Self::Single { slots, share, method } if method == DEFAULT_METHOD => {
                write!(f, "single:slots={slots},share={share}")
            }
            Self::Single { slots, share, method } => {
                write!(f, "single:slots={slots},share={share},windows={method}")
            }
            Self::Multi { windows, share, method, others } => {
                let windows: Vec<String> = windows.iter().map(|(page, window)| format!("{page}={window}")).collect();
                write!(f, "multi:{},share={share},windows={method}", windows.join(","))?;
                others.iter().try_for_each(|(key, value)| write!(f, ",{key}={value}"))
            }
            Self::HaProxy { windows, strict } => {
                let windows: Vec<String> = windows.iter().map(|(page, most)| format!("{page}={most}")).collect();
                write!(f, "haproxy:{}{}", windows.join(","), if *strict { ",share=strict" } else { "" })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_can_be_typed_again() {
        for (text, shown) in [
            ("direct", "direct"),
            ("uncontrolled", "uncontrolled"),
            ("single:slots=12", "single:slots=12,share=wtp"),
            ("single:share=ratio,slots=12", "single:slots=12,share=ratio"),
            ("single:slots=4,windows=gradient", "single:slots=4,share=wtp,windows=gradient"),
            ("multi:cpu=2,db=8,share=mdp", "multi:cpu=2,db=8,share=mdp,windows=fixed"),
            (
                "multi:windows=probe,cpu=5/1-64@205ms,db=4@0.38s,probe-after=10s",
                "multi:cpu=5/1-64@205ms,db=4@0.38s,share=wtp,windows=probe,probe-after=10s",
            ),
            ("haproxy:cpu=2,db=8", "haproxy:cpu=2,db=8"),
            ("haproxy:cpu=2,share=strict", "haproxy:cpu=2,share=strict"),
        ] {
            let subject: Subject = text.parse().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(subject.to_string(), shown);
            assert_eq!(shown.parse::<Subject>().unwrap(), subject);
        }
        for text in QUICK.iter().chain(FULL) {
            assert!(text.parse::<Subject>().is_ok(), "{text}");
        }
    }

    #[test]
    fn what_is_no_subject_is_refused_with_the_reason() {
        for (text, reason) in [
            ("", "none"),
            ("squid", "none"),
            ("single", "slots=N"),
            ("single:slots=0", "from 1"),
            ("single:slots=2,share=fastest", "wtp"),
            ("single:slots=2,windows=probe", "knee"),
            ("direct:slots=2", "means nothing"),
            ("multi", "a window for each page"),
            ("multi:share=wtp", "a window for each page"),
            ("multi:cpu=2,cpu=3", "twice"),
            ("multi:cpu", "KEY=VALUE"),
            ("multi:cpu=2,windows=guess", "gradient"),
            ("multi:cpu=2@1s,db=8,windows=probe", "a bound for each"),
            ("multi:cpu=9/1-8", "N/LEAST-MOST"),
            ("multi:cpu=2@\"", "N@BOUND"),
            ("multi:cpu=2,probe-every=\"", "120s"),
            ("haproxy:cpu=2,share=wtp", "strict"),
            ("haproxy:cpu=two", "from 1"),
        ] {
            let error = text.parse::<Subject>().unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
