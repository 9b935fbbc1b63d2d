//! The API of the admin address. The own machine may read without a password; changes need the token.
//!
//! Every change is made like a reload: a whole new set of classes is made, checked and swapped in, or nothing
//! changes. A change names the version that it is based on (`If-Match`), so of two concurrent changes the
//! second is refused. Changes last until the next reload. Each is kept with what takes it back.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header, request::Parts};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use recent::changes::back;
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use super::{
    access::{self, Peer},
    certificates,
    edits::{create_class, delete_class, edit_class, find},
    history::{self, Recorded, Target, Undo},
    live, maintenance,
    place::Place,
    problem::{Done, Problem, json_response},
    servers,
    settings::{self, Wrong},
    shown::{all_admission, all_classes, changes, one_class, version},
    stored,
};
use crate::{
    admission::Admission,
    cluster, common,
    config::{ClassConfig, Classes},
    state::{ConfigSnapshot, ServerState},
};

/// Largest body of a request: settings of a class are a few hundred bytes.
const MAX_BODY_BYTES: usize = 64 * 1024;
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
const SCHEMA: &str = include_str!("schema.json");
const MERGE_PATCH: &str = "application/merge-patch+json";

/// A change of classes as requested, for the fuzz target. An error is the status of the refusal.
#[cfg(any(test, fuzzing))]
pub(super) fn asked_for(classes: &Classes, method: &Method, path: &str, body: &[u8]) -> Result<Classes, StatusCode> {
    let place = Place::of(path).ok_or(StatusCode::NOT_FOUND)?;
    if matches!(*method, Method::GET | Method::HEAD) || !place.methods().split(", ").any(|it| it == method.as_str()) {
        return Err(StatusCode::METHOD_NOT_ALLOWED);
    }
    if let Place::Undo(_) = place {
        return Err(StatusCode::NOT_FOUND);
    }
    let patch = if *method == Method::DELETE { Ok(Map::new()) } else { object(body) };
    let classes = patch.and_then(|patch| changed(classes, method, &place, &patch));
    classes.map_err(|problem| {
        let status = problem.status;
        assert_eq!(problem.response().status(), status);
        status
    })
}

/// Answers a request below `/api/`, other than for events.
pub(super) async fn answer(state: &Arc<ServerState>, peer: Peer, request: Request<Incoming>) -> Response<Full<Bytes>> {
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
        Method::GET | Method::HEAD if place == Place::Schema => Ok(schema()),
        Method::GET | Method::HEAD => match access::may_read(&state.snapshot.load(), peer, &parts.headers) {
            Err(problem) => Err(problem),
            Ok(()) if place == Place::Responses => {
                let state = state.clone();
                // A megabyte of text.
                let responses = tokio::task::spawn_blocking(move || live::responses(&state)).await;
                responses.map_err(|_| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "it broke off: see the log"))
            }
            Ok(()) => show(state, &place, parts.uri.query()),
        },
        _ => change(state, place, &parts, body).await,
    };
    answered.unwrap_or_else(Problem::response)
}

fn show(state: &ServerState, place: &Place, query: Option<&str>) -> Done<Response<Full<Bytes>>> {
    let snapshot = state.snapshot.load_full();
    let value = match place {
        Place::Live | Place::Events => return Ok(live::answer(state, live::after_s(query))),
        Place::Changes => json!({ "changes": changes(state) }),
        Place::Upstreams => servers::all(&snapshot),
        Place::Server(upstream, server) => servers::named(&snapshot, upstream, server).ok_or_else(no_server)?,
        Place::Certificates => certificates::all(&snapshot),
        Place::Cluster => return Ok(json_response(StatusCode::OK, &cluster::site(state))),
        Place::Maintenance => maintenance::all(&snapshot),
        Place::Site(site) => maintenance::named(&snapshot, site).ok_or_else(no_site)?,
        Place::Cache => stored::counts(&snapshot.shared_cache),
        Place::Classes => all_classes(&snapshot),
        Place::Class(name) => {
            let at = find(&snapshot.classes, name)?;
            one_class(&snapshot, &snapshot.admission.stats().classes, at)
        }
        Place::Admission => all_admission(&snapshot),
        Place::Schema | Place::Responses | Place::Undo(_) => unreachable!("answered before"),
    };
    Ok(versioned(state, &snapshot, StatusCode::OK, &value))
}

