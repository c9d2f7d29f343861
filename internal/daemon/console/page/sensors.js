// The tab of sensors: the list, with a sparkline of each that can be seen.
import { clock, date, format } from "./chart.js";
import { choose, link, milliseconds, set, state } from "./state.js";
import { get, pathOf, spanOf, summary } from "./api.js";
import { showSensor } from "./sensor.js";
import { tagsIn } from "./tags.js";

const page = 50; // sensors that are listed at a time
const box = document.getElementById("list"), note = document.getElementById("list-note"), more = document.getElementById("more");
const select = document.getElementById("sensors-stream"), prefix = document.getElementById("prefix"), tags = document.getElementById("tags"), field = document.getElementById("field");
const pressed = choose(document.getElementById("range"), "range", { from: null, to: null });
const fallback = [...select.options].find((o) => "default" in o.dataset) ?? select.options[0];

let listed = ""; // what the list was asked for
let drawn = ""; // and what the sparklines show
let asked = new AbortController();
let after = "";

// chosen is what the address asks for.
export function chosen() {
  const s = state();
  const option = [...select.options].find((o) => o.value === s.stream) ?? fallback;
  return {
    stream: option?.value ?? "", storage: option?.dataset.storage, window: Number(option?.dataset.window ?? 0), granularity: option?.dataset.granularity,
    prefix: s.prefix ?? "", tags: s.tags ?? "", sensor: s.sensor ?? "", field: s.field ?? "", range: milliseconds(s.range ?? "1h") || 3600e3,
    from: Date.parse(s.from), to: Date.parse(s.to),
  };
}

// showSensors follows the address.
export function showSensors() {
  const c = chosen();
  select.value = c.stream;
  if (document.activeElement !== prefix) prefix.value = c.prefix;
  if (document.activeElement !== tags) tags.value = c.tags;
  pressed(state().from ? "" : state().range ?? "1h");
  if (listed !== listKey(c)) list(true);
  else if (drawn !== sparkKey(c)) redraw();
  mark(c.sensor);
  showSensor(c);
}

const listKey = (c) => JSON.stringify([c.stream, c.prefix, c.tags]);
const sparkKey = (c) => JSON.stringify([c.range, c.field]);

// mark shows which sensor is chosen; its link is where the keyboard enters the list.
function mark(sensor) {
  for (const a of box.querySelectorAll("a")) {
    a.href = link({ sensor: a.dataset.sensor, from: null, to: null });
    a.setAttribute("aria-current", String(a.dataset.sensor === sensor));
  }
}

// list asks for the first sensors, or for the next ones.
async function list(anew) {
  const c = chosen();
  if (anew) {
    asked.abort();
    asked = new AbortController();
    listed = listKey(c);
    drawn = sparkKey(c);
    after = "";
    box.replaceChildren();
    fields.clear();
  }
  const { signal } = asked;
  more.hidden = true;
  note.className = "note";
  note.textContent = "Searching …";
  try {
    const answer = await get("/v1/sensors", { stream: c.stream, prefix: c.prefix, tag: tagsIn(c.tags), after, limit: page }, signal);
    box.append(...answer.sensors.map(row));
    mark(chosen().sensor);
    after = answer.after ?? "";
    more.hidden = !after;
    const n = box.children.length;
    note.textContent = n === 0 ? (c.prefix || c.tags ? "No sensors match." : "No sensors yet.") : after ? n + " sensors shown; there are more." : n + (n === 1 ? " sensor." : " sensors.");
  } catch (e) {
    if (signal.aborted) return;
    listed = "";
    note.className = "note wrong";
    note.textContent = "The sensors cannot be listed: " + e.message;
  }
}

function row(sensor) {
  const item = document.createElement("li"), a = document.createElement("a");
  const id = document.createElement("span"), value = document.createElement("span");
  const spark = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  a.dataset.sensor = sensor.sensorId;
  id.className = "id";
  id.textContent = sensor.sensorId;
  id.append(document.createElement("small"));
  sensor.fields?.forEach(know);
  value.className = "n";
  spark.setAttribute("viewBox", "0 0 120 30");
  spark.setAttribute("preserveAspectRatio", "none");
  spark.setAttribute("aria-hidden", "true");
  a.append(id, spark, value);
  showAge(a, sensor.newest, sensor.tags);
  item.append(a);
  seen.observe(a);
  return item;
}

// showAge shows when a sensor sent its newest reading, and its tags.
function showAge(a, newest, tags = {}) {
  const age = a.querySelector("small"), ms = Date.parse(newest), today = Date.now() - ms < 12 * 3600e3;
  age.textContent = [(today ? clock : date)(ms / 1000), ...Object.entries(tags).map((t) => t.join("="))].join(" · ");
  age.title = "time of its newest reading: " + newest;
}

