//! Settings of classes and of admission as JSON, changed by a merge patch (RFC 7396). Fields that are not
//! named stay, and `null` removes a limit.

use std::{num::NonZeroU32, time::Duration};

use http::StatusCode;
use scheduler::{
    admission::{Late, QueueOrder, ResourceId, SettingsError},
    class::ClassId,
    control,
    share::Policy,
};
use serde_json::{Map, Value, json};

use crate::{
    admission::Contradiction,
    config::{AdmissionConfig, ClassConfig, Classes, ResourceConfig},
};

/// Why requested settings are invalid.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wrong {
    /// The path of the field; empty for the whole object.
    pub field: String,
    pub message: String,
}

impl Wrong {
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), message: message.into() }
    }
}

type Read<T> = Result<T, Wrong>;

/// The settings of a class that can be changed.
pub(super) const CLASS_FIELDS: [&str; 12] = [
    "position",
    "weight",
    "delay_ratio",
    "slots",
    "reserved",
    "deadline_s",
    "order",
    "overload_s",
    "queue",
    "max_wait_s",
    "objective",
    "refusal",
];
/// The default wait that counts as overload.
const OVERLOAD: Duration = Duration::from_secs(1);
/// Longest accepted time: a year.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// The settings of a class.
pub(super) fn class(class: &ClassConfig) -> Map<String, Value> {
    let given = &class.given;
    let (order, overload) = match given.order {
        QueueOrder::Adaptive => ("adaptive", None),
        QueueOrder::Fifo => ("fifo", None),
        QueueOrder::Shortest => ("shortest", None),
        QueueOrder::LifoUnderOverload { after_ns } => ("lifo-under-overload", Some(after_ns)),
        QueueOrder::FairAmongClients => ("fair", None),
    };
    let objective = &class.objective;
    let mut settings = Map::new();
    let mut set = |name: &str, value: Value| settings.insert(name.to_owned(), value);
    set("weight", given.weight.into());
    set("delay_ratio", given.delay_ratio.into());
    set("slots", given.most_running.into());
    set("reserved", given.reserved_slots.into());
    set("deadline_s", given.deadline_ns.map(seconds).into());
    set("order", order.into());
    set("overload_s", overload.map(seconds).into());
    set("queue", given.most_waiting.into());
    set("max_wait_s", given.most_wait_ns.map(seconds).into());
    let percentile = objective.percentile.map(|(percent, most)| json!({ "percent": percent, "s": most.as_secs_f64() }));
    set(
        "objective",
        json!({
            "mean_s": objective.mean.map(|mean| mean.as_secs_f64()),
            "percentile": percentile,
            "error_rate": objective.error_rate,
            "window_s": objective.window.as_secs_f64(),
        }),
    );
    let refusal = &class.refusal;
    set(
        "refusal",
        json!({
            "status": refusal.status.as_u16(),
            "retry_after_s": refusal.retry_after.map(|after| after.as_secs_f64()),
        }),
    );
    settings
}

/// The settings of admission.
pub(super) fn admission(admission: &AdmissionConfig) -> Value {
    let windows: Map<_, _> =
        admission.resources.iter().map(|it| (it.name.clone(), it.window.map(NonZeroU32::get).into())).collect();
    let limits = |it: &ResourceConfig| {
        let bound_s = it.bound.map(|bound| bound.as_secs_f64());
        (it.name.clone(), json!({ "least": it.least, "most": it.most, "bound_s": bound_s }))
    };
    let adjustment = &admission.adjustment;
    json!({
        "enabled": admission.enabled,
        "policy": admission.policy.name(),
        "total": admission.total.map(NonZeroU32::get),
        "windows": windows,
        "late": match admission.late { Late::Serve => "serve", Late::Refuse => "refuse" },
        "delay_window_s": admission.delay_window.as_secs_f64(),
        "limits": admission.resources.iter().map(limits).collect::<Map<_, _>>(),
        "adjustment": {
            "method": adjustment.method.name(),
            "probe_every_s": adjustment.probe_every.as_secs_f64(),
            "probe_after_s": adjustment.probe_after.as_secs_f64(),
            "shrink_above": adjustment.shrink_above,
            "grow_below": adjustment.grow_below,
        },
    })
}

