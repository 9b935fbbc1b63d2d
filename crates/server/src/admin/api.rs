//! The API of the admin address. Every client of the address can read the classes and admission; changes need
//! the token.
//!
//! Every change is made like a reload: a whole new set of classes is made, checked and swapped in, or nothing
//! changes. A change names the version that it is based on (`If-Match`), so of two concurrent changes the
//! second is refused. Changes last until the next reload.

use std::{borrow::Cow, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header, request::Parts};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use percent_encoding::percent_decode_str;
use scheduler::{admission::ClassStats, class::ClassId};
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use super::{
    certificates, live, servers,
    settings::{self, Wrong},
    stored,
};
use crate::{
    admission::{Admission, ResourceStats},
    class_metrics::{Goal, TimesTotal},
    config::{ClassConfig, Classes},
    start_error::StartError,
    state::{ConfigSnapshot, ServerState},
};

/// Largest body of a request: settings of a class are a few hundred bytes.
const MAX_BODY_BYTES: usize = 64 * 1024;
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// Most classes. Each class costs a little at every decision.
const MAX_CLASSES: usize = 256;
const MAX_NAME_BYTES: usize = 64;
const SCHEMA: &str = include_str!("schema.json");
const MERGE_PATCH: &str = "application/merge-patch+json";

/// Why a request is not carried out.
struct Problem {
    status: StatusCode,
    wrong: Wrong,
    /// The version in force, if the request named another.
    version: Option<HeaderValue>,
}

type Done<T> = Result<T, Problem>;

impl Problem {
    fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, wrong: Wrong::new("", message), version: None }
    }

    fn response(self) -> Response<Full<Bytes>> {
        let Wrong { field, message } = self.wrong;
        let field = if field.is_empty() { Value::Null } else { field.into() };
        let mut response = json_response(self.status, &json!({ "error": { "message": message, "field": field } }));
        let headers = response.headers_mut();
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"serpent\""));
        }
        if let Some(version) = self.version {
            headers.insert(header::ETAG, version);
        }
        response
    }
}

impl From<Wrong> for Problem {
    fn from(wrong: Wrong) -> Self {
        Self { status: StatusCode::UNPROCESSABLE_ENTITY, wrong, version: None }
    }
}

impl From<StartError> for Problem {
    /// The request looks valid but cannot be carried out: files that classes name have changed, or the uplink
    /// cannot be shared as asked.
    fn from(error: StartError) -> Self {
        Self::new(StatusCode::CONFLICT, format!("cannot be taken over: {error}"))
    }
}

/// The resource that a path names.
#[derive(Clone, Debug, PartialEq)]
enum Place {
    Schema,
    Classes,
    Class(String),
    Admission,
    Upstreams,
    /// The servers of a name in an upstream.
    Server(String, String),
    Certificates,
    Cache,
    Live,
}

impl Place {
    fn of(path: &str) -> Option<Self> {
        match path.strip_prefix("/api/")? {
            "schema" => Some(Self::Schema),
            "classes" => Some(Self::Classes),
            "admission" => Some(Self::Admission),
            "upstreams" => Some(Self::Upstreams),
            "certificates" => Some(Self::Certificates),
            "cache" => Some(Self::Cache),
            "live" => Some(Self::Live),
            rest => {
                let decoded = |name: &str| {
                    let is_name = !name.is_empty() && !name.contains('/');
                    is_name.then(|| percent_decode_str(name).decode_utf8().ok().map(Cow::into_owned))?
                };
                if let Some(name) = rest.strip_prefix("classes/") {
                    return Some(Self::Class(decoded(name)?));
                }
                let (upstream, server) = rest.strip_prefix("upstreams/")?.split_once('/')?;
                Some(Self::Server(decoded(upstream)?, decoded(server)?))
            }
        }
    }

    fn methods(&self) -> &'static str {
        match self {
            Self::Schema | Self::Classes | Self::Upstreams | Self::Certificates | Self::Live => "GET, HEAD",
            Self::Class(_) => "GET, HEAD, PUT, PATCH, DELETE",
            Self::Admission | Self::Server(..) => "GET, HEAD, PATCH",
            Self::Cache => "GET, HEAD, DELETE",
        }
    }
}

