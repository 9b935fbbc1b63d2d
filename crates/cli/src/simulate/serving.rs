//! What a subject of an experiment does with the uplink.

use std::path::PathBuf;

use instrument::{LabError, subject::Subject};
use scheduler::{
    Order, Pacing, Rate,
    bands::{BandLearner, BandPlan, RESPONSE_BANDS},
    uplink::Settings,
};
use server::config::{Cutoffs, Enforce, UplinkConfig, UplinkRate};

use crate::{
    args::ServeArgs,
    config,
    values::{self, Named as _},
};

/// A subject as the uplink sees it.
#[derive(Clone, Debug, PartialEq)]
pub enum Serving {
    /// Everybody gets an equal share, as TCP makes it.
    Fair,
    /// Serpent's pacer keeps the order.
    Paced(UplinkConfig),
    /// Priority bands of the kernel keep the order.
    Bands(UplinkConfig),
}

impl Serving {
    /// What `subject` does, and what of it is not simulated.
    ///
    /// # Errors
    /// [`LabError::Request`] for a subject that cannot be simulated, or whose settings are none.
    pub fn of(subject: &Subject) -> Result<(Self, Vec<String>), LabError> {
        let refuse = |reason: String| LabError::Request(format!("`{subject}` cannot be simulated: {reason}"));
        let Subject::Serpent { order, enforce, uplink, workers: _, guard, config } = subject else {
            return match subject {
                Subject::Command(_) => Err(refuse(
                    "nothing is known of what the command does; take nginx for a server that shares the uplink evenly"
                        .to_owned(),
                )),
                _ => Ok((Self::Fair, Vec::new())),
            };
        };
        let flags = ServeArgs {
            // A file that names no site needs one; nothing of it is served.
            dir: Some(PathBuf::from(".")),
            config: config.clone(),
            order: Some(Order::named(order).map_err(&refuse)?),
            enforce: Some(Enforce::named(enforce).map_err(&refuse)?),
            uplink: uplink.as_deref().map(values::uplink_rate).transpose().map_err(&refuse)?,
            guard: guard.as_deref().map(values::stretch_or_off).transpose().map_err(&refuse)?,
            ..ServeArgs::default()
        };
        let mut config = config::load(&flags).map_err(|problems| refuse(problems.to_string()))?.uplink;
        if uplink.is_none() {
            // Like the lab, which tells every server the rate of the link, whatever its file says.
            config.rate = UplinkRate::Auto;
        }
        let mut notes = Vec::new();
        if uplink.as_deref() == Some("auto") {
            notes.push(format!("`{subject}`: the rate is known from the start, it is not looked for"));
        }
        Ok((
            match (config.enforce, config.rate) {
                (Enforce::Off, _) | (Enforce::Server, UplinkRate::Off) => Self::Fair,
                (Enforce::Server, _) => Self::Paced(config),
                (Enforce::Kernel, _) => Self::Bands(config),
            },
            notes,
        ))
    }
}

impl Serving {
    /// Whether it learns cutoffs from the sizes asked for; `in_bands` if its order is to be put into bands.
    pub fn learns(&self, in_bands: bool) -> bool {
        match self {
            Self::Fair => false,
            Self::Paced(config) if !in_bands && config.order != Order::QuickFix => false,
            Self::Paced(config) | Self::Bands(config) => config.cutoffs == Cutoffs::Learned,
        }
    }
}

/// The scheduler's settings for a link of this rate, of which the pacer uses `share`, or what the configuration says.
///
/// `sizes` are what was learned of the sizes asked for.
pub fn settings(config: &UplinkConfig, link: Rate, share: Option<f64>, sizes: &BandLearner) -> Settings {
    let believed = match config.rate {
        UplinkRate::Given(rate) => rate,
        UplinkRate::Auto | UplinkRate::Off => link,
    };
    let defaults = Settings::default();
    let learned = || sizes.plan(2).and_then(|plan| plan.cutoffs().first().copied());
    Settings {
        order: config.order,
        rate: Some(believed.scaled(share.unwrap_or(config.utilisation))),
        segment_overhead_bytes: config.segment_overhead_bytes,
        small_bytes: match &config.cutoffs {
            Cutoffs::Given(cutoffs) => cutoffs.first().copied(),
            Cutoffs::Learned => learned(),
        }
        .unwrap_or(defaults.small_bytes),
        guard_stretch: config.guard_stretch,
        pacing: Pacing::SERVER,
    }
}

