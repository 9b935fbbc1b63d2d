"use strict";

// Follows the server: by events, or else by asking every second. Classes, upstreams, certificates, changes. live.js and forms.js
// come first.

const POLL_MS = 1000;
// A stream that has been silent for so long is given up.
const SILENCE_MS = 10000;
// After a stream that could not be had, so many questions are asked before the next try.
const POLLS = 10;
const isPolling = new URLSearchParams(location.search).has("poll");

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

// Rows that stay, so that the keyboard's place does: only the cells before the buttons are made anew.
function fill(body, items, keyOf, cellsOf, buttonsOf) {
  const rows = (body.rowsByKey ??= new Map());
  const keys = items.map(keyOf);
  items.forEach((it, number) => {
    const key = keys[number];
    let row = rows.get(key);
    if (!row) {
      row = made("tr");
      row.buttons = made("td");
      row.buttons.append(...buttonsOf(key));
      row.append(row.buttons);
      rows.set(key, row);
    }
    while (row.firstChild !== row.buttons) row.firstChild.remove();
    row.prepend(...cellsOf(it, row));
  });
  if (keys.join("\n") === body.keys) return;
  body.keys = keys.join("\n");
  for (const key of [...rows.keys()]) if (!keys.includes(key)) rows.delete(key);
  body.replaceChildren(...keys.map((key) => rows.get(key)));
}

function button(text, label, act) {
  const it = made("button", text);
  it.type = "button";
  it.setAttribute("aria-label", label);
  it.addEventListener("click", act);
  return it;
}

function goal(it) {
  const show = (value) => (value === null ? "-" : it.objective === "error_rate" ? (value * 100).toFixed(2) + " %" : duration(value));
  const state = it.met === null ? "quiet" : it.met ? "met" : "missed";
  return made("li", `${it.objective} ${show(it.value)} (promised ${show(it.target)})`, state);
}

// Whether classes have delays in ratios; otherwise weights matter, if anything does.
function sharesDelay() {
  return ["ratio", "wtp", "pwad", "mdp"].includes(latest.admission.settings.policy);
}

function showClasses(value, before) {
  const elapsed = before && value.now_s - before.now_s;
  fill(byId("classes"), value.classes.classes, (it) => it.name, (it) => {
    const then = before?.classes.classes.find((old) => old.name === it.name)?.stats;
    const now = it.stats;
    const name = made("td", it.name);
    if (it.is_default) name.append(made("span", " default", "quiet"));
    const goals = made("ul");
    goals.append(...it.objectives.map(goal));
    const objectives = made("td");
    objectives.append(goals);
    if (it.objectives.length) objectives.append(keptStrip(it.name));
    return [
      name,
      made("td", sharesDelay() ? it.settings.delay_ratio : it.settings.weight),
      made("td", now.running + (it.settings.slots === null ? "" : ` of ${it.settings.slots}`)),
      made("td", `${now.waiting} of ${it.settings.queue}`),
      made("td", rate(total(now.responses), then && total(then.responses), elapsed)),
      made("td", rate(total(now.refused), then && total(then.refused), elapsed)),
      made("td", rate(now.responses["5xx"], then?.responses["5xx"], elapsed)),
      made("td", duration(lately(now.waiting_time, then?.waiting_time))),
      made("td", duration(lately(now.system_time, then?.system_time))),
      objectives,
    ];
  }, (name) => [button("Change", `Change class ${name}`, () => openClass(name))]);
  byId("share").textContent = sharesDelay() ? "Delay ratio" : "Weight";
}

function showAdmission(value) {
  const entries = [
    ["Requests wait for slots", value.settings.enabled ? "yes" : "no"],
    ["Policy", value.settings.policy],
    ["Windows are adjusted by", value.settings.adjustment.method],
    ["Requests at the site", `${value.stats.running} of ${value.settings.total === null ? "any number" : value.settings.total}`],
  ];
  for (const it of value.stats.resources) {
    const window = it.window === null ? ", no window of its own" : ` of ${it.window}`;
    const adjusted = it.window_changes ? `, adjusted ${it.window_changes} times` : "";
    entries.push([`Resource ${it.name}`, `${it.running}${window}${adjusted}, service ${duration(it.mean_service_s)}`]);
  }
  const leases = value.stats.leases;
  if (leases) {
    const slots = leases.cells.map((it) => `${it.slots} of ${it.window} (${it.of})`).join(", ");
    const why = leases.in_force ? "by the store" : "the store does not answer: an equal part";
    const leads = leases.leads ? "; this one adjusts the windows" : "";
    entries.push([`Slots of this gateway, of ${leases.gateways}`, `${slots}, ${why}${leads}`]);
  }
  byId("admission").replaceChildren(...entries.flatMap(([term, text]) => [made("dt", term), made("dd", text)]));
}