/// A change of classes as requested, for the fuzz target. An error is the status of the refusal.
#[cfg(any(test, fuzzing))]
pub(super) fn asked_for(classes: &Classes, method: &Method, path: &str, body: &[u8]) -> Result<Classes, StatusCode> {
    let place = Place::of(path).ok_or(StatusCode::NOT_FOUND)?;
    if matches!(*method, Method::GET | Method::HEAD) || !place.methods().split(", ").any(|it| it == method.as_str()) {
        return Err(StatusCode::METHOD_NOT_ALLOWED);
    }
    let patch = if *method == Method::DELETE { Ok(Map::new()) } else { object(body) };
    let classes = patch.and_then(|patch| changed(classes, method, &place, &patch));
    classes.map_err(|problem| {
        let status = problem.status;
        assert_eq!(problem.response().status(), status);
        status
    })
}

/// Answers a request below `/api/`.
pub(super) async fn answer(state: &Arc<ServerState>, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let (parts, body) = request.into_parts();
    let Some(place) = Place::of(parts.uri.path()) else {
        let message = "there is no such thing here; /api/schema says what there is";
        return Problem::new(StatusCode::NOT_FOUND, message).response();
    };
    if !place.methods().split(", ").any(|method| method == parts.method.as_str()) {
        let message = format!("{} takes {}", parts.uri.path(), place.methods());
        let mut response = Problem::new(StatusCode::METHOD_NOT_ALLOWED, message).response();
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(place.methods()));
        return response;
    }
    let answered = match parts.method {
        Method::GET | Method::HEAD => show(state, &place, parts.uri.query()),
        _ => change(state, place, &parts, body).await,
    };
    answered.unwrap_or_else(Problem::response)
}

fn show(state: &ServerState, place: &Place, query: Option<&str>) -> Done<Response<Full<Bytes>>> {
    let snapshot = state.snapshot.load_full();
    let value = match place {
        Place::Schema => {
            let mut response = Response::new(Full::from(SCHEMA));
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            return Ok(response);
        }
        Place::Live => {
            let after_s = query.and_then(|query| query.strip_prefix("after=")?.parse().ok());
            return Ok(live::answer(state, after_s.unwrap_or_default()));
        }
        Place::Upstreams => servers::all(&snapshot),
        Place::Server(upstream, server) => servers::named(&snapshot, upstream, server).ok_or_else(no_server)?,
        Place::Certificates => certificates::all(&snapshot),
        Place::Cache => stored::counts(&snapshot.shared_cache),
        Place::Classes => all_classes(&snapshot),
        Place::Class(name) => {
            let at = find(&snapshot.classes, name)?;
            one_class(&snapshot, &snapshot.admission.stats().classes, at)
        }
        Place::Admission => all_admission(&snapshot),
    };
    Ok(versioned(state, &snapshot, StatusCode::OK, &value))
}

async fn change(state: &Arc<ServerState>, place: Place, parts: &Parts, body: Incoming) -> Done<Response<Full<Bytes>>> {
    authorise(&state.snapshot.load(), &parts.headers)?;
    if place == Place::Cache {
        return purge(state, parts.uri.query()).await;
    }
    let patch = match parts.method {
        Method::DELETE => Map::new(),
        _ => read(&parts.headers, body).await?,
    };
    if let Place::Server(upstream, server) = &place {
        return change_server(state, upstream, server, &patch);
    }
    let (method, headers) = (parts.method.clone(), parts.headers.clone());
    let state = state.clone();
    // The change reads files and may wait for another change, so it runs on a thread that may block.
    let changed = tokio::task::spawn_blocking(move || carry_out(&state, &method, &place, &headers, &patch)).await;
    changed
        .unwrap_or_else(|_| Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the change broke off: see the log")))
}

/// Changes a server. No version is asked for: what is named is set, and the rest stays.
fn change_server(
    state: &ServerState,
    upstream: &str,
    server: &str,
    patch: &Map<String, Value>,
) -> Done<Response<Full<Bytes>>> {
    let change = servers::change(patch)?;
    let snapshot = state.snapshot.load_full();
    if !snapshot.upstreams.change(upstream, server, change) {
        return Err(no_server());
    }
    let change = Value::Object(patch.clone());
    tracing::info!(upstream, server, %change, "server changed at the admin address");
    let value = servers::named(&snapshot, upstream, server).ok_or_else(no_server)?;
    Ok(versioned(state, &snapshot, StatusCode::OK, &value))
}

fn no_server() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "there is no such server; /api/upstreams has their names")
}

