"use strict";

// Classes, certificates, and changes. live.js comes first.

const REFRESH_MS = 1000;
const NEW = " new class";
const ADMISSION = " admission";
const at = byId;
let before = null;
let latest = null;
// What is being edited, as it was when it was opened, and its version: a change by somebody else meanwhile is not overwritten.
let opened = { what: null, settings: null, etag: null };

const element = made;
const time = duration;

function rate(now, old, elapsed) {
  return old === undefined || !(elapsed > 0) ? "-" : (Math.max(0, now - old) / elapsed).toFixed(1);
}

// The mean since the last look, from means since the start.
function lately(now, old) {
  if (!old || now.count <= old.count) return null;
  return Math.max(0, (now.mean_s * now.count - (old.mean_s || 0) * old.count) / (now.count - old.count));
}

function total(counts) {
  return Object.values(counts).reduce((sum, count) => sum + count, 0);
}

function goal(it) {
  const show = (value) => (value === null ? "-" : it.objective === "error_rate" ? (value * 100).toFixed(2) + " %" : time(value));
  const state = it.met === null ? "quiet" : it.met ? "met" : "missed";
  return element("li", `${it.objective} ${show(it.value)} (promised ${show(it.target)})`, state);
}

// Whether classes have delays in ratios; otherwise weights matter, if anything does.
function sharesDelay() {
  return ["ratio", "wtp", "pwad", "mdp"].includes(latest.admission.value.settings.policy);
}

function row(it, old, elapsed) {
  const made = element("tr");
  const name = element("td", it.name);
  if (it.is_default) name.append(element("span", " default", "quiet"));
  const now = it.stats;
  const then = old && old.stats;
  const limit = it.settings.slots === null ? "" : ` of ${it.settings.slots}`;
  const goals = element("ul");
  goals.append(...it.objectives.map(goal));
  const objectives = element("td");
  objectives.append(goals);
  const edit = element("button", "Edit");
  edit.type = "button";
  edit.setAttribute("aria-label", `Edit ${it.name}`);
  edit.addEventListener("click", () => {
    open(it.name);
    at("settings").focus();
  });
  const change = element("td");
  change.append(edit);
  made.append(
    name,
    element("td", sharesDelay() ? it.settings.delay_ratio : it.settings.weight),
    element("td", now.running + limit),
    element("td", `${now.waiting} of ${it.settings.queue}`),
    element("td", rate(total(now.responses), then && total(then.responses), elapsed)),
    element("td", rate(total(now.refused), then && total(then.refused), elapsed)),
    element("td", time(lately(now.waiting_time, then && then.waiting_time))),
    element("td", time(lately(now.system_time, then && then.system_time))),
    objectives,
    change,
  );
  return made;
}

function showAdmission(value) {
  const entries = [
    ["Requests wait for slots", value.settings.enabled ? "yes" : "no"],
    ["Policy", value.settings.policy],
    ["Windows are adjusted by", value.settings.adjustment.method],
    ["Requests at the site", `${value.stats.running} of ${value.settings.total === null ? "any number" : value.settings.total}`],
  ];
  for (const it of value.stats.resources) {
    const window = it.window === null ? "no window of its own" : `of ${it.window}`;
    const adjusted = it.window_changes ? `, adjusted ${it.window_changes} times` : "";
    entries.push([`Resource ${it.name}`, `${it.running} ${window}${adjusted}, service ${time(it.mean_service_s)}`]);
  }
  const leases = value.stats.leases;
  if (leases) {
    const slots = leases.cells.map((it) => `${it.slots} of ${it.window} (${it.of})`).join(", ");
    const why = leases.in_force ? "by the store" : "the store does not answer: an equal part";
    const leads = leases.leads ? "; this one adjusts the windows" : "";
    entries.push([`Slots of this gateway, of ${leases.gateways}`, `${slots}, ${why}${leads}`]);
  }
  at("admission").replaceChildren(...entries.flatMap(([term, text]) => [element("dt", term), element("dd", text)]));
}

function date(seconds) {
  return seconds ? new Date(seconds * 1000).toLocaleString() : "-";
}

function certificate(it) {
  const made = element("tr");
  const soon = it.valid_until_s === null || it.valid_until_s < Date.now() / 1000 + 7 * 86400;
  const failed = it.failures > 1 ? ` (${it.failures} attempts in a row)` : "";
  made.append(
    element("td", it.names.join(", ") || it.site),
    element("td", it.from === "acme" ? "authority" : "files"),
    element("td", it.valid_until_s === null ? "none yet" : date(it.valid_until_s), soon ? "missed" : ""),
    element("td", it.from === "acme" ? date(it.next_order_s) : "-"),
    element("td", it.last_error ? it.last_error + failed : "-", it.last_error ? "missed" : "quiet"),
  );
  return made;
}

async function get(path) {
  const response = await fetch(path);
  if (!response.ok) throw new Error(`${path}: ${response.status}`);
  return { value: await response.json(), etag: response.headers.get("ETag") };
}