// What the adjustment of windows has decided, and why.
function showDecisions(list) {
  byId("decided").hidden = list.length === 0;
  const inWords = ({ at_s, resource, from, to, why }) =>
    `${new Date(at_s * 1000).toLocaleTimeString()} ${resource}: ${from === null ? "" : `${from} \u2192 `}${to}, ${why}`;
  byId("last-decision").textContent = list.length ? `Windows: ${inWords(list[0])}` : "";
  byId("decisions").replaceChildren(...list.slice(1).map((it) => made("li", inWords(it))));
}

const STATES = [["enabled", "Enable"], ["draining", "Drain"], ["disabled", "Disable"]];

function showUpstreams(upstreams) {
  const servers = upstreams.flatMap((upstream) => upstream.servers.map((server) => ({ upstream: upstream.name, server })));
  byId("upstreams").hidden = servers.length === 0;
  const keyOf = ({ upstream, server }) => JSON.stringify([upstream, server.server, server.class]);
  fill(byId("servers"), servers, keyOf, ({ upstream, server }, row) => {
    const name = made("td", `${upstream}: ${server.server}`);
    if (server.class) name.append(made("span", ` for ${server.class}`, "quiet"));
    [...row.buttons.children].forEach((it) => { it.hidden = it.dataset.state === server.state; });
    return [name, made("td", server.health, server.health === "healthy" ? "met" : "missed"), made("td", server.in_flight),
      made("td", server.connections), made("td", server.requests), made("td", server.failures), made("td", server.weight),
      made("td", server.state, server.state === "enabled" ? "" : "missed")];
  }, (key) => {
    const [upstream, server] = JSON.parse(key);
    const states = STATES.map(([state, text]) => {
      const it = button(text, `${text} ${server}`, () => openServer(upstream, server, state));
      it.dataset.state = state;
      return it;
    });
    return [...states, button("Change", `Change ${server}`, () => openServer(upstream, server))];
  });
}

// By what a site is closed.
function closedBy(it) {
  const by = [it.switched ? "the switch" : "", it.file_exists ? it.file : ""].filter(Boolean);
  return by.join(" and ") || "a file at another gateway";
}

function showMaintenance(sites) {
  byId("maintenance").hidden = sites.length === 0;
  fill(byId("switches"), sites, (it) => it.site, (it, row) => {
    [...row.buttons.children].forEach((button) => { button.hidden = button.dataset.closed === String(it.switched); });
    return [made("td", it.site), made("td", it.closed ? `closed by ${closedBy(it)}` : "open", `text ${it.closed ? "missed" : "met"}`),
      made("td", it.file, "text")];
  }, (site) => [[true, "Close"], [false, "Open"]].map(([closed, text]) => {
    const it = button(text, `${text} ${site}`, () => openSite(site, closed));
    it.dataset.closed = String(closed);
    return it;
  }));
}

function showChanges(changes) {
  byId("changes").hidden = changes.length === 0;
  fill(byId("made"), changes, (it) => String(it.id), (it, row) => {
    row.buttons.firstChild.hidden = it.undone;
    const words = made("ul");
    const all = it.differences.map((difference) => made("li", changeInWords(difference)));
    // A class that is new or gone has all its settings.
    words.append(...(isOfWhole(it.what) ? [] : all));
    const cell = made("td", undefined, "text");
    cell.append(it.undone ? made("span", "taken back", "quiet") : "", words);
    return [made("td", new Date(it.at_s * 1000).toLocaleTimeString()), made("td", it.what, "text"), cell];
  }, (id) => {
    const undo = () => openUndo(latest.changes.find((it) => String(it.id) === id));
    return [button("Undo", `Undo change ${id}`, undo)];
  });
}

function date(seconds) {
  return seconds ? new Date(seconds * 1000).toLocaleString() : "-";
}

function certificate(it) {
  const row = made("tr");
  const soon = it.valid_until_s === null || it.valid_until_s < Date.now() / 1000 + 7 * 86400;
  const failed = it.failures > 1 ? ` (${it.failures} attempts in a row)` : "";
  row.append(
    made("td", it.names.join(", ") || it.site),
    made("td", it.from === "acme" ? "authority" : "files"),
    made("td", it.valid_until_s === null ? "none yet" : date(it.valid_until_s), soon ? "missed" : ""),
    made("td", it.from === "acme" ? date(it.next_order_s) : "-"),
    made("td", it.last_error ? it.last_error + failed : "-", it.last_error ? "missed" : "quiet"),
  );
  return row;
}

