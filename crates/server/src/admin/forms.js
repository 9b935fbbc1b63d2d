"use strict";

// Changes by forms: what would change is shown first, then applied, and can be taken back. live.js comes first.

const TIME = { unit: "s", step: "any" };
const NO_LIMIT = { none: "no limit" };
const ORDERS = ["adaptive", "fifo", "shortest", "lifo-under-overload", "fair"];
const POLICIES = ["strict", "weighted", "shared", "fixed", "edf", "wtp", "pwad", "mdp", "ratio"];

// The settings by form. `none` says what an empty field means; a field without it must not be empty.
const CLASS = [
  { path: "weight", label: "Weight", help: "its part beside the weights of the others" },
  { path: "delay_ratio", label: "Delay ratio", help: "its delays beside those of the others" },
  { path: "position", label: "Place", help: "0 is the most important" },
  { path: "slots", label: "Most requests at the site", ...NO_LIMIT },
  { path: "reserved", label: "Reserved slots", help: "never lent to others" },
  { path: "queue", label: "Most waiting requests" },
  { path: "max_wait_s", label: "Longest wait", ...TIME, ...NO_LIMIT },
  { path: "deadline_s", label: "Deadline", ...TIME, none: "none" },
  { path: "order", label: "Who of it goes first", choices: ORDERS },
  { path: "overload_s", label: "Wait that means overload", ...TIME, none: "by the order", help: "only of lifo-under-overload" },
  { path: "objective.mean_s", label: "Objective: mean time", ...TIME, none: "none" },
  { path: "objective.percentile.percent", label: "Objective: percentile", unit: "%", step: "any", none: "none" },
  { path: "objective.percentile.s", label: "Objective: time of the percentile", ...TIME, none: "none" },
  { path: "objective.error_rate", label: "Objective: failed part", step: "any", none: "none", help: "from 0 to 1" },
  { path: "objective.window_s", label: "Objective: looked at over", ...TIME },
  { path: "refusal.status", label: "Refused with status" },
  { path: "refusal.retry_after_s", label: "Refused: try again after", ...TIME, none: "not said" },
];
const ADMISSION = [
  { path: "enabled", label: "Requests wait for slots", choices: [true, false] },
  { path: "policy", label: "Slots are shared by", choices: POLICIES },
  { path: "total", label: "Most requests at the site", ...NO_LIMIT },
  { path: "late", label: "Requests past their deadline", choices: ["serve", "refuse"] },
  { path: "delay_window_s", label: "Delays count for", ...TIME },
  { path: "adjustment.method", label: "Windows are adjusted by", choices: ["fixed", "probe", "knee", "gradient"] },
  { path: "adjustment.probe_every_s", label: "Probe: every", ...TIME },
  { path: "adjustment.probe_after_s", label: "Probe: after", ...TIME },
  { path: "adjustment.shrink_above", label: "Probe: shrink above" },
  { path: "adjustment.grow_below", label: "Probe: grow below" },
];
const RESOURCE = [
  { path: "windows.*", label: "Window of", ...NO_LIMIT },
  { path: "limits.*.least", label: "Least window of" },
  { path: "limits.*.most", label: "Largest window of" },
  { path: "limits.*.bound_s", label: "Time for a probe of", ...TIME, none: "none" },
];
const SERVER = [
  { path: "state", label: "State", choices: ["enabled", "draining", "disabled"] },
  { path: "weight", label: "Weight", none: "as in the file" },
  { path: "keep", label: "Survives a reload", choices: [true, false] },
];
const SITE = [
  { path: "closed", label: "Closed for maintenance", choices: [true, false] },
];

// A setting by the names that lead to it; the names of resources may have dots.
function settingOf(path) {
  if (path[0] === "windows" || path[0] === "limits") {
    const form = RESOURCE.find((it) => it.path === [path[0], "*", ...path.slice(2)].join("."));
    return form && { ...form, label: `${form.label} ${path[1]}` };
  }
  return [...CLASS, ...ADMISSION, ...SERVER, ...SITE].find((it) => it.path === path.join("."));
}

function inWords(value, setting) {
  if (value === null || value === undefined) return setting?.none ?? "none";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "object") return Object.entries(value).map(([name, it]) => `${name} ${it}`).join(", ");
  return setting?.unit ? `${value} ${setting.unit}` : String(value);
}

function labelOf(path) {
  return settingOf(path)?.label ?? path.join(".");
}

// `Weight: 3 instead of 1`.
function changeInWords({ path, old, new: now }) {
  const setting = settingOf(path);
  return `${labelOf(path)}: ${inWords(now, setting)} instead of ${inWords(old, setting)}`;
}

