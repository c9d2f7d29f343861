// The sensor that was chosen: a plot of each field, its latest reading, its buckets.
import { clock, date, draw, format } from "./chart.js";
import { again, set, state } from "./state.js";
import { ofSteps } from "./timeline.js";
import { iso, get, pathOf, spanOf, summary } from "./api.js";

const box = document.getElementById("sensor");
const most = 6; // fields that are plotted at first
const windows = 24; // that are listed
let shown = "", loaded = "", failed = false, abort = new AbortController(), charts = [], all = false;

const make = (name, properties = {}, ...children) => {
  const e = Object.assign(document.createElement(name), properties);
  e.append(...children);
  return e;
};

function clear() {
  abort.abort();
  charts.forEach((c) => c.destroy());
  charts = [];
}

// showSensor follows the address.
export function showSensor(c) {
  const key = JSON.stringify([c.stream, c.sensor]);
  if (shown !== key) {
    clear();
    shown = key;
    loaded = "";
    all = false;
    box.replaceChildren();
    if (!c.sensor) box.append(make("p", { className: "note", textContent: "Choose a sensor." }));
    if (!c.sensor) return;
    box.append(
      make("h2", { textContent: c.sensor }),
      make("form", { className: "bar", id: "span" },
        make("label", {}, "from ", make("input", { type: "datetime-local", id: "from", step: 1 })),
        make("label", {}, "to ", make("input", { type: "datetime-local", id: "to", step: 1 })),
        make("button", { textContent: "Show" })),
      make("p", { id: "sensor-note", className: "note" }),
      make("div", { id: "plots" }),
      make("div", { className: "two" }, make("div", { id: "latest" }), make("div", { id: "buckets" })));
    box.querySelector("form").addEventListener("submit", (e) => {
      e.preventDefault();
      const [from, to] = ["from", "to"].map((id) => new Date(document.getElementById(id).value).getTime());
      if (from < to) set({ from: iso(from), to: iso(to) });
      else say("The time \"from\" has to be before \"to\".", true);
    });
    if (matchMedia("(max-width: 760px)").matches && loaded === "") box.scrollIntoView({ block: "start" });
  }
  const wanted = JSON.stringify([key, c.range, c.from, c.to]);
  if (c.sensor && loaded !== wanted) {
    loaded = wanted;
    load(c);
  }
}

function say(words, wrong = false) {
  const note = document.getElementById("sensor-note");
  note.textContent = words;
  note.className = wrong ? "note wrong" : "note";
}

async function load(c) {
  abort.abort();
  abort = new AbortController();
  const { signal } = abort;
  failed = false;
  if (charts.length === 0) say("Loading …");
  try {
    const reading = await get(pathOf(c.sensor, "latest"), { stream: c.stream }, signal);
    showLatest(reading);
    const newest = Date.parse(reading.ts);
    const { from, to } = c.from < c.to ? c : spanOf(c.range, newest);
    const points = Math.min(600, Math.max(100, box.clientWidth / 2));
    const answer = await summary(c.stream, c.sensor, from, to, points, signal);
    showSpan(from, to);
    showPlots(answer, from, to);
    const readings = answer.steps.reduce((n, s) => n + s.count, 0);
    say(`${readings.toLocaleString("en")} ${readings === 1 ? "reading" : "readings"}; one point per ${format("seconds", answer.every / 1000)}. Drag to zoom, double-click to go back.`);
    await showBuckets(c, to, signal);
  } catch (e) {
    if (signal.aborted) return;
    failed = true;
    say(e.status === 404 ? "There is no such sensor in stream " + c.stream + "." : "It cannot be shown: " + e.message, true);
  }
}

function showSpan(from, to) {
  const local = (ms) => iso(ms - new Date(ms).getTimezoneOffset() * 60e3).slice(0, 19);
  if (document.activeElement?.type === "datetime-local") return;
  document.getElementById("from").value = local(from);
  document.getElementById("to").value = local(to);
}

