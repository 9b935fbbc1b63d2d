//! Determines how a subject of an experiment uses the uplink.

use std::{path::Path, process::Command};

use instrument::{LabError, subject::Subject};
use scheduler::{
    Order, Pacing, Rate,
    bands::{BandLearner, BandPlan, RESPONSE_BANDS},
    correction::UTILISATION,
    uplink::{Settings, read_stretch},
};
use serde::Deserialize;

/// A subject as the uplink sees it.
#[derive(Clone, Debug, PartialEq)]
pub enum Serving {
    /// An equal share for each response, as TCP gives it.
    Fair,
    /// Serpent's pacer follows the order.
    Paced(UplinkConfig),
    /// Priority bands of the kernel follow the order.
    Bands(UplinkConfig),
}

/// The way a server orders its responses.
#[derive(Clone, Debug, PartialEq)]
pub struct UplinkConfig {
    /// The order of responses.
    pub order: Order,
    /// The rate that the server is told; `None` for the link's.
    pub rate: Option<Rate>,
    /// The share of the rate that the pacer uses.
    pub utilisation: f64,
    /// Bytes a segment costs on the wire beside its payload.
    pub segment_overhead_bytes: u32,
    /// Cutoffs between bands; `None` if they are learned from the requested sizes.
    pub cutoffs: Option<Vec<u64>>,
    /// The stretch of the guard against starvation, if there is one.
    pub guard_stretch: Option<f64>,
}

impl UplinkConfig {
    /// That of `serpent attach`: fewest bytes left first, with learned cutoffs.
    fn attached() -> Self {
        let FileUplink { utilisation, segment_overhead_bytes, cutoffs, guard_stretch } = FileUplink::default();
        let utilisation = utilisation.unwrap_or(UTILISATION);
        Self { order: Order::Srpt, rate: None, utilisation, segment_overhead_bytes, cutoffs, guard_stretch }
    }
}

/// The part of the answer of `serpent check --json FILE` that is needed here. Only that program reads such
/// files.
#[derive(Debug, Deserialize)]
struct Checked {
    uplink: FileUplink,
}

#[derive(Debug, Deserialize)]
struct FileUplink {
    utilisation: Option<f64>,
    segment_overhead_bytes: u32,
    cutoffs: Option<Vec<u64>>,
    guard_stretch: Option<f64>,
}

impl Default for FileUplink {
    fn default() -> Self {
        Self {
            utilisation: None,
            segment_overhead_bytes: Settings::default().segment_overhead_bytes,
            cutoffs: None,
            guard_stretch: None,
        }
    }
}

impl Serving {
    /// Determines how `subject` serves, and lists its settings that are not simulated. Only a subject with a
    /// configuration file needs `serpent`.
    ///
    /// # Errors
    /// [`LabError::Request`] for a subject that cannot be simulated, or whose settings are not valid.
    pub fn of(subject: &Subject, serpent: &Path) -> Result<(Self, Vec<String>), LabError> {
        let refuse = |reason: String| LabError::Request(format!("`{subject}` cannot be simulated: {reason}"));
        let Subject::Serpent { config, .. } = subject else {
            return match subject {
                Subject::Command(_) => Err(refuse(
                    "nothing is known of what the command does; take nginx for a server that shares the uplink evenly"
                        .to_owned(),
                )),
                Subject::Attached(_) => Ok((
                    Self::Bands(UplinkConfig::attached()),
                    vec![format!(
                        "`{subject}`: the bands of `serpent serve --enforce kernel` stand for its ranks; all lengths are \
                         known, also under TLS"
                    )],
                )),
                _ => Ok((Self::Fair, Vec::new())),
            };
        };
        let file = match config {
            Some(file) => {
                subject.is_installed(serpent)?;
                ask(serpent, file).map_err(&refuse)?
            }
            None => FileUplink::default(),
        };
        Self::with(subject, file).map_err(refuse)
    }