/// Changes a class as requested. Returns its new position, if one is requested.
pub(super) fn change_class(class: &mut ClassConfig, patch: &Map<String, Value>) -> Read<Option<usize>> {
    let patch = Fields { path: "", map: patch };
    patch.only(&CLASS_FIELDS)?;
    let given = &mut class.given;
    if let Some(weight) = patch.number("weight", 1)? {
        given.weight = weight;
    }
    if let Some(ratio) = patch.number("delay_ratio", 1)? {
        given.delay_ratio = ratio;
    }
    if let Some(slots) = patch.or_null("slots", |it, name| it.number(name, 1))? {
        given.most_running = slots;
    }
    if let Some(reserved) = patch.number("reserved", 0)? {
        given.reserved_slots = reserved;
    }
    if let Some(deadline) = patch.or_null("deadline_s", Fields::time)? {
        given.deadline_ns = deadline.map(ns);
    }
    if let Some(queue) = patch.number("queue", 0)? {
        given.most_waiting = queue;
    }
    if let Some(wait) = patch.or_null("max_wait_s", Fields::time)? {
        given.most_wait_ns = wait.map(ns);
    }
    change_order(&mut given.order, &patch)?;
    if let Some(objective) = patch.object("objective")? {
        let objective = Fields { path: "objective.", map: objective };
        objective.only(&["mean_s", "percentile", "error_rate", "window_s"])?;
        let kept = &mut class.objective;
        if let Some(mean) = objective.or_null("mean_s", Fields::time)? {
            kept.mean = mean;
        }
        if let Some(rate) = objective.or_null("error_rate", |it, name| it.real(name, 0.0, 1.0))? {
            kept.error_rate = rate;
        }
        if let Some(window) = objective.time("window_s")? {
            if window < Duration::from_secs(1) {
                return Err(Wrong::new("objective.window_s", "must be at least 1"));
            }
            kept.window = window;
        }
        match objective.map.get("percentile") {
            None => {}
            Some(Value::Null) => kept.percentile = None,
            Some(_) => {
                let Some(percentile) = objective.object("percentile")? else { unreachable!("it is there") };
                let percentile = Fields { path: "objective.percentile.", map: percentile };
                percentile.only(&["percent", "s"])?;
                let needed = |name: &str| Wrong::new(format!("objective.percentile.{name}"), "is missing");
                let percent = percentile.real("percent", 0.0, 100.0)?.or(kept.percentile.map(|(percent, _)| percent));
                let most = percentile.time("s")?.or(kept.percentile.map(|(_, most)| most));
                kept.percentile = Some((percent.ok_or_else(|| needed("percent"))?, most.ok_or_else(|| needed("s"))?));
            }
        }
    }
    if let Some(refusal) = patch.object("refusal")? {
        let refusal = Fields { path: "refusal.", map: refusal };
        refusal.only(&["status", "retry_after_s"])?;
        if let Some(status) = refusal.number("status", 400)? {
            let status = u16::try_from(status).ok().filter(|status| *status < 600);
            let status = status.and_then(|status| StatusCode::from_u16(status).ok());
            class.refusal.status = status.ok_or_else(|| Wrong::new("refusal.status", "must be from 400 to 599"))?;
        }
        if let Some(after) = refusal.or_null("retry_after_s", Fields::time)? {
            class.refusal.retry_after = after;
        }
    }
    Ok(patch.number("position", 0)?.map(|at| at as usize))
}

fn change_order(order: &mut QueueOrder, patch: &Fields<'_>) -> Read<()> {
    let overload = patch.or_null("overload_s", Fields::time)?;
    let after = match (*order, overload) {
        (_, Some(Some(after))) => ns(after),
        (QueueOrder::LifoUnderOverload { after_ns }, None) => after_ns,
        _ => ns(OVERLOAD),
    };
    match patch.name("order", &["adaptive", "fifo", "shortest", "lifo-under-overload", "fair"])? {
        Some("adaptive") => *order = QueueOrder::Adaptive,
        Some("fifo") => *order = QueueOrder::Fifo,
        Some("shortest") => *order = QueueOrder::Shortest,
        Some("fair") => *order = QueueOrder::FairAmongClients,
        Some(_) => *order = QueueOrder::LifoUnderOverload { after_ns: after },
        None => {
            if let (QueueOrder::LifoUnderOverload { after_ns }, Some(Some(_))) = (&mut *order, overload) {
                *after_ns = after;
            }
        }
    }
    match (order, overload) {
        (QueueOrder::LifoUnderOverload { .. }, _) | (_, None | Some(None)) => Ok(()),
        _ => Err(Wrong::new("overload_s", "goes with the order `lifo-under-overload` only")),
    }
}

