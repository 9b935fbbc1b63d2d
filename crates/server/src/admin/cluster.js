// All gateways of a site: asks /api/cluster every second.
"use strict";

const row = (cells) => {
  const tr = document.createElement("tr");
  for (const cell of cells) {
    const td = document.createElement("td");
    td.textContent = cell;
    tr.append(td);
  }
  return tr;
};
const time = (s) => s == null ? "" : s < 1 ? `${(s * 1000).toFixed(1)} ms` : s < 120 ? `${s.toFixed(1)} s` : s < 7200 ? `${Math.round(s / 60)} min` : `${Math.round(s / 3600)} h`;
const mbit = (bits) => (bits / 1e6).toFixed(bits < 1e7 ? 2 : 0);
const sum = (list, field) => list.reduce((all, it) => all + (it[field] || 0), 0);
const objective = (it) => {
  const value = it.within != null ? `${(it.within * 100).toFixed(1)} % within ${time(it.target)}`
    : it.objective === "error_rate" ? `${((it.value || 0) * 100).toFixed(2)} % of ${it.target * 100} %`
    : it.value == null ? time(it.target) : `${time(it.value)} of ${time(it.target)}`;
  return `${it.objective}: ${it.met == null ? "not known" : it.met ? "kept" : "missed"} (${value})`;
};

const show = (site) => {
  document.getElementById("classes").replaceChildren(...site.classes.map((it) => row([
    it.name, it.waiting, it.running, it.responses, it.refused, time(it.mean_system_s), (it.objectives || []).map(objective).join("; "),
  ])));
  document.getElementById("gateways").replaceChildren(...site.gateways.map((it) => row([
    `${it.host || "?"} ${it.gateway}${it.gateway === site.this ? " (this one)" : ""}`, it.version, time(it.up_s),
    [
      ...(it.cells || []).map((cell) => `${cell.of}: ${cell.slots} of ${cell.window}`),
      ...(it.line ? [`line: ${mbit(it.line.rate_bits_per_second)} of ${mbit(it.line.of_bits_per_second)} Mbit/s`] : []),
    ].join(", "),
    sum(it.classes || [], "waiting"), sum(it.classes || [], "running"), sum(it.classes || [], "responses"),
    [it.leads && "leads", it.draining && "stopping", !it.in_force && "without the store"].filter(Boolean).join(", ") || "ok",
  ])));
  document.getElementById("state").textContent = `${site.gateways.length} ${site.gateways.length === 1 ? "gateway" : "gateways"}`;
};

const ask = async () => {
  try {
    const answer = await fetch("/api/cluster", { cache: "no-store" });
    show(await answer.json());
  } catch {
    document.getElementById("state").textContent = "This gateway does not answer";
  }
  setTimeout(ask, 1000);
};
ask();
