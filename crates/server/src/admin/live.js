"use strict";

// What has happened in the last hour: charts, response times by size, the slowest responses.

const MINUTES_S = 300;
const HOUR_S = 3600;
const live = { seconds: [], steps: [], isHour: false };
// The newest that the server has told.
let latest = null;
// What reading from elsewhere and changes need. It is forgotten with the tab.
const session = { token: "" };

const byId = (id) => document.getElementById(id);

function made(name, text, className) {
  const it = document.createElement(name);
  if (text !== undefined) it.textContent = text;
  if (className) it.className = className;
  return it;
}

function drawn(name, attributes) {
  const it = document.createElementNS(byId("shapes").namespaceURI, name);
  for (const [key, value] of Object.entries(attributes)) it.setAttribute(key, value);
  return it;
}

function duration(seconds) {
  if (seconds === null || seconds === undefined) return "-";
  if (seconds < 0.001) return (seconds * 1e6).toFixed(0) + " \u00b5s";
  return seconds < 1 ? (seconds * 1e3).toFixed(1) + " ms" : seconds.toFixed(2) + " s";
}

// For a scale.
function short(seconds) {
  const [size, unit] = [[1, "s"], [1e-3, "ms"], [1e-6, "\u00b5s"]].find(([size]) => seconds >= size * 0.999) ?? [1e-9, "ns"];
  return `${+(seconds / size).toPrecision(2)} ${unit}`;
}

function bytes(count) {
  for (const [unit, size] of [["GB", 1e9], ["MB", 1e6], ["KB", 1e3]]) if (count >= size) return (count / size).toFixed(1) + " " + unit;
  return count + " B";
}

function mbit(bits) {
  const value = bits / 1e6;
  return value >= 100 ? value.toFixed(0) : value >= 1 ? value.toFixed(1) : value.toFixed(2);
}

// A scale's upper end: 1, 2 or 5 times a power of ten.
function roundUp(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((it) => it * power).find((it) => it >= value * 0.999);
}

// Lines over the shown time. Each series has `values`, one for each point or null, and a class.
function chart(place, points, series, { scale, labels, summary }) {
  const span = live.isHour ? HOUR_S : MINUTES_S;
  const end = points.length ? points[points.length - 1].at_s : 0;
  const picture = drawn("svg", { viewBox: "0 0 1000 100", preserveAspectRatio: "none", role: "img", "aria-label": summary });
  const x = (point) => 1000 * (1 - (end - point.at_s) / span);
  const longest = live.isHour ? 25 : 3.5;
  for (const { values, className } of series) {
    let path = "", before = null;
    points.forEach((point, at) => {
      const value = values[at];
      if (value === null || value === undefined) return;
      const y = 100 * (1 - Math.min(Math.max(scale(value), 0), 1));
      const joins = before !== null && point.at_s - before <= longest;
      path += `${joins ? "L" : "M"}${x(point).toFixed(1)} ${y.toFixed(2)}${joins ? "" : "h1"}`;
      before = point.at_s;
    });
    if (path) picture.append(drawn("path", { d: path, class: `line ${className}` }));
  }
  const side = made("div", undefined, "scale");
  side.append(...labels.map((label) => made("span", label)));
  const times = made("div", undefined, "times");
  times.append(made("span", live.isHour ? "1 hour ago" : "5 minutes ago"), made("span", "now"));
  place.replaceChildren(side, picture, times);
}

function linear(place, points, series, format, summary) {
  const most = roundUp(Math.max(0, ...series.flatMap((it) => it.values.filter((value) => value !== null && value !== undefined))));
  chart(place, points, series, { scale: (value) => value / most, labels: [format(most), format(most / 2), "0"], summary });
}

function mean(points, size) {
  let sum = 0, count = 0;
  for (const it of points) {
    if (it.response_time_s[size] === null) continue;
    sum += it.response_time_s[size] * it.size_per_second[size];
    count += it.size_per_second[size];
  }
  return count > 0 ? sum / count : null;
}

function tile(term, value, more) {
  const it = made("div", term, "tile");
  it.append(made("b", value), made("span", more, "quiet"));
  return it;
}