/// Changes admission as requested.
pub(super) fn change_admission(admission: &mut AdmissionConfig, patch: &Map<String, Value>) -> Read<()> {
    let patch = Fields { path: "", map: patch };
    patch.only(&["enabled", "policy", "total", "windows", "late", "delay_window_s", "limits", "adjustment"])?;
    match patch.map.get("enabled") {
        None => {}
        Some(Value::Bool(enabled)) => admission.enabled = *enabled,
        Some(other) => return Err(Wrong::new("enabled", format!("must be true or false, not {other}"))),
    }
    if let Some(policy) = patch.name("policy", &Policy::ALL.map(Policy::name))? {
        admission.policy = Policy::ALL.into_iter().find(|it| it.name() == policy).expect("one of these names");
    }
    if let Some(total) = patch.or_null("total", |it, name| it.number(name, 1))? {
        admission.total = total.and_then(NonZeroU32::new);
    }
    if let Some(late) = patch.name("late", &["serve", "refuse"])? {
        admission.late = if late == "refuse" { Late::Refuse } else { Late::Serve };
    }
    if let Some(window) = patch.time("delay_window_s")? {
        if window < Duration::from_secs(1) {
            return Err(Wrong::new("delay_window_s", "must be at least 1"));
        }
        admission.delay_window = window;
    }
    if let Some(windows) = patch.object("windows")? {
        let windows = Fields { path: "windows.", map: windows };
        let names: Vec<&str> = admission.resources.iter().map(|it| it.name.as_str()).collect();
        windows.only(&names)?;
        for resource in &mut admission.resources {
            if let Some(window) = windows.or_null(&resource.name, |it, name| it.number(name, 1))? {
                resource.window = window.and_then(NonZeroU32::new);
            }
        }
    }
    if let Some(limits) = patch.object("limits")? {
        let limits = Fields { path: "limits.", map: limits };
        let names: Vec<&str> = admission.resources.iter().map(|it| it.name.as_str()).collect();
        limits.only(&names)?;
        for resource in &mut admission.resources {
            let Some(limits) = limits.object(&resource.name)? else { continue };
            let path = format!("limits.{}.", resource.name);
            let limits = Fields { path: &path, map: limits };
            limits.only(&["least", "most", "bound_s"])?;
            let limit = |name: &str| Ok(limits.number(name, 1)?.and_then(NonZeroU32::new));
            resource.least = limit("least")?.unwrap_or(resource.least);
            resource.most = limit("most")?.unwrap_or(resource.most);
            if let Some(bound) = limits.or_null("bound_s", Fields::time)? {
                resource.bound = bound;
            }
            if resource.least > resource.most {
                return Err(limits.wrong("least", format!("must not be more than the most, {}", resource.most)));
            }
        }
    }
    if let Some(fields) = patch.object("adjustment")? {
        let fields = Fields { path: "adjustment.", map: fields };
        fields.only(&["method", "probe_every_s", "probe_after_s", "shrink_above", "grow_below"])?;
        let adjustment = &mut admission.adjustment;
        if let Some(method) = fields.name("method", &control::Method::ALL.map(control::Method::name))? {
            adjustment.method =
                control::Method::ALL.into_iter().find(|it| it.name() == method).expect("one of these names");
        }
        if let Some(every) = fields.time("probe_every_s")? {
            adjustment.probe_every = every;
        }
        if let Some(after) = fields.time("probe_after_s")? {
            adjustment.probe_after = after;
        }
        if let Some(threshold) = fields.counter("shrink_above", 0, 1000)? {
            adjustment.shrink_above = threshold;
        }
        if let Some(threshold) = fields.counter("grow_below", -1000, 0)? {
            adjustment.grow_below = threshold;
        }
    }
    if admission.adjustment.method == control::Method::Probe
        && let Some(resource) = admission.resources.iter().find(|it| it.window.is_some() && it.probe.is_none())
    {
        let message = format!("cannot be `probe`: the configuration names no page that probes {}", resource.name);
        return Err(Wrong::new("adjustment.method", message));
    }
    Ok(())
}