// showPlots draws the mean of each field, with a band from the least to the greatest value.
function showPlots(answer, from, to) {
  const { at, names, line } = ofSteps(answer.steps, answer.every);
  const visible = all ? names : names.slice(0, most);
  const specs = visible.map((name) => {
    return {
      title: name, empty: "no readings", x: { kind: "clock", at, range: [from / 1000, to / 1000] },
      panels: [{ unit: "plain", digits: 6, free: true, series: [{ tone: 0, y: line(name, "mean"), low: line(name, "min"), high: line(name, "max") }] }],
    };
  });
  if (specs.length === 0) specs.push({ title: "No numbers in this range", empty: "no readings", x: { kind: "clock", at: [], range: [from / 1000, to / 1000] }, panels: [{ unit: "plain", free: true, series: [{ tone: 0, y: [] }] }] });
  const holder = document.getElementById("plots"), same = holder.dataset.names === JSON.stringify(specs.map((s) => s.title));
  if (same && charts.length === specs.length) {
    charts.forEach((c, i) => c.update(specs[i]));
    return;
  }
  charts.forEach((c) => c.destroy());
  holder.dataset.names = JSON.stringify(specs.map((s) => s.title));
  holder.replaceChildren(...specs.map(() => make("div")));
  charts = specs.map((spec, i) => draw(holder.children[i], spec, { sync: "sensor", zoom, height: specs.length > 1 ? 150 : 260 }));
  if (names.length > visible.length) {
    const button = make("button", { textContent: `Plot all ${names.length} fields` });
    button.addEventListener("click", () => { all = true; showPlots(answer, from, to); });
    holder.append(button);
  }
}

// zoom shows a span, or all of the range again.
function zoom(from, to) {
  if (from == null) set({ from: null, to: null });
  else set({ from: iso(Math.floor(from * 1000)), to: iso(Math.max(Math.ceil(to * 1000), Math.floor(from * 1000) + 10)) });
}

function table(head, rows) {
  const cells = (row, name) => row.map((c, i) => (c instanceof Node ? make(name, {}, c) : make(name, { textContent: c, className: i > 0 && name === "td" && /^[-–\d]/.test(c) ? "n" : "" })));
  return make("div", { className: "scroll" }, make("table", {},
    make("thead", {}, make("tr", {}, ...cells(head, "th"))),
    make("tbody", {}, ...rows.map((r) => make("tr", {}, ...cells(r, "td"))))));
}

function showLatest(reading) {
  const rows = Object.entries(reading.fields).map(([name, v]) => [name, typeof v === "number" ? format("plain", v, 8) : String(v)]);
  const tags = Object.entries(reading.tags ?? {}).map(([name, v]) => name + "=" + v);
  document.getElementById("latest").replaceChildren(
    make("h3", { textContent: "Latest reading" }), make("p", { className: "note", textContent: date(Date.parse(reading.ts) / 1000) + (tags.length > 0 ? " · " + tags.join(", ") : "") }),
    table(["Field", "Value"], rows));
}

// showBuckets lists the last buckets before the end of the plot with how many readings each
// has, relative to the fullest of them.
async function showBuckets(c, to, signal) {
  const holder = document.getElementById("buckets");
  if (c.storage !== "bucket" || !c.window) {
    holder.replaceChildren();
    return;
  }
  const end = Math.ceil(to / c.window) * c.window, begin = Math.max(0, end - windows * c.window);
  const { summary: steps } = await get(pathOf(c.sensor, "summary"), { stream: c.stream, from: iso(begin), to: iso(end), every: c.window + "ms" }, signal);
  const fullest = Math.max(1, ...steps.map((s) => s.count));
  const rows = steps.reverse().map((s) => {
    const start = Date.parse(s.start), elapsed = (Date.now() - start) / c.window;
    const bar = make("meter", { min: 0, max: fullest, value: s.count, title: format("ratio", s.count / fullest) + " of the fullest" });
    return [clock(start / 1000, 86400) + " " + clock(start / 1000, 60), s.count.toLocaleString("en"), bar, elapsed >= 1 ? "" : elapsed < 0 ? "ahead" : Math.floor(elapsed * 100) + " % elapsed"];
  });
  holder.replaceChildren(make("h3", { textContent: "Buckets" }), make("p", { className: "note", textContent: `Last ${windows} windows (${c.granularity}); fill is relative to the fullest` }),
    rows.length > 0 ? table(["Begins", "Readings", "Fill", ""], rows) : make("p", { textContent: "None in this time." }));
}

// What ends now goes on with time, and what could not be shown is asked for again.
setInterval(() => {
  if (document.hidden || document.getElementById("sensors").hidden || !failed && (charts.length === 0 || state().from)) return;
  loaded = "";
  again();
}, 10e3);