fn schema() -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(SCHEMA));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

async fn change(state: &Arc<ServerState>, place: Place, parts: &Parts, body: Incoming) -> Done<Response<Full<Bytes>>> {
    access::may_change(&state.snapshot.load(), &parts.headers)?;
    if place == Place::Cache {
        return purge(state, parts.uri.query()).await;
    }
    let is_preview = parts.uri.query().is_some_and(|query| query.split('&').any(|it| it == "preview"));
    let patch = match (&place, &parts.method) {
        (Place::Undo(_), _) | (_, &Method::DELETE) => Map::new(),
        _ => read(&parts.headers, body).await?,
    };
    if let Place::Server(upstream, server) = &place {
        return change_server(state, upstream, server, &patch, is_preview);
    }
    if let Place::Site(site) = &place {
        return close_site(state, site, &patch, is_preview);
    }
    let (method, headers) = (parts.method.clone(), parts.headers.clone());
    let state = state.clone();
    // The change reads files and may wait for another change, so it runs on a thread that may block.
    let changed = tokio::task::spawn_blocking(move || match place {
        Place::Undo(id) => undo(&state, id, is_preview),
        _ => carry_out(&state, &method, &place, &headers, &patch, is_preview),
    });
    changed
        .await
        .unwrap_or_else(|_| Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the change broke off: see the log")))
}

/// The answer to a preview: the differences that a change would make.
fn preview(state: &ServerState, snapshot: &ConfigSnapshot, recorded: Option<Recorded>) -> Response<Full<Bytes>> {
    let (what, differences) = recorded.map(|it| (it.what, it.differences)).unwrap_or_default();
    let value = json!({ "preview": true, "what": what, "differences": differences });
    versioned(state, snapshot, StatusCode::OK, &value)
}

/// Keeps a change, for its undoing.
fn record(state: &ServerState, recorded: Option<Recorded>) {
    let Some(Recorded { what, differences, target }) = recorded else { return };
    let at_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    let undo = Undo { target, loads: state.metrics.reloads_ok.load(Relaxed) };
    state.changes.lock().record(at_s, what, differences, undo);
}

/// Changes a server. No version is asked for: what is named is set, and the rest stays.
fn change_server(
    state: &ServerState,
    upstream: &str,
    server: &str,
    patch: &Map<String, Value>,
    is_preview: bool,
) -> Done<Response<Full<Bytes>>> {
    let change = servers::change(patch)?;
    let snapshot = state.snapshot.load_full();
    let before = servers::given(&snapshot, upstream, server).ok_or_else(no_server)?;
    if is_preview {
        let after = servers::after(&before, patch);
        return Ok(preview(state, &snapshot, history::of_server(&before, &after, upstream, server)));
    }
    if !snapshot.upstreams.change(upstream, server, change) {
        return Err(no_server());
    }
    let after = servers::given(&snapshot, upstream, server).ok_or_else(no_server)?;
    record(state, history::of_server(&before, &after, upstream, server));
    let change = Value::Object(patch.clone());
    tracing::info!(upstream, server, %change, "server changed at the admin address");
    if let Some(cluster) = &state.cluster {
        // The other gateways of the site do the same. Settings that were changed before stay.
        let name = common::server(upstream, server);
        let before = cluster.values.lock().get(&name).and_then(|value| serde_json::from_str(value).ok());
        let mut all = before.unwrap_or_else(Map::new);
        all.extend(patch.clone());
        cluster.set(&name, Value::Object(all).to_string());
    }
    let value = servers::named(&snapshot, upstream, server).ok_or_else(no_server)?;
    Ok(versioned(state, &snapshot, StatusCode::OK, &value))
}

/// Takes a change back, if nothing has changed it since. Blocks.
fn undo(state: &ServerState, id: u64, is_preview: bool) -> Done<Response<Full<Bytes>>> {
    let change = state.changes.lock().get(id).cloned();
    let change = change.ok_or_else(|| {
        Problem::new(StatusCode::NOT_FOUND, format!("there is no change {id}; /api/changes has those that are kept"))
    })?;
    let refused = |message: String| Problem::new(StatusCode::CONFLICT, message);
    if change.undone {
        return Err(refused(format!("change {id} was taken back already")));
    }
    let patch = back(&change.differences);
    let answer = match &change.undo.target {
        Target::Server { upstream, server } => {
            let now = servers::given(&state.snapshot.load(), upstream, server).ok_or_else(no_server)?;
            history::is_still(&change, &now)?;
            Some(change_server(state, upstream, server, &patch, is_preview)?)
        }
        Target::Site(site) => {
            let now = maintenance::given(&state.snapshot.load(), site).ok_or_else(no_site)?;
            history::is_still(&change, &now)?;
            Some(close_site(state, site, &patch, is_preview)?)
        }
        _ => None,
    };
    if let Some(answer) = answer {
        if !is_preview {
            state.changes.lock().mark_undone(id);
        }
        return Ok(answer);
    }
    let class = change.undo.target.class();
    let mut recorded = None;
    let mut undone = |snapshot: &ConfigSnapshot| {
        if change.undo.loads != state.metrics.reloads_ok.load(Relaxed) {
            return Err(refused("the configuration was loaded since, which took the change back".to_owned()));
        }
        let after = history::undone(&snapshot.classes, &change)?;
        recorded = history::of_classes(&snapshot.classes, &after, class);
        Ok(after)
    };
    if is_preview {
        let snapshot = state.snapshot.load_full();
        undone(&snapshot)?;
        return Ok(preview(state, &snapshot, recorded));
    }
    let snapshot = state.change_classes::<Problem>(undone)?;
    tracing::info!(what = change.what, "change taken back at the admin address");
    state.changes.lock().mark_undone(id);
    record(state, recorded);
    Ok(versioned(state, &snapshot, StatusCode::OK, &json!({ "undone": id, "what": change.what })))
}

/// Closes a site or opens it again. No version is asked for.
fn close_site(
    state: &ServerState,
    site: &str,
    patch: &Map<String, Value>,
    is_preview: bool,
) -> Done<Response<Full<Bytes>>> {
    let snapshot = state.snapshot.load_full();
    let turned = maintenance::read(patch)?;
    let before = maintenance::given(&snapshot, site).ok_or_else(no_site)?;
    let after = turned.map_or_else(|| before.clone(), maintenance::switched);
    let recorded = history::of_site(&before, &after, site);
    if is_preview {
        return Ok(preview(state, &snapshot, recorded));
    }
    if let Some(turned) = turned {
        maintenance::turn(&snapshot, state.cluster.as_ref(), site, turned);
    }
    record(state, recorded);
    let value = maintenance::named(&snapshot, site).ok_or_else(no_site)?;
    Ok(versioned(state, &snapshot, StatusCode::OK, &value))
}

fn no_site() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "no such site has `maintenance`; /api/maintenance has their names")
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
    is_preview: bool,
) -> Done<Response<Full<Bytes>>> {
    let class = if let Place::Class(name) = place { Some(name.as_str()) } else { None };
    let (mut status, mut recorded) = (StatusCode::OK, None);
    let mut change = |snapshot: &ConfigSnapshot| {
        let creates = creates(&snapshot.classes, method, place);
        expect(state, snapshot, headers, creates)?;
        if creates {
            status = StatusCode::CREATED;
        }
        let after = changed(&snapshot.classes, method, place, patch)?;
        recorded = history::of_classes(&snapshot.classes, &after, class);
        Ok(after)
    };
    if is_preview {
        let snapshot = state.snapshot.load_full();
        change(&snapshot)?;
        return Ok(preview(state, &snapshot, recorded));
    }
    let snapshot = state.change_classes::<Problem>(change)?;
    record(state, recorded);
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
        Place::Site(_) => drop(maintenance::read(patch)?),
        _ => settings::change_admission(&mut classes.admission, patch)?,
    }
    Admission::check(&classes).map_err(|error| settings::contradiction(error, &classes))?;
    Ok(classes)
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

#[cfg(test)]
mod tests {
    use super::*;

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
            ("/api/live", Place::Live),
            ("/api/events", Place::Events),
            ("/api/changes", Place::Changes),
            ("/api/changes/{id}/undo", Place::Undo(0)),
            ("/api/responses", Place::Responses),
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