/// Describes a contradiction of settings with the configured names.
pub(super) fn contradiction(error: Contradiction, classes: &Classes) -> Wrong {
    let class = |ClassId(id): ClassId| classes.classes.get(usize::from(id)).map_or("?", |it| it.name.as_str());
    let resource = |id: usize| classes.admission.resources.get(id).map_or("?", |it| it.name.as_str());
    let error = match error {
        Contradiction::Slots(error) => error,
        Contradiction::Windows(error) => {
            let name = |id: ResourceId| resource(id.index());
            return match error {
                control::SettingsError::Least(id) => {
                    Wrong::new(format!("limits.{}.least", name(id)), "must be at least 1")
                }
                control::SettingsError::First(id) => {
                    let message = "must be from the least to the most of its limits, where windows are adjusted";
                    Wrong::new(format!("windows.{}", name(id)), message)
                }
                control::SettingsError::Bound(id) => {
                    let message = "must be given to adjust windows by `probe`; `serpent probe` measures it";
                    Wrong::new(format!("limits.{}.bound_s", name(id)), message)
                }
                control::SettingsError::Probes => Wrong::new("adjustment.probe_every_s", "must be more than 0"),
            };
        }
    };
    match error {
        SettingsError::Weight(id) => Wrong::new("weight", format!("of class {} must be at least 1", class(id))),
        SettingsError::DelayRatio(id) => {
            Wrong::new("delay_ratio", format!("of class {} must be at least 1", class(id)))
        }
        SettingsError::NeverRuns(id) => {
            Wrong::new("slots", format!("of class {} must be at least 1, or null for no limit", class(id)))
        }
        SettingsError::NeverWaits(id) => Wrong::new(
            "max_wait_s",
            format!(
                "of class {} must be more than 0, or null for no limit; to let nobody wait, set `queue` to 0",
                class(id)
            ),
        ),
        SettingsError::IdleReserve(id) => {
            Wrong::new("reserved", format!("of class {} must not be more than its `slots`", class(id)))
        }
        SettingsError::Window(id) => {
            let name = resource(id.index());
            Wrong::new(format!("windows.{name}"), "must be at least 1, or null for no limit")
        }
        SettingsError::Total => Wrong::new("total", "must be at least 1, or null for no limit"),
        SettingsError::DelayWindow => Wrong::new("delay_window_s", "must be more than 0"),
        SettingsError::Unlimited(id) => Wrong::new(
            "policy",
            format!(
                "{} shares slots out, and there is no number of them for {}: give it a window, or set `total`",
                classes.admission.policy,
                resource(id.index())
            ),
        ),
        SettingsError::Reserves(id) => Wrong::new(
            "reserved",
            format!(
                "the reserves of all classes leave no slot of {} for a class without one: reserve fewer, or widen its \
                 window or `total`",
                resource(id.index())
            ),
        ),
        SettingsError::Classes | SettingsError::Resources => Wrong::new("", error.to_string()),
    }
}