/// Gives up stored responses.
async fn purge(state: &Arc<ServerState>, query: Option<&str>) -> Done<Response<Full<Bytes>>> {
    let purge = stored::asked(query).map_err(|message| Problem::new(StatusCode::BAD_REQUEST, message))?;
    let shared = state.snapshot.load().shared_cache.clone();
    tracing::info!(?purge, "stored responses purged at the admin address");
    // It looks at each stored response.
    let purged = tokio::task::spawn_blocking(move || shared.store.purge(&purge)).await.unwrap_or_default();
    Ok(json_response(StatusCode::OK, &json!({ "purged": purged })))
}

/// Carries out a change. Blocks.
fn carry_out(
    state: &ServerState,
    method: &Method,
    place: &Place,
    headers: &HeaderMap,
    patch: &Map<String, Value>,
) -> Done<Response<Full<Bytes>>> {
    let mut status = StatusCode::OK;
    let snapshot = state.change_classes::<Problem>(|snapshot| {
        let creates = creates(&snapshot.classes, method, place);
        expect(state, snapshot, headers, creates)?;
        if creates {
            status = StatusCode::CREATED;
        }
        changed(&snapshot.classes, method, place, patch)
    })?;
    let value = match place {
        Place::Class(name) if *method == Method::DELETE => {
            tracing::info!(class = %name, "class deleted at the admin address");
            let moved_to = &snapshot.classes.classes[snapshot.classes.default.index()].name;
            json!({ "deleted": name, "moved_to": moved_to, "persistent": false })
        }
        Place::Class(name) => {
            tracing::info!(class = %name, "class changed at the admin address");
            one_class(&snapshot, &snapshot.admission.stats().classes, find(&snapshot.classes, name)?)
        }
        _ => {
            tracing::info!("admission changed at the admin address");
            all_admission(&snapshot)
        }
    };
    Ok(versioned(state, &snapshot, status, &value))
}

/// Whether the request creates a class.
fn creates(classes: &Classes, method: &Method, place: &Place) -> bool {
    *method == Method::PUT && matches!(place, Place::Class(name) if find(classes, name).is_err())
}

/// The classes after the change.
fn changed(classes: &Classes, method: &Method, place: &Place, patch: &Map<String, Value>) -> Done<Classes> {
    let creates = creates(classes, method, place);
    let mut classes = classes.clone();
    match place {
        Place::Class(name) if *method == Method::DELETE => delete_class(&mut classes, name)?,
        Place::Class(name) if creates => create_class(&mut classes, name, patch)?,
        Place::Class(name) => {
            let from = (*method == Method::PUT).then(|| ClassConfig::new(name));
            edit_class(&mut classes, name, from, patch)?;
        }
        // A server is no part of the classes.
        Place::Server(..) => drop(servers::change(patch)?),
        _ => settings::change_admission(&mut classes.admission, patch)?,
    }
    Admission::check(&classes).map_err(|error| settings::contradiction(error, &classes))?;
    Ok(classes)
}

/// Checks that the client may change anything.
fn authorise(snapshot: &ConfigSnapshot, headers: &HeaderMap) -> Done<()> {
    let forbidden = |message: &str| Err(Problem::new(StatusCode::FORBIDDEN, message));
    let Some(token) = &snapshot.admin_token else {
        return forbidden(
            "nothing can be changed here: set `admin_token` to a file that holds a token of at least 32 characters, and reload",
        );
    };
    // A page of another site can make a browser send requests, though without the token.
    if let Some(origin) = headers.get(header::ORIGIN) {
        let host = headers.get(header::HOST).map(HeaderValue::as_bytes);
        let origin = origin.as_bytes();
        let of = origin.strip_prefix(b"http://").or(origin.strip_prefix(b"https://"));
        if of.is_none() || of != host {
            return forbidden("the page that asks is not of this address (Origin)");
        }
    }
    let mut given = headers.get_all(header::AUTHORIZATION).iter();
    let authorised = match (given.next(), given.next()) {
        (Some(one), None) => bearer(one.as_bytes()).is_some_and(|given| token.is(given)),
        _ => false,
    };
    match authorised {
        true => Ok(()),
        false => Err(Problem::new(
            StatusCode::UNAUTHORIZED,
            "a change needs the token that `admin_token` names: Authorization: Bearer TOKEN",
        )),
    }
}

fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| rest.trim_ascii())
}

/// Reads the JSON object of a request's body.
async fn read(headers: &HeaderMap, body: Incoming) -> Done<Map<String, Value>> {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if essence != "application/json" && essence != MERGE_PATCH {
        let message = format!("send application/json or {MERGE_PATCH} (Content-Type)");
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    let collected = timeout(BODY_TIMEOUT, Limited::new(body, MAX_BODY_BYTES).collect()).await;
    let bytes = match collected {
        Ok(Ok(collected)) => collected.to_bytes(),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let message = format!("a body may have {MAX_BODY_BYTES} bytes at most");
            return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, message));
        }
        Ok(Err(error)) => return Err(Problem::new(StatusCode::BAD_REQUEST, format!("the body broke off: {error}"))),
        Err(_) => return Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "the body took too long")),
    };
    object(&bytes)
}

fn object(bytes: &[u8]) -> Done<Map<String, Value>> {
    match serde_json::from_slice(bytes) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(Problem::new(StatusCode::BAD_REQUEST, "the body must be a JSON object")),
        Err(error) => Err(Problem::new(StatusCode::BAD_REQUEST, format!("the body is not JSON: {error}"))),
    }
}

/// Checks that the request is based on the version in force.
fn expect(state: &ServerState, snapshot: &ConfigSnapshot, headers: &HeaderMap, creates: bool) -> Done<()> {
    let version = version(state, snapshot);
    let problem =
        |status, message: &str| Err(Problem { status, wrong: Wrong::new("", message), version: Some(version.clone()) });
    let tags = |name| {
        let values = headers.get_all(name).iter().flat_map(|value| value.as_bytes().split(|&byte| byte == b','));
        values.map(<[u8]>::trim_ascii)
    };
    // Weak and strong tags are equal in this comparison (RFC 9110, section 13.1.2).
    let is_seen = |tag: &[u8]| tag == b"*" || tag.strip_prefix(b"W/").unwrap_or(tag) == version.as_bytes();
    if !creates && tags(header::IF_NONE_MATCH).any(is_seen) {
        return problem(StatusCode::PRECONDITION_FAILED, "it is there already (If-None-Match)");
    }
    if creates && tags(header::IF_MATCH).any(|tag| tag == b"*") {
        return problem(StatusCode::PRECONDITION_FAILED, "it is not there (If-Match: *)");
    }
    if !headers.contains_key(header::IF_MATCH) {
        // A request that creates a class overwrites nothing.
        return match creates {
            true => Ok(()),
            false => problem(
                StatusCode::PRECONDITION_REQUIRED,
                "say which version you have seen: If-Match with the ETag of an answer, or If-Match: * for whichever",
            ),
        };
    }
    let matches = tags(header::IF_MATCH).any(|tag| tag == b"*" || tag == version.as_bytes());
    match matches {
        true => Ok(()),
        false => problem(
            StatusCode::PRECONDITION_FAILED,
            "somebody has changed the settings since you have seen them: look again (If-Match)",
        ),
    }
}

fn version(state: &ServerState, snapshot: &ConfigSnapshot) -> HeaderValue {
    // A restarted process begins a new count, so its start time is part of the version.
    let started = state.metrics.started.duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    HeaderValue::try_from(format!("\"{started:x}-{}\"", snapshot.version)).expect("hexadecimal and decimal digits")
}

fn find(classes: &Classes, name: &str) -> Done<usize> {
    let at = classes.classes.iter().position(|class| class.name == name);
    at.ok_or_else(|| Problem::new(StatusCode::NOT_FOUND, format!("there is no class {name:?}")))
}