function choices() {
  const names = latest.classes.value.classes.map((it) => it.name);
  const wanted = [...names, NEW, ADMISSION];
  const list = at("what");
  if (wanted.join("\n") === [...list.options].map((it) => it.value).join("\n")) return;
  const chosen = list.value;
  list.replaceChildren(...wanted.map((it) => {
    const option = element("option", it.trim());
    option.value = it;
    return option;
  }));
  list.value = wanted.includes(chosen) ? chosen : names[0];
  if (list.value !== opened.what) open(list.value);
}

function open(what) {
  at("what").value = what;
  at("naming").hidden = what !== NEW;
  at("delete").hidden = what === NEW || what === ADMISSION;
  const known = what === ADMISSION
    ? latest.admission
    : { value: latest.classes.value.classes.find((it) => it.name === what), etag: latest.classes.etag };
  const settings = what === NEW ? { weight: 1, slots: null, queue: 1000, max_wait_s: null } : { ...known.value.settings };
  if (what !== NEW && what !== ADMISSION) settings.position = known.value.position;
  opened = { what, settings, etag: known.etag };
  at("settings").value = JSON.stringify(settings, null, 2);
  answer("", false);
}

function answer(text, isError) {
  at("answer").textContent = text;
  at("answer").className = isError ? "error" : "";
}

async function send(method, path, settings, precondition) {
  const headers = { Authorization: `Bearer ${at("token").value}`, ...precondition };
  if (settings) headers["Content-Type"] = "application/merge-patch+json";
  const response = await fetch(path, { method, headers, body: settings && JSON.stringify(settings) });
  const value = await response.json();
  if (response.ok) return;
  const { message, field } = value.error;
  throw new Error(field ? `${field}: ${message}` : message);
}

// Those that were changed in the text: others may have changed what this one has not touched.
function changed(now, old) {
  const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);
  return Object.fromEntries(Object.entries(now).filter(([name, value]) => !same(value, old[name])));
}

async function save(event) {
  event.preventDefault();
  const { what, settings, etag } = opened;
  try {
    const now = JSON.parse(at("settings").value);
    if (what === NEW) {
      const name = at("name").value;
      if (!name) throw new Error("a new class needs a name");
      await send("PUT", `/api/classes/${encodeURIComponent(name)}`, now, { "If-None-Match": "*" });
      await refresh();
      open(name);
    } else {
      const path = what === ADMISSION ? "/api/admission" : `/api/classes/${encodeURIComponent(what)}`;
      await send("PATCH", path, changed(now, settings), { "If-Match": etag });
      await refresh();
      open(what);
    }
    answer("Saved, until the next reload.", false);
  } catch (error) {
    answer(error.message, true);
  }
}

async function remove() {
  const { what, etag } = opened;
  if (!confirm(`Delete the class ${what}? Its requests go to the default class.`)) return;
  try {
    await send("DELETE", `/api/classes/${encodeURIComponent(what)}`, undefined, { "If-Match": etag });
    await refresh();
    answer("Deleted, until the next reload.", false);
  } catch (error) {
    answer(error.message, true);
  }
}

async function changeServer(upstream, server, change) {
  try {
    await send("PATCH", `/api/upstreams/${encodeURIComponent(upstream)}/${encodeURIComponent(server)}`, change, {});
    answer(`${server}: ${change.state}, until the next reload.`, false);
  } catch (error) {
    answer(error.message, true);
    at("token").focus();
  }
  await refresh();
}

async function refresh() {
  try {
    const wanted = ["classes", "admission", "certificates", "upstreams", `live?after=${liveSince()}`];
    const [classes, admission, tls, upstreams, now] = await Promise.all(wanted.map((it) => get(`/api/${it}`)));
    latest = { classes, admission, tls, at: performance.now() };
    showUpstreams(upstreams.value);
    showLive(now.value);
  } catch (error) {
    at("state").textContent = `No answer: ${error.message}`;
    at("state").className = "error";
    return;
  }
  const elapsed = before && (latest.at - before.at) / 1000;
  const old = (name) => before && before.classes.value.classes.find((it) => it.name === name);
  at("classes").replaceChildren(...latest.classes.value.classes.map((it) => row(it, old(it.name) || undefined, elapsed)));
  at("share").textContent = sharesDelay() ? "Delay ratio" : "Weight";
  showAdmission(latest.admission.value);
  const certificates = latest.tls.value.certificates;
  at("tls").hidden = certificates.length === 0;
  at("certificates").replaceChildren(...certificates.map(certificate));
  choices();
  at("temporary").hidden = latest.classes.value.persistent;
  at("state").textContent = `Serpent ${live.value.version}, ${new Date().toLocaleTimeString()}`;
  at("state").className = "quiet";
  before = latest;
}

async function keep() {
  // A row that is rebuilt loses the keyboard's place.
  if (!["classes", "servers"].some((it) => at(it).contains(document.activeElement))) await refresh();
  setTimeout(keep, REFRESH_MS);
}

at("change").addEventListener("submit", save);
at("delete").addEventListener("click", remove);
at("what").addEventListener("change", () => open(at("what").value));
keep();