fn seconds(ns: u64) -> f64 {
    Duration::from_nanos(ns).as_secs_f64()
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// An object of the request, and its path.
struct Fields<'a> {
    path: &'a str,
    map: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    fn wrong(&self, name: &str, message: String) -> Wrong {
        Wrong::new(format!("{}{name}", self.path), message)
    }

    fn only(&self, known: &[&str]) -> Read<()> {
        match self.map.keys().find(|name| !known.contains(&name.as_str())) {
            Some(name) => Err(self.wrong(name, format!("is not known; there are: {}", known.join(", ")))),
            None => Ok(()),
        }
    }

    /// A field that `null` removes.
    fn or_null<T>(&self, name: &str, read: impl Fn(&Self, &str) -> Read<Option<T>>) -> Read<Option<Option<T>>> {
        match self.map.get(name) {
            None => Ok(None),
            Some(Value::Null) => Ok(Some(None)),
            Some(_) => read(self, name).map(Some),
        }
    }

    fn number(&self, name: &str, least: u32) -> Read<Option<u32>> {
        let Some(value) = self.map.get(name) else { return Ok(None) };
        let number = value.as_u64().and_then(|number| u32::try_from(number).ok()).filter(|number| *number >= least);
        let wrong = || self.wrong(name, format!("must be a whole number from {least} to {}, not {value}", u32::MAX));
        number.map(Some).ok_or_else(wrong)
    }

    fn counter(&self, name: &str, least: i32, most: i32) -> Read<Option<i32>> {
        let Some(value) = self.map.get(name) else { return Ok(None) };
        let counter = value.as_i64().and_then(|it| i32::try_from(it).ok()).filter(|it| (least..=most).contains(it));
        let wrong = || self.wrong(name, format!("must be a whole number from {least} to {most}, not {value}"));
        counter.map(Some).ok_or_else(wrong)
    }

    fn real(&self, name: &str, least: f64, most: f64) -> Read<Option<f64>> {
        let Some(value) = self.map.get(name) else { return Ok(None) };
        let number = value.as_f64().filter(|number| (least..=most).contains(number));
        let wrong = || self.wrong(name, format!("must be a number from {least} to {most}, not {value}"));
        number.map(Some).ok_or_else(wrong)
    }

    /// A time in seconds.
    fn time(&self, name: &str) -> Read<Option<Duration>> {
        let Some(value) = self.map.get(name) else { return Ok(None) };
        let time = value.as_f64().and_then(|s| Duration::try_from_secs_f64(s).ok()).filter(|time| *time <= LONGEST);
        let wrong =
            || self.wrong(name, format!("must be a number of seconds from 0 to {}, not {value}", LONGEST.as_secs()));
        time.map(Some).ok_or_else(wrong)
    }

    fn name(&self, name: &str, known: &[&str]) -> Read<Option<&'a str>> {
        let Some(value) = self.map.get(name) else { return Ok(None) };
        let text = value.as_str().filter(|text| known.contains(text));
        text.map(Some).ok_or_else(|| self.wrong(name, format!("must be one of {}, not {value}", known.join(", "))))
    }

    fn object(&self, name: &str) -> Read<Option<&'a Map<String, Value>>> {
        let Some(value) = self.map.get(name) else { return Ok(None) };
        value.as_object().map(Some).ok_or_else(|| self.wrong(name, format!("must be an object, not {value}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(patch: Value) -> Result<Value, Wrong> {
        let mut class_config = Classes::one().classes.remove(0);
        change_class(&mut class_config, patch.as_object().unwrap())?;
        Ok(Value::Object(class(&class_config)))
    }

    #[test]
    fn what_is_shown_can_be_sent_back() {
        let all = json!({
            "weight": 4, "delay_ratio": 2, "slots": 10, "reserved": 2, "deadline_s": 0.5, "order": "lifo-under-overload", "overload_s": 0.25,
            "queue": 50, "max_wait_s": 3.0,
            "objective": {
                "mean_s": 0.1, "percentile": { "percent": 99.5, "s": 1.0 }, "error_rate": 0.01, "window_s": 120.0
            },
            "refusal": { "status": 429, "retry_after_s": 7.0 },
        });
        assert_eq!(changed(all.clone()).unwrap(), all);
        assert_eq!(changed(changed(json!({})).unwrap()).unwrap(), changed(json!({})).unwrap());
        let fields = changed(json!({})).unwrap();
        let shown: Vec<_> = fields.as_object().unwrap().keys().map(String::as_str).collect();
        assert!(CLASS_FIELDS.iter().all(|it| *it == "position" || shown.contains(it)), "{shown:?}");
    }

    #[test]
    fn the_schema_names_the_defaults_of_a_class() {
        let schema: Value = serde_json::from_str(include_str!("schema.json")).unwrap();
        let shown = class(&ClassConfig::new("any"));
        let mut compared = 0;
        for (name, property) in schema["components"]["schemas"]["ClassSettings"]["properties"].as_object().unwrap() {
            // That of the overload is the default of one order, and not of a class.
            if let Some(default) = property.get("default").filter(|_| name != "overload_s") {
                let same = default == &shown[name] || default.as_f64().is_some_and(|it| shown[name] == json!(it));
                assert!(same, "{name} is {} and not {default}", shown[name]);
                compared += 1;
            }
        }
        assert!(compared >= 8, "{compared}");
    }

    #[test]
    fn what_is_not_named_stays_and_null_takes_limits_away() {
        let mut class_config = Classes::one().classes.remove(0);
        let mut change = |patch: Value| {
            change_class(&mut class_config, patch.as_object().unwrap()).unwrap();
            Value::Object(class(&class_config))
        };
        change(json!({ "slots": 3, "weight": 9, "objective": { "percentile": { "percent": 90, "s": 2 } } }));
        let now = change(json!({ "slots": null, "objective": { "percentile": { "s": 1 }, "mean_s": 1 } }));
        assert_eq!((&now["slots"], &now["weight"]), (&Value::Null, &json!(9)));
        assert_eq!(now["objective"]["percentile"], json!({ "percent": 90.0, "s": 1.0 }));
        let now = change(json!({ "objective": { "percentile": null } }));
        assert_eq!((&now["objective"]["percentile"], &now["objective"]["mean_s"]), (&Value::Null, &json!(1.0)));
    }

    #[test]
    fn bad_values_are_named() {
        for (patch, field) in [
            (json!({ "weight": 0 }), "weight"),
            (json!({ "weight": null }), "weight"),
            (json!({ "weight": 1.5 }), "weight"),
            (json!({ "weight": 4_294_967_296u64 }), "weight"),
            (json!({ "delay_ratio": 0 }), "delay_ratio"),
            (json!({ "slots": 0 }), "slots"),
            (json!({ "wieght": 1 }), "wieght"),
            (json!({ "deadline_s": -1 }), "deadline_s"),
            (json!({ "deadline_s": 1e300 }), "deadline_s"),
            (json!({ "max_wait_s": "5s" }), "max_wait_s"),
            (json!({ "order": "random" }), "order"),
            (json!({ "overload_s": 1 }), "overload_s"),
            (json!({ "objective": 1 }), "objective"),
            (json!({ "objective": { "window_s": 0.5 } }), "objective.window_s"),
            (json!({ "objective": { "error_rate": 1.1 } }), "objective.error_rate"),
            (json!({ "objective": { "percentile": { "percent": 95 } } }), "objective.percentile.s"),
            (json!({ "refusal": { "status": 200 } }), "refusal.status"),
            (json!({ "refusal": { "page": "/etc/passwd" } }), "refusal.page"),
        ] {
            assert_eq!(changed(patch.clone()).unwrap_err().field, field, "{patch}");
        }
    }

    #[test]
    fn admission_is_changed_by_its_names() {
        let mut config = AdmissionConfig::off();
        let mut change = |patch: Value| {
            let result = change_admission(&mut config, patch.as_object().unwrap());
            result.map(|()| admission(&config)).map_err(|wrong| wrong.field)
        };
        let all = json!({
            "enabled": true, "policy": "shared", "total": 8, "windows": { "site": 5 }, "late": "refuse",
            "delay_window_s": 60.0, "limits": { "site": { "least": 2, "most": 9, "bound_s": 0.25 } },
            "adjustment": {
                "method": "knee", "probe_every_s": 2.0, "probe_after_s": 0.0, "shrink_above": 3, "grow_below": -2
            },
        });
        assert_eq!(change(all.clone()).unwrap(), all);
        assert_eq!(change(json!({ "windows": { "site": null } })).unwrap()["windows"], json!({ "site": null }));
        for (patch, field) in [
            (json!({ "policy": "fifo" }), "policy"),
            (json!({ "total": 0 }), "total"),
            (json!({ "windows": { "disk": 1 } }), "windows.disk"),
            (json!({ "windows": { "site": 0 } }), "windows.site"),
            (json!({ "enabled": 1 }), "enabled"),
            (json!({ "late": null }), "late"),
            (json!({ "delay_window_s": 0.5 }), "delay_window_s"),
            (json!({ "limits": { "disk": {} } }), "limits.disk"),
            (json!({ "limits": { "site": { "least": 0 } } }), "limits.site.least"),
            (json!({ "limits": { "site": { "least": 10 } } }), "limits.site.least"),
            (json!({ "limits": { "site": { "first": 10 } } }), "limits.site.first"),
            (json!({ "adjustment": { "method": "aimd" } }), "adjustment.method"),
            (json!({ "adjustment": { "shrink_above": -1 } }), "adjustment.shrink_above"),
            (json!({ "adjustment": { "grow_below": 1 } }), "adjustment.grow_below"),
        ] {
            assert_eq!(change(patch.clone()).unwrap_err(), field, "{patch}");
        }
    }
}