function isOfWhole(what) {
  return /^new |, deleted$/.test(what);
}

function at(settings, path) {
  return path.reduce((it, name) => it?.[name], settings) ?? null;
}

function enter(settings, path, value) {
  const last = path[path.length - 1];
  path.slice(0, -1).reduce((it, name) => (it[name] ??= {}), settings)[last] = value;
}

// What is open: { title, settings, fields, request }. `request` makes { method, path, headers, body } of a patch.
let opened = null;

function field(setting, path, settings, number) {
  const id = `field-${number}`;
  const value = at(settings, path);
  const row = made("p", undefined, "field");
  const label = made("label", setting.label);
  label.htmlFor = id;
  let input;
  if (setting.choices) {
    input = made("select");
    for (const choice of setting.choices) {
      const option = made("option", inWords(choice));
      option.value = JSON.stringify(choice);
      input.append(option);
    }
    input.value = JSON.stringify(value);
  } else {
    input = made("input");
    input.type = "number";
    input.step = setting.step ?? "1";
    input.required = !setting.none;
    input.placeholder = setting.none ?? "";
    input.value = value === null ? "" : String(value);
  }
  input.id = id;
  row.append(label, input);
  const help = [setting.unit, setting.help].filter(Boolean).join(", ");
  if (help) {
    const about = made("span", help, "quiet");
    about.id = `${id}-help`;
    input.setAttribute("aria-describedby", about.id);
    row.append(about);
  }
  const read = () => (setting.choices ? JSON.parse(input.value) : input.value.trim() === "" ? null : Number(input.value));
  return { path, input, row, old: value, read };
}

// The settings that the form has changed, as a merge patch.
function patched() {
  const patch = {};
  for (const { path, old, read } of opened.fields) if (JSON.stringify(read()) !== JSON.stringify(old)) enter(patch, path, read());
  const percentile = patch.objective?.percentile;
  const isGone = (name) => opened.fields.find((it) => it.path.join(".") === `objective.percentile.${name}`).read() === null;
  if (percentile && isGone("percent") && isGone("s")) patch.objective.percentile = null;
  return patch;
}

function show(dialog) {
  byId("proposed").replaceChildren();
  say("");
  byId("apply").hidden = true;
  byId("token-field").hidden = Boolean(session.token);
  byId("preview").hidden = !dialog.fields.length;
  byId("remove").hidden = !dialog.remove;
  byId("edit-title").textContent = dialog.title;
  byId("fields").replaceChildren(...dialog.fields.map((it) => it.row));
  opened = dialog;
  if (!byId("edit").open) byId("edit").showModal();
  const first = session.token ? dialog.fields[0]?.input ?? byId("apply") : byId("token");
  first.focus();
}

function say(text, isError) {
  byId("answer").textContent = text;
  byId("answer").className = isError ? "error" : "";
}

// Asks with the token, if there is one. Throws what the server says is wrong.
async function ask(path, options = {}) {
  const headers = { ...options.headers };
  if (session.token) headers.Authorization = `Bearer ${session.token}`;
  const response = await fetch(path, { ...options, headers });
  if (response.ok) return response;
  const { message, field: wrong } = await response.json().then((it) => it.error, () => ({ message: `${path}: ${response.status}` }));
  throw Object.assign(new Error(wrong ? `${labelOf(wrong.split("."))}: ${message}` : message), { status: response.status, wrong });
}

async function send({ method, path, headers, body }, isPreview) {
  if (!session.token) keepToken(byId("token").value);
  const all = body ? { "Content-Type": "application/merge-patch+json", ...headers } : headers;
  const response = await ask(isPreview ? `${path}?preview` : path, { method, headers: all, body: body && JSON.stringify(body) });
  return response.json();
}

function keepToken(token) {
  session.token = token.trim();
  byId("token").value = "";
  try { sessionStorage.setItem("token", session.token); } catch { /* It is asked for again. */ }
}

function failed(error) {
  if (error.status === 401) {
    keepToken("");
    byId("token-field").hidden = false;
    byId("token").focus();
  }
  const wrong = opened?.fields.find((it) => it.path.join(".") === error.wrong);
  wrong?.input.focus();
  say(error.message, true);
}

async function preview(request) {
  try {
    const { what, differences } = await send(request, true);
    // Of a class that is new or gone as a whole, the name says all.
    const isWhole = isOfWhole(what);
    const rows = isWhole ? [] : differences.map(({ path, old, new: now }) => {
      const row = made("tr");
      const setting = settingOf(path);
      const head = made("th", labelOf(path));
      head.scope = "row";
      row.append(head, made("td", inWords(old, setting)), made("td", inWords(now, setting)));
      return row;
    });
    byId("proposed").replaceChildren(...rows);
    byId("token-field").hidden = true;
    byId("apply").hidden = !differences.length;
    opened.proposed = request;
    if (isWhole) say(`Until the next reload: ${what}.${what.startsWith("new ") ? "" : " Its requests go to the default class."}`);
    else say(rows.length ? "This would change, until the next reload:" : "That changes nothing.");
    if (differences.length) byId("apply").focus();
  } catch (error) {
    failed(error);
  }
}