fn create_class(classes: &mut Classes, name: &str, patch: &Map<String, Value>) -> Done<()> {
    let sound = name.len() <= MAX_NAME_BYTES
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.chars().all(|char| char.is_ascii_alphanumeric() || "-_.".contains(char));
    if !sound {
        let message =
            format!("must be at most {MAX_NAME_BYTES} letters, digits, and - _ . after the first one, not {name:?}");
        return Err(Wrong::new("name", message).into());
    }
    if classes.classes.len() >= MAX_CLASSES {
        return Err(Wrong::new("", format!("there may be {MAX_CLASSES} classes at most")).into());
    }
    classes.classes.push(ClassConfig::new(name));
    edit_class(classes, name, None, patch)
}

/// Changes a class, starting from `from` if given, else from its state in force.
fn edit_class(classes: &mut Classes, name: &str, from: Option<ClassConfig>, patch: &Map<String, Value>) -> Done<()> {
    let at = find(classes, name)?;
    let mut class = match from {
        // Settings that the API cannot change stay.
        Some(from) => {
            let before = &classes.classes[at];
            let mut class = ClassConfig { priority: before.priority, ..from };
            class.refusal.page.clone_from(&before.refusal.page);
            class
        }
        None => classes.classes[at].clone(),
    };
    let position = settings::change_class(&mut class, patch)?;
    classes.classes[at] = class;
    if let Some(to) = position {
        if to >= classes.classes.len() {
            let last = classes.classes.len() - 1;
            return Err(Wrong::new("position", format!("must be from 0 to {last}, not {to}")).into());
        }
        let class = classes.classes.remove(at);
        classes.classes.insert(to, class);
        renumber(classes, |old| match old {
            old if old == at => to,
            old => {
                let without = if old > at { old - 1 } else { old };
                if without >= to { without + 1 } else { without }
            }
        });
    }
    Ok(())
}

fn delete_class(classes: &mut Classes, name: &str) -> Done<()> {
    let at = find(classes, name)?;
    let default = classes.default.index();
    if at == default {
        let message = format!("{name} is the class of requests that no rule matches, and cannot be deleted");
        return Err(Problem::new(StatusCode::CONFLICT, message));
    }
    classes.classes.remove(at);
    let below = |old: usize| if old > at { old - 1 } else { old };
    renumber(classes, |old| if old == at { below(default) } else { below(old) });
    Ok(())
}

/// Adapts references to classes after their numbers have changed.
fn renumber(classes: &mut Classes, now: impl Fn(usize) -> usize) {
    let now = |class: &mut ClassId| *class = ClassId(now(class.index()) as u16);
    now(&mut classes.default);
    classes.rules.iter_mut().for_each(|rule| now(&mut rule.class));
}

fn all_classes(snapshot: &ConfigSnapshot) -> Value {
    let stats = snapshot.admission.stats().classes;
    let classes = (0..snapshot.classes.classes.len()).map(|at| one_class(snapshot, &stats, at)).collect::<Vec<_>>();
    json!({
        "version": snapshot.version,
        "persistent": !snapshot.classes_changed,
        "default": snapshot.classes.classes[snapshot.classes.default.index()].name,
        "classes": classes,
    })
}

fn one_class(snapshot: &ConfigSnapshot, stats: &[(Arc<str>, ClassStats)], at: usize) -> Value {
    let config = &snapshot.classes.classes[at];
    let counters = snapshot.class_metrics.of(ClassId(at as u16));
    let totals = counters.totals();
    let stats = stats.iter().find(|(name, _)| **name == *config.name).map(|(_, stats)| *stats).unwrap_or_default();
    let responses: Map<_, _> = (1..).zip(totals.responses).map(|(n, count)| (format!("{n}xx"), count.into())).collect();
    let time = |times: &TimesTotal| json!({ "count": times.count(), "mean_s": times.mean_s() });
    let goal = |goal: Goal| {
        let Goal { kind, target, value, met } = goal;
        json!({ "objective": kind.to_string(), "target": target, "value": value, "met": met })
    };
    json!({
        "name": config.name,
        "position": at,
        "is_default": snapshot.classes.default.index() == at,
        "persistent": !snapshot.classes_changed,
        "settings": settings::class(config),
        "stats": {
            "waiting": stats.waiting,
            "running": stats.running,
            "arrived": stats.arrived,
            "started": stats.started,
            "finished": stats.finished,
            "refused": {
                "queue_full": stats.refused_full,
                "waited_too_long": stats.refused_waited,
                "too_late": stats.refused_late,
            },
            "abandoned": { "waiting": stats.gone_waiting, "running": stats.gone_running },
            "responses": responses,
            "responses_incomplete": totals.incomplete,
            "waiting_time": time(&totals.waiting),
            "service_time": time(&totals.service),
            "system_time": time(&totals.system),
        },
        "objectives": counters.goals().into_iter().map(goal).collect::<Vec<_>>(),
    })
}