    /// The same, with the settings of the file. The subject's settings take precedence. The rate is the
    /// subject's own or that of the link: the lab tells every server its rate, so the file's rate does not
    /// count.
    fn with(subject: &Subject, file: FileUplink) -> Result<(Self, Vec<String>), String> {
        let Subject::Serpent { order, enforce, uplink, workers: _, guard, config: _ } = subject else {
            return Ok((Self::Fair, Vec::new()));
        };
        let order: Order = order.parse().map_err(|error| format!("`{order}`: {error}"))?;
        let (paced, rate) = match uplink.as_deref() {
            None | Some("auto") => (true, None),
            Some("off") => (false, None),
            Some(rate) => {
                let rate =
                    rate.parse().map_err(|error| format!("`uplink={rate}`: {error}; or write `auto` or `off`"))?;
                (true, Some(rate))
            }
        };
        let guard_stretch = match guard.as_deref() {
            None => file.guard_stretch,
            Some("off") => None,
            Some(guard) => Some(
                read_stretch(guard)
                    .ok_or_else(|| format!("`guard={guard}`: a stretch is a number from 1 on, or `off`"))?,
            ),
        };
        let FileUplink { utilisation, segment_overhead_bytes, cutoffs, .. } = file;
        let utilisation = utilisation.unwrap_or(UTILISATION);
        let config = UplinkConfig { order, rate, utilisation, segment_overhead_bytes, cutoffs, guard_stretch };
        let mut notes = Vec::new();
        if uplink.as_deref() == Some("auto") {
            notes.push(format!("`{subject}`: the rate is known from the start, it is not looked for"));
        }
        let serving = match enforce.as_str() {
            "off" => Self::Fair,
            "server" if paced => Self::Paced(config),
            "server" => Self::Fair,
            "kernel" if !paced => {
                return Err("`enforce=kernel` and `uplink=off` contradict each other".to_owned());
            }
            "kernel" if !matches!(order, Order::Srpt | Order::Las) => {
                return Err(format!("the order `{order}` cannot be put into the kernel's bands"));
            }
            "kernel" => Self::Bands(config),
            _ => return Err(format!("`enforce={enforce}` is none of `server`, `kernel` and `off`")),
        };
        Ok((serving, notes))
    }
}

/// Asks `serpent` how it reads the section `[uplink]` of a configuration file.
fn ask(serpent: &Path, file: &Path) -> Result<FileUplink, String> {
    // A file without a site needs a directory. Nothing of the directory is served.
    let output = Command::new(serpent).args(["check", "--json"]).arg(file).arg(".").output();
    let output = output.map_err(|error| format!("`{}` cannot be started: {error}", serpent.display()))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim_end().to_owned());
    }
    read(&output.stdout).map_err(|error| {
        format!("`{} check --json` has said something else than this program expects: {error}", serpent.display())
    })
}

fn read(json: &[u8]) -> Result<FileUplink, serde_json::Error> {
    serde_json::from_slice::<Checked>(json).map(|checked| checked.uplink)
}

impl Serving {
    /// Whether the server learns cutoffs from the requested sizes. `in_bands` tells whether its order is put
    /// into bands.
    pub fn learns(&self, in_bands: bool) -> bool {
        match self {
            Self::Fair => false,
            Self::Paced(config) if !in_bands && config.order != Order::QuickFix => false,
            Self::Paced(config) | Self::Bands(config) => config.cutoffs.is_none(),
        }
    }
}

/// The scheduler's settings for a link of this rate. The pacer uses `share` of it, or the configured
/// utilisation.
///
/// `sizes` are the requested sizes that the server has learned.
pub fn settings(config: &UplinkConfig, link: Rate, share: Option<f64>, sizes: &BandLearner) -> Settings {
    let believed = config.rate.unwrap_or(link);
    let defaults = Settings::default();
    let learned = || sizes.plan(2).and_then(|plan| plan.cutoffs().first().copied());
    Settings {
        order: config.order,
        rate: Some(believed.scaled(share.unwrap_or(config.utilisation))),
        segment_overhead_bytes: config.segment_overhead_bytes,
        small_bytes: match &config.cutoffs {
            Some(cutoffs) => cutoffs.first().copied(),
            None => learned(),
        }
        .unwrap_or(defaults.small_bytes),
        guard_stretch: config.guard_stretch,
        pacing: Pacing::SERVER,
    }
}

