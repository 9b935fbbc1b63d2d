//! Classes: what each is given, what it promises, how it refuses.

use std::{ops::Range, time::Duration};

use scheduler::class::{Class, ClassId};
use server::config::{ClassConfig, Classes, Objective, Refusal, Rule};
use toml::Spanned;

use super::{named_files::FileKind, resolver::Resolver};
use crate::{
    config::{
        problems::Problem,
        raw::{RawClass, RawObjective, RawRefuse},
        written::{Written, is_given},
    },
    values::{self, or_off, to_ns},
};

/// Largest number of classes. Each costs a little at every decision.
const MOST_CLASSES: usize = 256;

impl Resolver<'_> {
    /// The classes in the order of the file; one for all requests if the file has none.
    pub(super) fn class_list(&mut self, raw: &[Spanned<RawClass>]) -> Vec<ClassConfig> {
        let mut classes: Vec<ClassConfig> = Vec::new();
        for (at, written) in raw.iter().enumerate() {
            let class = self.class(written);
            if let Some(first) = classes.iter().position(|it| it.name == class.name && !it.name.is_empty()) {
                self.problems.push(
                    Problem::new(format!("there are two classes `{}`", class.name), Some(class_span(&raw[at])))
                        .also(Some(class_span(&raw[first])), "the first one")
                        .help("give each a name of its own"),
                );
            }
            classes.push(class);
        }
        if classes.is_empty() {
            classes = Classes::one().classes;
        }
        if classes.len() > MOST_CLASSES {
            self.problems.push(
                Problem::new(
                    format!("there are {} classes, and at most {MOST_CLASSES} are possible", classes.len()),
                    Some(class_span(&raw[MOST_CLASSES])),
                )
                .help("let several rules lead to one class: who gets the same is of one class"),
            );
        }
        classes
    }

    /// The class that a rule or `default-class` names.
    pub(super) fn class_named(&mut self, written: &Spanned<Written>, names: &[String]) -> Option<ClassId> {
        let help = format!("add `[[class]]` with `name = \"{}\"`", written.get_ref().0);
        self.index_of("class", written, names, &help).map(|at| ClassId(at as u16))
    }

    /// Warns of classes that no request can have.
    pub(super) fn unused_classes(
        &mut self,
        raw: &[Spanned<RawClass>],
        classes: &[ClassConfig],
        default: ClassId,
        rules: &[Rule],
    ) {
        for (at, (class, written)) in classes.iter().zip(raw).enumerate() {
            let id = ClassId(at as u16);
            if self.shape_is_sound
                && !class.name.is_empty()
                && id != default
                && !rules.iter().any(|rule| rule.class == id)
            {
                self.problems.push(
                    Problem::warning(format!("no request is of class `{}`", class.name), Some(class_span(written)))
                        .help(format!(
                            "add a `[[rule]]` with `class = \"{}\"`, or make it the `default-class`",
                            class.name
                        )),
                );
            }
        }
    }

    fn class(&mut self, written: &Spanned<RawClass>) -> ClassConfig {
        let raw = written.get_ref();
        let missing = ("this class has no `name`", "add `name = \"gold\"`, by which rules name it");
        let name = self.required(&raw.name, written.span(), missing, values::name).unwrap_or_default();
        let ClassConfig { given: default, priority, objective, refusal, .. } = ClassConfig::new(name.clone());
        let number = |text: &str| values::count(text, 1_000_000).map(|count| count as u32);
        let number_or_off = |text: &str| values::count_or_off(text, 1_000_000).map(|count| count.map(|it| it as u32));
        let time_or_off = |text: &str| values::duration_or_off(text).map(|time| time.map(to_ns));
        let given = Class {
            weight: self.setting(None, &raw.weight, number, default.weight),
            delay_ratio: self.setting(None, &raw.delay_ratio, number, default.delay_ratio),
            reserved_slots: self.setting(
                None,
                &raw.reserved,
                |text| number_or_off(text).map(Option::unwrap_or_default),
                default.reserved_slots,
            ),
            most_running: self.setting(None, &raw.slots, number_or_off, default.most_running),
            deadline_ns: self.setting(None, &raw.deadline, time_or_off, default.deadline_ns),
            order: self.setting(None, &raw.order, values::queue_order, default.order),
            most_waiting: self.setting(
                None,
                &raw.queue,
                |text| number_or_off(text).map(Option::unwrap_or_default),
                default.most_waiting,
            ),
            most_wait_ns: self.setting(None, &raw.max_wait, time_or_off, default.most_wait_ns),
        };
        ClassConfig {
            name,
            given,
            priority: self.setting(None, &raw.cpu_priority, values::priority, priority),
            objective: self.objective(&raw.objective, objective.window),
            refusal: self.refusal(&raw.refuse, refusal),
        }
    }

    fn objective(&mut self, raw: &RawObjective, window: Duration) -> Objective {
        let percentiles = [(50.0, &raw.p50), (90.0, &raw.p90), (95.0, &raw.p95), (99.0, &raw.p99), (99.9, &raw.p999)];
        let mut given = percentiles.into_iter().filter(|(_, setting)| is_given(setting));
        let percentile = given.next();
        if let (Some((_, first)), Some((_, second))) = (percentile, given.next()) {
            self.problems.push(
                Problem::new("an objective has one percentile", second.as_ref().map(Spanned::span))
                    .also(first.as_ref().map(Spanned::span), "given already")
                    .help("keep the one that was promised: all of them are among the metrics"),
            );
        }
        Objective {
            mean: self.setting(None, &raw.mean, values::duration_or_off, None),
            percentile: percentile
                .and_then(|(percent, setting)| Some((percent, self.optional(setting, values::duration)?))),
            error_rate: self.setting(None, &raw.error_rate, |text| or_off(text, values::percent), None),
            window: self.setting(None, &raw.window, values::duration, window),
        }
    }

    fn refusal(&mut self, raw: &RawRefuse, default: Refusal) -> Refusal {
        Refusal {
            status: self.setting(None, &raw.status, values::error_status, default.status),
            retry_after: self.setting(None, &raw.retry_after, values::duration_or_off, default.retry_after),
            page: if is_given(&raw.page) { self.file(&raw.page, FileKind::Page) } else { default.page },
        }
    }
}

pub(super) fn class_span(written: &Spanned<RawClass>) -> Range<usize> {
    written.get_ref().name.as_ref().map_or(written.span(), Spanned::span)
}