fn all_admission(snapshot: &ConfigSnapshot) -> Value {
    let stats = snapshot.admission.stats();
    let resource = |it: &ResourceStats| {
        let mean_service_s = it.mean_service.map(|mean| mean.as_secs_f64());
        json!({
            "name": &*it.name,
            "window": it.window,
            "window_changes": it.window_changes,
            "running": it.running,
            "mean_service_s": mean_service_s,
        })
    };
    let leases = stats.leases.as_ref().map(|it| {
        let cell = |(of, slots, window): &(String, u32, u32)| json!({ "of": of, "slots": slots, "window": window });
        json!({
            "gateways": it.gateways,
            "in_force": it.leased,
            "leads": it.leads,
            "cells": it.cells.iter().map(cell).collect::<Vec<_>>(),
        })
    });
    json!({
        "version": snapshot.version,
        "persistent": !snapshot.classes_changed,
        "settings": settings::admission(&snapshot.classes.admission),
        "stats": {
            "waiting": stats.classes.iter().map(|(_, it)| it.waiting).sum::<usize>(),
            "running": stats.classes.iter().map(|(_, it)| it.running).sum::<usize>(),
            "resources": stats.resources.iter().map(resource).collect::<Vec<_>>(),
            "leases": leases,
        },
    })
}

fn versioned(
    state: &ServerState,
    snapshot: &ConfigSnapshot,
    status: StatusCode,
    value: &Value,
) -> Response<Full<Bytes>> {
    let mut response = json_response(status, value);
    response.headers_mut().insert(header::ETAG, version(state, snapshot));
    response
}