async function apply() {
  try {
    await send(opened.proposed, false);
    byId("edit").close();
    await look();
  } catch (error) {
    byId("apply").hidden = true;
    failed(error);
  }
}

function fieldsOf(forms, settings) {
  return forms.map((it, number) => field(it, it.names ?? it.path.split("."), settings, number));
}

function openClass(name) {
  const it = latest.classes.classes.find((it) => it.name === name);
  if (!it) return;
  const settings = { ...it.settings, position: it.position };
  const path = `/api/classes/${encodeURIComponent(name)}`;
  const headers = { "If-Match": latest.etag };
  show({
    title: `Class ${name}`,
    fields: fieldsOf(CLASS, settings),
    request: (body) => ({ method: "PATCH", path, headers, body }),
    remove: it.is_default ? undefined : { method: "DELETE", path, headers },
  });
}

function openNewClass() {
  const fields = fieldsOf(CLASS.filter((it) => it.path === "weight"), { weight: 1 });
  const row = made("p", undefined, "field");
  const input = made("input");
  Object.assign(input, { id: "field-name", required: true, maxLength: 64 });
  const label = made("label", "Name");
  label.htmlFor = input.id;
  row.append(label, input);
  const name = { path: [], input, row, old: null, read: () => null };
  show({
    title: "New class",
    fields: [name, ...fields],
    request: () => ({
      method: "PUT", path: `/api/classes/${encodeURIComponent(input.value)}`, headers: { "If-None-Match": "*" },
      body: { weight: fields[0].read() },
    }),
  });
}

function openAdmission() {
  const settings = latest.admission.settings;
  const resources = Object.keys(settings.windows).flatMap((name) => RESOURCE.map((it) => ({
    ...it, label: `${it.label} ${name}`, names: it.path.split(".").map((part) => (part === "*" ? name : part)),
  })));
  const headers = { "If-Match": latest.etag };
  show({
    title: "How slots are shared",
    fields: fieldsOf([...ADMISSION.slice(0, 3), ...resources, ...ADMISSION.slice(3)], settings),
    request: (body) => ({ method: "PATCH", path: "/api/admission", headers, body }),
  });
}

// With `state`, what it would change is shown at once.
function openServer(upstream, name, state) {
  const it = latest.upstreams.find((it) => it.name === upstream)?.servers.find((it) => it.server === name);
  if (!it) return;
  const path = `/api/upstreams/${encodeURIComponent(upstream)}/${encodeURIComponent(name)}`;
  const request = (body) => ({ method: "PATCH", path, body });
  const settings = { state: it.state, weight: it.given_weight, keep: it.keep };
  show({ title: `Server ${name} of ${upstream}`, fields: fieldsOf(SERVER, settings), request });
  if (!state) return;
  opened.fields[0].input.value = JSON.stringify(state);
  if (session.token) preview(request({ state }));
}

// What it would change is shown at once.
function openSite(site, closed) {
  const it = latest.maintenance.find((it) => it.site === site);
  if (!it) return;
  const request = (body) => ({ method: "PATCH", path: `/api/maintenance/${encodeURIComponent(site)}`, body });
  show({ title: `Site ${site}`, fields: fieldsOf(SITE, { closed: it.switched }), request });
  opened.fields[0].input.value = JSON.stringify(closed);
  if (session.token) preview(request({ closed }));
}

function openUndo(change) {
  const request = { method: "POST", path: `/api/changes/${change.id}/undo` };
  show({ title: `Take back: ${change.what}`, fields: [], request: () => request });
  byId("preview").hidden = false;
  if (session.token) preview(request);
}

byId("edit-form").addEventListener("submit", (event) => {
  event.preventDefault();
  if (event.submitter === byId("apply")) apply();
  else preview(opened.request(patched()));
});
// What is applied is what was shown.
byId("fields").addEventListener("input", () => {
  byId("apply").hidden = true;
  byId("proposed").replaceChildren();
  say("");
});
byId("remove").addEventListener("click", () => preview(opened.remove));
byId("cancel").addEventListener("click", () => byId("edit").close());
byId("new-class").addEventListener("click", openNewClass);
byId("change-admission").addEventListener("click", openAdmission);