// A sparkline is asked for when its row comes into view, and no longer when it has left.
const asking = new Map();
const seen = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (isIntersecting && target.dataset.drawn !== drawn) drawSpark(target);
    if (!isIntersecting && asking.has(target)) asking.get(target).abort();
  }
}, { root: null, rootMargin: "40px" });

function redraw() {
  drawn = sparkKey(chosen());
  for (const a of box.querySelectorAll("a")) seen.unobserve(a), seen.observe(a);
}

async function drawSpark(a) {
  const c = chosen(), shows = drawn, abort = new AbortController();
  asking.get(a)?.abort();
  asking.set(a, abort);
  const value = a.lastElementChild, spark = a.querySelector("svg");
  try {
    const signal = AbortSignal.any([abort.signal, asked.signal]);
    const newest = await get(pathOf(a.dataset.sensor, "latest"), { stream: c.stream }, signal);
    showAge(a, newest.ts, newest.tags);
    const { from, to } = spanOf(c.range, Date.parse(newest.ts));
    const answer = await summary(c.stream, a.dataset.sensor, from, to, 60, signal);
    const of = c.field || Object.keys(answer.steps.at(-1)?.fields ?? {})[0];
    answer.steps.forEach((s) => Object.keys(s.fields).forEach(know));
    const steps = answer.steps.filter((s) => typeof s.fields[of]?.mean === "number");
    path(spark, steps.map((s) => ({ x: (s.at - from) / (to - from), ...s.fields[of] })));
    showValue(value, newest, of);
    a.dataset.drawn = shows;
  } catch (e) {
    if (abort.signal.aborted || asked.signal.aborted) return;
    value.textContent = "–";
    value.title = e.message;
  } finally {
    if (asking.get(a) === abort) asking.delete(a);
  }
}

// showValue shows a field of a sensor's newest reading, and its name.
function showValue(value, reading, field) {
  const n = reading.fields[field], name = document.createElement("small");
  name.textContent = field ?? "";
  value.replaceChildren(typeof n === "number" ? format("plain", n, 4) : "–", name);
  value.title = typeof n === "number" ? "newest value of " + field : "no number";
}

// path draws the mean as a line, and the range from the least to the greatest behind it.
function path(svg, points) {
  const low = Math.min(...points.map((p) => p.min)), high = Math.max(...points.map((p) => p.max));
  const x = (p) => (p.x * 120).toFixed(1), y = (v) => (high > low ? 28 - ((v - low) / (high - low)) * 26 : 15).toFixed(1);
  const draw = (className, d) => {
    const p = document.createElementNS("http://www.w3.org/2000/svg", "path");
    if (className) p.setAttribute("class", className);
    p.setAttribute("d", d);
    return p;
  };
  if (points.length === 0) return svg.replaceChildren();
  const upper = points.map((p) => x(p) + " " + y(p.max)), lower = points.map((p) => x(p) + " " + y(p.min)).reverse();
  const line = points.map((p) => x(p) + " " + y(p.mean));
  svg.replaceChildren(draw("band", "M" + [...upper, ...lower].join("L") + "Z"), draw("", "M" + (line.length > 1 ? line : [line[0], line[0]]).join("L")));
}

// know adds a field to the choice.
const fields = new Set();
function know(name) {
  if (fields.has(name) || fields.size >= 256) return;
  fields.add(name);
  field.replaceChildren(new Option("first", ""), ...[...fields].sort().map((f) => new Option(f, f)));
  field.value = fields.has(state().field) ? state().field : "";
}

select.addEventListener("change", () => set({ stream: select.value, sensor: null, from: null, to: null }));
field.addEventListener("change", () => set({ field: field.value }));
more.addEventListener("click", () => list(false));
let typing = 0;
const search = () => set({ prefix: prefix.value, tags: tags.value.trim() }, { replace: true });
prefix.addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(search, 250);
});
tags.addEventListener("change", search);
document.getElementById("find").addEventListener("submit", (e) => {
  e.preventDefault();
  clearTimeout(typing);
  search();
});

// Arrows go through the list; Enter opens, as with every link.
box.addEventListener("keydown", (e) => {
  const all = [...box.querySelectorAll("a")], at = all.indexOf(document.activeElement);
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 }[e.key];
  if (to === undefined || at < 0 || !all[to]) return;
  e.preventDefault();
  all[to].focus();
});
prefix.addEventListener("keydown", (e) => {
  if (e.key !== "ArrowDown") return;
  e.preventDefault();
  box.querySelector("a")?.focus();
});

// What is shown goes on with time, and what could not be listed is asked for again.
setInterval(() => {
  if (document.hidden || document.getElementById("sensors").hidden) return;
  if (listed === "") return list(true);
  for (const a of box.querySelectorAll("a")) delete a.dataset.drawn;
  redraw();
}, 30e3);