fn json_response(status: StatusCode, value: &Value) -> Response<Full<Bytes>> {
    let mut text = format!("{value:#}");
    text.push('\n');
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Rule;

    fn classes(names: &[&str], default: u16, rules: &[u16]) -> Classes {
        let rule = |&class: &u16| Rule {
            name: format!("rule of {class}"),
            class: ClassId(class),
            resource: None,
            conditions: Vec::new(),
            raises_session: false,
        };
        Classes {
            classes: names.iter().map(|name| ClassConfig::new(*name)).collect(),
            default: ClassId(default),
            rules: rules.iter().map(rule).collect(),
            ..Classes::one()
        }
    }

    /// The classes' names in order, the default's name, and those of the rules' classes.
    fn told(classes: &Classes) -> (String, String, String) {
        let name = |class: ClassId| classes.classes[class.index()].name.clone();
        let all = classes.classes.iter().map(|class| class.name.as_str()).collect();
        (all, name(classes.default), classes.rules.iter().map(|rule| name(rule.class)).collect())
    }

    #[test]
    fn rules_and_default_follow_their_classes_wherever_those_go() {
        for from in 0..4 {
            for to in 0..4 {
                let mut classes = classes(&["a", "b", "c", "d"], 2, &[3, 0, 1, 2]);
                let patch = json!({ "position": to });
                let name = ["a", "b", "c", "d"][from];
                assert!(edit_class(&mut classes, name, None, patch.as_object().unwrap()).is_ok());
                let (all, default, rules) = told(&classes);
                assert_eq!(all.find(name), Some(to), "{from} to {to}: {all}");
                assert_eq!((default.as_str(), rules.as_str()), ("c", "dabc"), "{from} to {to}");
                assert_eq!(all.replace(name, ""), "abcd".replace(name, ""));
            }
        }
    }

    #[test]
    fn rules_of_a_class_that_is_gone_lead_to_the_default() {
        let mut classes = classes(&["a", "b", "c", "d"], 2, &[3, 0, 1, 2]);
        assert!(delete_class(&mut classes, "a").is_ok());
        assert_eq!(told(&classes), ("bcd".into(), "c".into(), "dcbc".into()));
        assert!(delete_class(&mut classes, "d").is_ok());
        assert_eq!(told(&classes), ("bc".into(), "c".into(), "ccbc".into()));
        let Err(problem) = delete_class(&mut classes, "c") else { panic!("the default is gone") };
        assert_eq!(problem.status, StatusCode::CONFLICT);
    }

    #[test]
    fn a_new_class_is_the_last_unless_it_is_given_a_place() {
        let mut all = classes(&["a", "b"], 1, &[0]);
        assert!(create_class(&mut all, "c", &Map::new()).is_ok());
        assert!(create_class(&mut all, "d", json!({ "position": 0, "weight": 7 }).as_object().unwrap()).is_ok());
        assert_eq!(told(&all), ("dabc".into(), "b".into(), "a".into()));
        assert_eq!(all.classes[0].given.weight, 7);
        for bad in ["", "-a", "a b", "\u{e4}", "a/b", &"a".repeat(65)] {
            assert!(create_class(&mut all, bad, &Map::new()).is_err(), "{bad}");
        }
        let patch = json!({ "position": 4 });
        let Err(problem) = edit_class(&mut all, "a", None, patch.as_object().unwrap()) else {
            panic!("beyond the end")
        };
        assert_eq!(problem.wrong.field, "position");
    }

    #[test]
    fn a_path_means_one_thing() {
        assert_eq!(Place::of("/api/classes"), Some(Place::Classes));
        assert_eq!(Place::of("/api/classes/a%20b"), Some(Place::Class("a b".into())));
        let socket = Place::Server("app".into(), "unix:/run/a.sock".into());
        assert_eq!(Place::of("/api/upstreams/app/unix:%2Frun%2Fa.sock"), Some(socket));
        for nothing in [
            "/api",
            "/api/",
            "/api/classes/",
            "/api/classes/a/b",
            "/api/classes/%ff",
            "/apis",
            "/api/x",
            "/api/upstreams/a",
            "/api/upstreams/a/",
            "/api/upstreams//b",
        ] {
            assert_eq!(Place::of(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn the_schema_tells_of_every_place_method_and_field() {
        let schema: Value = serde_json::from_str(SCHEMA).expect("it is JSON");
        assert_eq!(schema["openapi"], "3.1.0");
        for (path, place) in [
            ("/api/schema", Place::Schema),
            ("/api/classes", Place::Classes),
            ("/api/classes/{name}", Place::Class(String::new())),
            ("/api/admission", Place::Admission),
            ("/api/upstreams", Place::Upstreams),
            ("/api/upstreams/{upstream}/{server}", Place::Server(String::new(), String::new())),
            ("/api/certificates", Place::Certificates),
            ("/api/cache", Place::Cache),
        ] {
            let told = schema["paths"][path].as_object().unwrap_or_else(|| panic!("{path} is missing"));
            let mut told: Vec<String> =
                told.keys().filter(|key| *key != "parameters").map(|key| key.to_ascii_uppercase()).collect();
            let mut takes: Vec<String> =
                place.methods().split(", ").filter(|method| *method != "HEAD").map(str::to_owned).collect();
            told.sort();
            takes.sort();
            assert_eq!(told, takes, "{path}");
        }
        let fields = schema["components"]["schemas"]["ClassSettings"]["properties"].as_object().expect("properties");
        let mut told: Vec<_> = fields.keys().map(String::as_str).collect();
        let mut known = settings::CLASS_FIELDS.to_vec();
        told.sort_unstable();
        known.sort_unstable();
        assert_eq!(told, known);
        let shown = settings::admission(&Classes::one().admission);
        let told = schema["components"]["schemas"]["AdmissionSettings"]["properties"].as_object().expect("properties");
        let names = |map: &Map<String, Value>| map.keys().cloned().collect::<std::collections::BTreeSet<_>>();
        assert_eq!(shown.as_object().map(names), Some(names(told)));
    }
}