/// The bands of an order, in its own measure; `None` for one that has none.
///
/// Cutoffs are those of the configuration, or those that the server has learned when it has seen `sizes`.
pub fn band_plan(config: &UplinkConfig, sizes: &BandLearner) -> Option<BandPlan> {
    // What was learned are sizes.
    let learned = match (config.order, &config.cutoffs) {
        (Order::Fsp, _) => return None,
        (Order::Srpt | Order::Las, Cutoffs::Learned) => sizes.plan(RESPONSE_BANDS),
        _ => None,
    };
    Some(learned.unwrap_or_else(|| BandPlan::first(config.order, config.cutoffs.given())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<(Serving, Vec<String>), String> {
        Serving::of(&text.parse().unwrap()).map_err(|error| error.to_string())
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
        for text in ["nginx", "nginx,workers=4", "apache", "serpent:srpt,enforce=off", "serpent:srpt,uplink=off"] {
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
            ("serpent:best", "`srpt`"),
            ("serpent:srpt,enforce=magic", "`kernel`"),
            ("serpent:srpt,uplink=fast", "a rate starts with a number"),
            ("serpent:srpt,guard=0.5", "a number from 1 on"),
            ("serpent:fsp,enforce=kernel", "cannot be put into the kernel's bands"),
            ("serpent:srpt,config=/no/such/file", "no such configuration file"),
        ] {
            let said = of(text).unwrap_err();
            assert!(said.contains(part) && said.contains(text.split(',').next().unwrap()), "{text}: {said}");
        }
    }

    #[test]
    fn the_pacer_believes_what_it_is_told() {
        let link: Rate = "10mbit".parse().unwrap();
        let rate = |text: &str, share| {
            settings(&config(text), link, share, &BandLearner::default()).rate.unwrap().bits_per_second()
        };
        assert_eq!(rate("serpent:srpt", None), 9_700_000);
        assert_eq!(rate("serpent:srpt", Some(1.1)), 11_000_000);
        assert_eq!(rate("serpent:srpt,uplink=20mbit", None), 19_400_000);
        assert_eq!(rate("serpent:srpt,uplink=20mbit", Some(0.5)), 10_000_000);
        let guarded = settings(&config("serpent:las,guard=3"), link, None, &BandLearner::default());
        assert_eq!((guarded.order, guarded.guard_stretch, guarded.small_bytes), (Order::Las, Some(3.0), 1024));
    }

    #[test]
    fn a_file_does_not_tell_the_rate() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.toml");
        for rate in ["20mbit", "off"] {
            std::fs::write(&file, format!("[uplink]\nrate = \"{rate}\"\nutilisation = 0.9\n")).unwrap();
            let link: Rate = "10mbit".parse().unwrap();
            let told = |flags: &str| {
                let config = config(&format!("serpent:srpt{flags},config={}", file.display()));
                settings(&config, link, None, &BandLearner::default()).rate.unwrap().bits_per_second()
            };
            assert_eq!(told(""), 9_000_000, "{rate}: the lab tells every server the rate of the link");
            assert_eq!(told(",uplink=30mbit"), 27_000_000);
        }
    }

    #[test]
    fn cutoffs_are_given_or_learned_from_the_sizes_seen() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.toml");
        std::fs::write(&file, "[uplink]\ncutoffs = [\"2KiB\", \"20KiB\"]\n").unwrap();
        let given = config(&format!("serpent:srpt,config={}", file.display()));
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