// What needs attention, in words.
function summary(value) {
  const last = live.seconds[live.seconds.length - 1];
  const closed = value.maintenance.filter((it) => it.closed);
  const said = closed.map((it) => [`${it.site} is closed for maintenance by ${closedBy(it)}`, "missed"]);
  const down = value.upstreams.flatMap((it) => it.servers).filter((it) => it.health !== "healthy").length;
  if (down) said.push([`${down} ${down === 1 ? "server is" : "servers are"} not healthy`, "missed"]);
  for (const it of value.classes.classes) if (it.objectives.some((goal) => goal.met === false)) said.push([`${it.name} misses its objective`, "missed"]);
  const refused = last ? last.classes.filter((it) => it.refused_per_second > 0) : [];
  if (refused.length) said.push([`the site is full: ${refused.map((it) => it.name).join(", ")} refused`, "missed"]);
  const rate = value.uplink.rate_bits_per_second;
  if (last?.waiting && rate) said.push(["the uplink is busy", "busy"]);
  if (!said.length) said.push(["all is well", "met"]);
  byId("summary").replaceChildren(...said.map(([text, className]) => made("li", text, className)));
}

function display(value, by) {
  const before = latest;
  latest = value;
  byId("locked").hidden = true;
  byId("all").hidden = false;
  showLive(value);
  showUpstreams(value.upstreams);
  showMaintenance(value.maintenance);
  showClasses(value, before);
  showAdmission(value.admission);
  showDecisions(value.decisions);
  showChanges(value.changes);
  byId("tls").hidden = value.certificates.length === 0;
  byId("certificates").replaceChildren(...value.certificates.map(certificate));
  summary(value);
  byId("temporary").hidden = value.classes.persistent;
  byId("read-only").hidden = value.can_change;
  byId("state").textContent = `Serpent ${value.version}, ${by}, ${new Date().toLocaleTimeString()}`;
  byId("state").className = "quiet";
}

async function look() {
  display(await (await ask(`/api/live?after=${liveSince()}`)).json(), "asked every second");
}

// Shows events until the stream ends. Returns whether there was any.
async function listen() {
  const stop = new AbortController();
  let silence = 0, any = false;
  const hear = () => {
    clearTimeout(silence);
    silence = setTimeout(() => stop.abort(), SILENCE_MS);
  };
  const hide = () => document.hidden && stop.abort();
  document.addEventListener("visibilitychange", hide);
  hear();
  try {
    const response = await ask(`/api/events?after=${liveSince()}`, { signal: stop.signal });
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = ""; ;) {
      const { value, done } = await reader.read();
      if (done) return any;
      hear();
      const events = (rest + value).split("\n\n");
      rest = events.pop();
      for (const event of events) {
        display(JSON.parse(event.slice(event.indexOf("data: ") + 6)), "live");
        any = true;
      }
    }
  } finally {
    clearTimeout(silence);
    document.removeEventListener("visibilitychange", hide);
  }
}

const pause = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });
const shown = () => new Promise((resolve) => {
  if (!document.hidden) return resolve();
  document.addEventListener("visibilitychange", function check() {
    if (document.hidden) return;
    document.removeEventListener("visibilitychange", check);
    resolve();
  });
});

async function follow() {
  for (;;) {
    await shown();
    if (!isPolling && await listen().catch(() => false)) continue;
    for (let polls = 0; !document.hidden && (polls < POLLS || isPolling); polls += 1) {
      try {
        await look();
      } catch (error) {
        byId("state").textContent = `No answer: ${error.message}`;
        byId("state").className = "error";
        byId("locked").hidden = error.status !== 401 && error.status !== 403;
        if (error.status === 401) await unlocked(error.message);
      }
      await pause(POLL_MS);
    }
  }
}

// Waits for a token to read with.
function unlocked(message) {
  byId("why-locked").textContent = message;
  byId("all").hidden = true;
  return new Promise((resolve) => {
    byId("unlock").addEventListener("submit", (event) => {
      event.preventDefault();
      keepToken(byId("read-token").value);
      byId("read-token").value = "";
      resolve();
    }, { once: true });
  });
}

try { session.token = sessionStorage.getItem("token") ?? ""; } catch { /* It is asked for. */ }
follow();