/// The bands of an order, in the order's own measure; `None` if the order has no bands.
///
/// Cutoffs are those of the configuration, or those that the server learns from `sizes`.
pub fn band_plan(config: &UplinkConfig, sizes: &BandLearner) -> Option<BandPlan> {
    // Learned cutoffs are sizes.
    let learned = match (config.order, &config.cutoffs) {
        (Order::Fsp, _) => return None,
        (Order::Srpt | Order::Las, None) => sizes.plan(RESPONSE_BANDS),
        _ => None,
    };
    Some(learned.unwrap_or_else(|| BandPlan::first(config.order, config.cutoffs.as_deref())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<(Serving, Vec<String>), String> {
        Serving::of(&text.parse().unwrap(), Path::new("/no/such/serpent")).map_err(|error| error.to_string())
    }

    /// Makes the configuration of a subject from the text of its settings and the answer of `serpent check
    /// --json`.
    fn with_file(text: &str, uplink: &str) -> UplinkConfig {
        let file = read(format!("{{\"uplink\": {uplink}}}").as_bytes()).unwrap();
        match Serving::with(&text.parse().unwrap(), file).unwrap().0 {
            Serving::Paced(config) | Serving::Bands(config) => config,
            Serving::Fair => panic!("{text} is fair"),
        }
    }

    fn config(text: &str) -> UplinkConfig {
        match of(text).unwrap().0 {
            Serving::Paced(config) | Serving::Bands(config) => config,
            Serving::Fair => panic!("{text} is fair"),
        }
    }

    fn sizes() -> BandLearner {
        let mut sizes = BandLearner::default();
        for number in 0..1000 {
            sizes.handle_seen(if number % 10 == 0 { 1 << 20 } else { 3000 });
        }
        sizes
    }

    #[test]
    fn whoever_keeps_no_order_is_fair() {
        for text in
            ["nginx", "nginx,workers=4", "apache", "caddy", "serpent:srpt,enforce=off", "serpent:srpt,uplink=off"]
        {
            assert_eq!(of(text).unwrap(), (Serving::Fair, Vec::new()), "{text}");
        }
        assert!(matches!(of("serpent:srpt").unwrap().0, Serving::Paced(_)));
        assert!(matches!(of("serpent:srpt,enforce=kernel").unwrap().0, Serving::Bands(_)));
        assert!(of("serpent:srpt,uplink=auto").unwrap().1[0].contains("not looked for"));
    }

    #[test]
    fn what_cannot_be_simulated_says_why() {
        for (text, part) in [
            ("cmd:caddy {listen}", "take nginx"),
            ("serpent:best", "srpt"),
            ("serpent:srpt,enforce=magic", "`kernel`"),
            ("serpent:srpt,uplink=fast", "a rate starts with a number"),
            ("serpent:srpt,guard=0.5", "a number from 1 on"),
            ("serpent:fsp,enforce=kernel", "`fsp` cannot be put into the kernel's bands"),
            ("serpent:fair,enforce=kernel", "`fair` cannot be put into the kernel's bands"),
            ("serpent:srpt,enforce=kernel,uplink=off", "contradict each other"),
        ] {
            let said = of(text).unwrap_err();
            assert!(said.contains(part) && said.contains(text.split(',').next().unwrap()), "{text}: {said}");
        }
        let said = of("serpent:srpt,config=a.toml").unwrap_err();
        assert!(said.contains("`/no/such/serpent` is not there"), "{said}");
    }

    #[test]
    fn the_pacer_believes_what_it_is_told() {
        let link: Rate = "10mbit".parse().unwrap();
        let rate = |text: &str, share| {
            settings(&config(text), link, share, &BandLearner::default()).rate.unwrap().bits_per_second()
        };
        assert_eq!(rate("serpent:srpt", None), 9_950_000);
        assert_eq!(rate("serpent:srpt", Some(1.1)), 11_000_000);
        assert_eq!(rate("serpent:srpt,uplink=20mbit", None), 19_900_000);
        assert_eq!(rate("serpent:srpt,uplink=20mbit", Some(0.5)), 10_000_000);
        let guarded = settings(&config("serpent:las,guard=3"), link, None, &BandLearner::default());
        assert_eq!((guarded.order, guarded.guard_stretch, guarded.small_bytes), (Order::Las, Some(3.0), 1024));
    }

    #[test]
    fn a_file_does_not_tell_the_rate() {
        for rate in ["20mbit", "off"] {
            let file = format!(
                "{{\"rate\": \"{rate}\", \"utilisation\": 0.9, \"segment_overhead_bytes\": 66, \"cutoffs\": null, \
                 \"guard_stretch\": 4.0}}"
            );
            let link: Rate = "10mbit".parse().unwrap();
            let told = |flags: &str| {
                let config = with_file(&format!("serpent:srpt{flags}"), &file);
                settings(&config, link, None, &BandLearner::default()).rate.unwrap().bits_per_second()
            };
            let guard = |flags: &str| with_file(&format!("serpent:srpt{flags}"), &file).guard_stretch;
            assert_eq!([guard(""), guard(",guard=2"), guard(",guard=off")], [Some(4.0), Some(2.0), None]);
            assert_eq!(told(""), 9_000_000, "{rate}: the lab tells every server the rate of the link");
            assert_eq!(told(",uplink=30mbit"), 27_000_000);
        }
    }

    #[test]
    fn cutoffs_are_given_or_learned_from_the_sizes_seen() {
        let file =
            r#"{"utilisation": 0.97, "segment_overhead_bytes": 66, "cutoffs": [2048, 20480], "guard_stretch": null}"#;
        let given = with_file("serpent:srpt", file);
        assert_eq!(band_plan(&given, &sizes()).unwrap().cutoffs(), [2048, 20_480]);
        let link: Rate = "10mbit".parse().unwrap();
        assert_eq!(settings(&given, link, None, &sizes()).small_bytes, 2048);

        let learned = config("serpent:srpt");
        assert_eq!(band_plan(&learned, &BandLearner::default()).unwrap().cutoffs().len(), 6);
        let plan = band_plan(&learned, &sizes()).unwrap();
        assert!((3000..4000).contains(&plan.cutoffs()[0]) && *plan.cutoffs().last().unwrap() > 1 << 20, "{plan:?}");
        assert!(settings(&config("serpent:quick-fix"), link, None, &sizes()).small_bytes > 3000);
        assert_eq!(band_plan(&config("serpent:quick-fix"), &sizes()).unwrap().cutoffs(), [1]);
        assert_eq!(band_plan(&config("serpent:srrt"), &sizes()).unwrap().cutoffs()[0], 100_000_000);
        assert_eq!(band_plan(&config("serpent:fsp"), &sizes()), None);
    }
}