function showUplink(value, points) {
  const now = live.seconds[live.seconds.length - 1];
  const last = live.seconds.slice(-10);
  const average = (field) => last.reduce((sum, it) => sum + it[field], 0) / Math.max(last.length, 1);
  const sent = average("uplink_bits_per_second");
  const rate = value.uplink.rate_bits_per_second;
  const percent = (part) => (part * 100).toFixed(part < 0.1 ? 1 : 0) + " %";
  byId("tiles").replaceChildren(
    tile("Sent", mbit(sent) + " Mbit/s", rate ? `${percent(sent / rate)} of ${mbit(rate)} Mbit/s` : "not paced"),
    tile("Order", value.uplink.order, "who goes next"),
    tile("Waiting", now ? String(now.waiting) : "-", now ? `of ${now.under_way} under way` : ""),
    tile("Responses", average("responses_per_second").toFixed(1) + " /s", `${average("incomplete_per_second").toFixed(1)} /s cut off`),
    tile("Errors (5xx)", average("errors_per_second").toFixed(1) + " /s", "in the last 10 s"),
  );
  const doubt = value.uplink.doubt;
  byId("doubt").hidden = !doubt;
  byId("doubt").textContent = doubt === "not found"
    ? "The rate of the uplink is not found, though much is sent: no queue of it shows."
    : doubt ? `The given rate of the uplink is ${doubt}: round trips show that the queue is not here.` : "";
  linear(byId("sent"), points, [
    { values: points.map((it) => (it.rate_bits_per_second === null ? null : it.rate_bits_per_second / 1e6)), className: "limit" },
    { values: points.map((it) => it.uplink_bits_per_second / 1e6), className: "s0" },
  ], (value) => String(+value.toPrecision(3)), `${mbit(sent)} Mbit/s sent`);
  linear(byId("queue"), points, [{ values: points.map((it) => it.waiting), className: "s1" }],
    (value) => String(+value.toPrecision(3)), `${now ? now.waiting : 0} responses waiting`);
}

const ORDERS_IN_WORDS = {
  "fair": "all at once, as usual servers do",
  "srpt": "fewest bytes left first",
  "srpt-guard-3": "the same; none takes over three times its time under fair",
  "fsp": "the one that fair would finish first",
  "las": "least sent so far first",
  "fifo": "first come, first served",
  "quick-fix": "small ones first",
};

// What each order would have done with the last responses.
function showComparison(it) {
  byId("comparison").hidden = !it;
  if (!it) return;
  const factor = it.other_mean_s / it.mean_s;
  const verdict = factor >= 1.02 ? `${factor.toFixed(1)} times as long` : factor <= 0.98 ? `${(100 * factor).toFixed(0)} % of that` : "the same";
  // A few milliseconds are those of the machine, and not of the order.
  const isClose = it.mean_s - it.other_mean_s < 0.01;
  byId("verdict").className = factor >= 1 ? "met" : isClose ? "" : "missed";
  const under = it.under_way ? `, ${it.under_way} of them still under way,` : "";
  byId("verdict").textContent = `The last ${it.responses} responses (${duration(it.span_s)})${under} took ${duration(it.mean_s)} in the mean. `
    + `If all had shared the uplink equally: ${duration(it.other_mean_s)}, ${verdict}.`;
  const row = (times, name, words) => {
    const cells = made("tr");
    const head = made("th", name);
    head.scope = "row";
    const part = 100 * times.mean_s / it.other_mean_s;
    cells.append(head, made("td", duration(times.mean_s)), made("td", duration(times.p50_s)), made("td", duration(times.p99_s)),
      made("td", duration(times.largest_s)), made("td", it.other_mean_s > 0 ? `${part.toFixed(part < 10 ? 1 : 0)} %` : "-"), made("td", words, "text"));
    return cells;
  };
  byId("orders").replaceChildren(row(it.measured, `${it.measured.order}, measured`, "what happened, with the clients' own lines"),
    ...it.orders.map((times) => row(times, times.order, ORDERS_IN_WORDS[times.order] ?? "")));
}

function showSizes(value, points) {
  const all = points.flatMap((it) => it.response_time_s.filter((time) => time !== null && time > 0));
  const low = Math.floor(Math.log10(Math.min(...all, 0.01))), high = Math.ceil(Math.log10(Math.max(...all, 0.02)));
  chart(byId("times"), points, value.sizes.map((_, size) => ({
    values: points.map((it) => it.response_time_s[size]), className: `s${size}`,
  })), {
    scale: (time) => (Math.log10(Math.max(time, 1e-9)) - low) / (high - low),
    labels: [short(10 ** high), short(10 ** ((high + low) / 2)), short(10 ** low)],
    summary: "mean response times by size",
  });
  byId("sizes").replaceChildren(...value.sizes.map((name, size) => {
    const row = made("tr");
    const head = made("td");
    head.append(made("span", undefined, `swatch f${size}`), name);
    const last = live.seconds.slice(-10);
    const each = last.reduce((sum, it) => sum + it.size_per_second[size], 0) / Math.max(last.length, 1);
    row.append(head, made("td", each.toFixed(1)), made("td", duration(mean(last, size))),
      made("td", duration(mean(live.seconds, size))), made("td", duration(mean(live.steps, size))));
    return row;
  }));
}

