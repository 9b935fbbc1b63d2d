//! The experiments that come with the program.

macro_rules! shipped {
    ($($name:literal),+ $(,)?) => {
        &[$(($name, include_str!(concat!("../../experiments/", $name, ".toml")))),+]
    };
}

/// Names and texts of the shipped experiment files, in the order of `lab list`.
pub const SHIPPED: &[(&str, &str)] = shipped![
    "smoke",
    "load",
    "attach",
    "gate",
    "auto",
    // "Implementation of SRPT Scheduling in Web Servers"
    "srpt-over-load",
    "srpt-over-load-nasa",
    "srpt-over-load-surge",
    "srpt-nasa-trace",
    "srpt-quick-fix",
    // "Web Servers Under Overload: How Scheduling Can Help"
    "overload-persistent",
    "overload-workloads",
    "overload-workloads-nasa",
    "overload-workloads-realistic",
    "overload-setups",
    "overload-queue",
    "overload-rtt",
    "overload-loss",
    "overload-rtt-and-loss",
    "overload-keep-alive",
    "overload-initial-rto",
    "overload-syn-cookies",
    "overload-abort",
    "overload-packet-length",
    // "Implementation of a New Scheduling Policy in Web Servers"
    "wans-10mbit",
    "wans-100mbit",
    // "Differentiated quality of Web service"
    "rates-one-client",
    "rates-two-clients",
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{
        experiment::{Changes, Experiment, FigureKind, Measure, PublishedValue},
        record::Point,
        report::figures::shows,
        setting::DemandSetting,
    };

    /// Most seconds of sending in a short form, over all its cells, without their start and end.
    const QUICK_S: f64 = 50.0;
    /// Longest wait for requests under way at the end of each cell.
    const QUICK_DRAIN_S: f64 = 10.0;
    /// Measures that compare with the first subject.
    const AGAINST_THE_FIRST: [Measure; 4] =
        [Measure::Gain, Measure::SlowdownGain, Measure::Starved, Measure::WorstStretch];

    fn full() -> impl Iterator<Item = (Experiment, Vec<Point>)> {
        SHIPPED.iter().map(|(name, text)| {
            let experiment = Experiment::parse(name, text).unwrap();
            let points = experiment.points().unwrap();
            (experiment, points)
        })
    }

    fn quick() -> impl Iterator<Item = (Experiment, Vec<Point>)> {
        full().map(|(experiment, _)| {
            let quick = experiment.changed(&Changes { quick: true, ..Changes::default() }).unwrap();
            let points = quick.points().unwrap();
            (quick, points)
        })
    }

    /// The points with these labels; all if the list is empty.
    fn named<'a>(points: &'a [Point], labels: &[String]) -> Vec<&'a Point> {
        points.iter().filter(|point| labels.is_empty() || labels.contains(&point.label)).collect()
    }

    #[test]
    fn the_short_form_takes_about_a_minute() {
        for (quick, points) in quick() {
            let runs = (quick.seeds.len() * quick.subjects.len()) as f64;
            let sending_s: f64 = points.iter().map(|point| point.setting.time.seconds * runs).sum();
            assert!(sending_s <= QUICK_S, "{}: {sending_s} s", quick.name);
            assert!(points.iter().all(|point| point.setting.time.drain_s <= QUICK_DRAIN_S), "{}", quick.name);
            assert!(quick.subjects.len() > 1, "{} compares nothing", quick.name);
        }
    }

    #[test]
    fn the_short_form_keeps_the_subjects_order_and_needs_ten_megabit() {
        for ((full, _), (quick, points)) in full().zip(quick()) {
            assert_eq!(full.subjects[0], quick.subjects[0], "{}: compared with another", full.name);
            assert!(quick.subjects.iter().all(|subject| full.subjects.contains(subject)), "{}", full.name);
            let rates: BTreeSet<String> = points.iter().map(|point| point.setting.link.rate.to_string()).collect();
            assert_eq!(rates, BTreeSet::from(["10mbit".to_owned()]), "{}", full.name);
        }
    }

    #[test]
    fn every_experiment_of_a_paper_names_it_and_says_what_to_expect() {
        const PAPERS: [&str; 4] = [
            "Implementation of SRPT Scheduling in Web Servers, section",
            "Web Servers Under Overload: How Scheduling Can Help, ",
            "Implementation of a New Scheduling Policy in Web Servers, chapter",
            "Differentiated quality of Web service, section",
        ];
        let mut without = Vec::new();
        for (experiment, _) in full() {
            if PAPERS.iter().any(|paper| experiment.source.starts_with(paper)) {
                assert!(experiment.notes.len() > 50, "{} has no notes", experiment.name);
            } else {
                without.push(experiment.name.clone());
            }
            assert!(!experiment.figures.is_empty(), "{} has no figures", experiment.name);
        }
        assert_eq!(without, ["smoke", "load", "attach", "gate", "auto"]);
    }

    #[test]
    fn every_figure_has_what_it_shows() {
        for (experiment, points) in full() {
            for figure in &experiment.figures {
                let place = format!("{}: {}", experiment.name, figure.title);
                for label in &figure.points {
                    assert!(points.iter().any(|point| point.label == *label), "{place}: no point `{label}`");
                }
                assert!(
                    shows(figure.kind, figure.measure),
                    "{place}: {:?} cannot show {:?}",
                    figure.kind,
                    figure.measure
                );
                let shown = named(&points, &figure.points);
                match figure.kind {
                    FigureKind::OverSweep => {
                        let over = figure.over.as_ref().unwrap_or_else(|| panic!("{place}: over what"));
                        let values: BTreeSet<_> = shown.iter().filter_map(|point| point.values.get(over)).collect();
                        assert!(values.len() > 1, "{place}: `{over}` does not vary");
                        assert!(values.iter().all(|value| value.parse::<f64>().is_ok()), "{place}: {values:?}");
                    }
                    FigureKind::ByGroup => {
                        assert!(shown.iter().all(|point| point.setting.groups.len() > 1), "{place}: one group");
                    }
                    FigureKind::Bars
                    | FigureKind::BySize
                    | FigureKind::BySizePercentile
                    | FigureKind::OverTime
                    | FigureKind::ServerOverTime
                    | FigureKind::Distribution
                    | FigureKind::Stretch => {}
                }
                let compares = figure.kind == FigureKind::Stretch || AGAINST_THE_FIRST.contains(&figure.measure);
                assert!(!compares || experiment.subjects.len() > 1, "{place}: nobody to compare with");
            }
        }
    }

    #[test]
    fn every_published_value_belongs_to_a_point_a_subject_and_a_group() {
        for (experiment, points) in full() {
            for published in &experiment.published {
                let place = format!("{}: {published:?}", experiment.name);
                assert!(!published.place.is_empty(), "{place}");
                let labels: Vec<String> = Some(published.point.clone()).filter(|p| !p.is_empty()).into_iter().collect();
                let shown = named(&points, &labels);
                assert!(!shown.is_empty(), "{place}: no such point");
                assert!(experiment.subjects.contains(&published.subject), "{place}: no such subject");
                if !published.group.is_empty() {
                    let has_group =
                        |point: &&Point| point.setting.groups.iter().any(|group| group.name == published.group);
                    assert!(shown.iter().all(has_group), "{place}: no such group");
                }
                if AGAINST_THE_FIRST.contains(&published.measure) {
                    assert_ne!(published.subject, experiment.subjects[0], "{place}: against itself");
                    assert_eq!(published.relative_to, None, "{place}: already a comparison");
                }
                if let Some(other) = &published.relative_to {
                    assert!(experiment.subjects.contains(other), "{place}: no such subject");
                    assert_ne!(*other, published.subject, "{place}: against itself");
                }
                match published.value {
                    PublishedValue::One(value) => assert!(value.is_finite() && value >= 0.0, "{place}"),
                    PublishedValue::Range(from, to) => assert!(0.0 <= from && from < to && to.is_finite(), "{place}"),
                }
            }
        }
    }

    #[test]
    fn the_examples_of_the_guide_are_experiments() {
        let guide = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/lab.md");
        let guide = std::fs::read_to_string(guide).unwrap();
        let blocks: Vec<&str> =
            guide.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
        assert_eq!(blocks.len(), 2);
        for block in blocks {
            let experiment = Experiment::parse("docs/guide/lab.md", block).unwrap();
            assert!(!experiment.points().unwrap().is_empty());
        }
    }

    #[test]
    fn no_published_value_is_given_twice() {
        for (experiment, _) in full() {
            let mut seen = BTreeSet::new();
            for published in &experiment.published {
                let key = (
                    published.point.clone(),
                    published.subject.clone(),
                    published.measure,
                    published.group.clone(),
                    published.relative_to.clone(),
                );
                assert!(seen.insert(key.clone()), "{}: {key:?} is there twice", experiment.name);
            }
        }
    }

    #[test]
    fn the_papers_numbers_are_what_the_files_say() {
        let all: Vec<(Experiment, Vec<Point>)> = full().collect();
        let of = |name: &str| &all.iter().find(|(experiment, _)| experiment.name == name).unwrap().1;
        let point = |name: &str, label: &str| {
            of(name)
                .iter()
                .find(|point| point.label == label)
                .unwrap_or_else(|| panic!("{name}: {label}"))
                .setting
                .clone()
        };

        for (experiment, points) in &all {
            let expected = match experiment.source.split(',').next().unwrap() {
                "Web Servers Under Overload: How Scheduling Can Help" => 1800.0,
                "Implementation of a New Scheduling Policy in Web Servers" => 900.0,
                _ => continue,
            };
            assert!(points.iter().all(|point| point.setting.time.seconds == expected), "{}", experiment.name);
        }

        let realistic = point("overload-setups", "(J) realistic");
        let path = &realistic.groups[0].path;
        assert_eq!((path.rtt_ms, path.loss, realistic.clients.requests_per_connection), (100.0, 0.05, 5));
        assert_eq!((realistic.clients.abort_after_s, realistic.clients.retries), (Some(7.0), 3));
        assert_eq!((realistic.server.syn_queue, realistic.server.accept_queue), (512, 512));
        assert!(!realistic.server.syn_cookies && point("overload-setups", "(G) SYN cookies").server.syn_cookies);
        assert_eq!(of("overload-workloads").len(), 10);

        let far = &point("wans-10mbit", "users 420").groups[5];
        assert_eq!((far.path.rtt_ms, far.path.jitter_ms, far.path.loss), (350.0, 50.0, 0.03));
        let many = point("wans-100mbit", "users 5000");
        assert_eq!(many.link.rate.to_string(), "100mbit");
        assert!(matches!(many.demand, DemandSetting::Users { users: 5000, files: 2000, .. }));

        let two = point("rates-two-clients", "requests-per-second 700");
        let patience: Vec<_> = two.groups.iter().map(|g| g.clients.as_ref().unwrap().abort_after_s).collect();
        assert_eq!(patience, [Some(5.0), Some(5.0)]);
    }
}