function showWindows(points) {
  const latest = points[points.length - 1];
  const limited = latest ? latest.resources.filter((it) => it.window !== null) : [];
  byId("windows").replaceChildren(...limited.map(({ name }) => {
    const of = (point) => point.resources.find((it) => it.name === name);
    const figure = made("figure");
    const place = made("div", undefined, "chart");
    figure.append(made("figcaption", `${name}: requests at the site, and the window`), place);
    linear(place, points, [
      { values: points.map((it) => of(it)?.window ?? null), className: "limit" },
      { values: points.map((it) => of(it)?.running ?? null), className: "s2" },
    ], (value) => String(+value.toPrecision(3)), `${of(latest).running} of ${of(latest).window}`);
    return figure;
  }));
}

const PARTS = ["waited for a slot", "the site made it", "waited behind others, or for its client", "its bytes alone"];

// Where the time of a response went, in seconds, as in PARTS.
function parts(it) {
  const slot = it.slot_s ?? 0;
  const alone = Math.min(it.alone_s ?? 0, it.uplink_s);
  return [slot, Math.max(it.response_time_s - slot - it.uplink_s, 0), it.uplink_s - alone, alone];
}

function why(it, times) {
  const most = times.indexOf(Math.max(...times));
  const time = duration(times[most]);
  if (!it.is_complete) return "its client went away, or what makes it failed";
  return [
    `${time} in the queue of its class: the site was full`,
    `${time} at the origin`,
    `${time} because shorter or more important ones went before, or its client takes it slowly`,
    `${time}: it is large for this uplink`,
  ][most];
}

function showSlowest(list) {
  byId("none-slow").hidden = list.length > 0;
  byId("slowest").replaceChildren(...list.map((it) => {
    const times = parts(it);
    const bar = drawn("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", class: "bar", role: "img",
      "aria-label": times.map((time, at) => `${PARTS[at]}: ${duration(time)}`).join(", ") });
    let from = 0;
    times.forEach((time, at) => {
      const width = 100 * time / Math.max(it.response_time_s, 1e-9);
      bar.append(drawn("rect", { x: from.toFixed(2), y: 0, width: width.toFixed(2), height: 10, class: `f${at}` }));
      from += width;
    });
    const row = made("tr");
    const where = made("td");
    where.append(bar);
    row.append(made("td", `${it.request} ${it.status}`, "path"), made("td", it.class), made("td", bytes(it.body_bytes)),
      made("td", duration(it.response_time_s)), where, made("td", why(it, times), "text"));
    return row;
  }));
}

// Whether a class has kept its objectives, over the last hour.
function keptStrip(name) {
  const met = live.steps.map((it) => it.classes.find((of) => of.name === name)?.met ?? null);
  const known = met.filter((it) => it !== null);
  const kept = known.length ? `kept ${Math.round(100 * known.filter(Boolean).length / known.length)} %` : "no history yet";
  const strip = drawn("svg", { viewBox: "0 0 360 10", preserveAspectRatio: "none", class: "strip", role: "img", "aria-label": `${kept}, in the last hour` });
  const end = live.steps.length ? live.steps[live.steps.length - 1].at_s : 0;
  live.steps.forEach((point, at) => {
    if (met[at] === null) return;
    const x = 360 - (end - point.at_s) / 10 - 1;
    strip.append(drawn("rect", { x: x.toFixed(1), y: met[at] ? 4 : 0, width: 1.2, height: met[at] ? 6 : 10, class: met[at] ? "kept" : "lost" }));
  });
  const all = made("div", undefined, "history");
  all.append(strip, made("span", kept, "quiet"));
  return all;
}

function append(to, points, span) {
  to.push(...points);
  const end = to.length ? to[to.length - 1].at_s : 0;
  while (to.length && to[0].at_s <= end - span) to.shift();
}

function showLive(value) {
  // A server that was started anew begins anew here, too.
  if (live.started_s !== value.started_s) Object.assign(live, { seconds: [], steps: [], started_s: value.started_s });
  append(live.seconds, value.seconds, MINUTES_S);
  append(live.steps, value.steps, HOUR_S);
  live.value = value;
  draw();
}

function draw() {
  const points = live.isHour ? live.steps : live.seconds;
  byId("sites").textContent = live.value.sites.map((names) => names.join(", ") || "any name").join("; ");
  showUplink(live.value, points);
  showComparison(live.value.comparison);
  showSizes(live.value, points);
  showWindows(points);
  showSlowest(live.value.slowest);
}

function choose(isHour) {
  live.isHour = isHour;
  byId("minutes").setAttribute("aria-pressed", String(!isHour));
  byId("hour").setAttribute("aria-pressed", String(isHour));
  if (live.value) draw();
}

// The moment of the newest point, to ask only for newer ones.
function liveSince() {
  return live.seconds.length ? live.seconds[live.seconds.length - 1].at_s : 0;
}

byId("minutes").addEventListener("click", () => choose(false));
byId("hour").addEventListener("click", () => choose(true));
byId("key").append(...PARTS.map((part, at) => {
  const it = made("span");
  it.append(made("span", undefined, `swatch f${at}`), part);
  return it;
}));
