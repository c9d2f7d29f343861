// The charts of the first tab, over the last 1, 5 or 15 minutes.
import { draw } from "./chart.js";
import { choose, milliseconds, set, state } from "./state.js";
import { history, update } from "./live.js";
import { ofSeconds } from "./timeline.js";

const select = document.getElementById("stream");
const pressed = choose(document.getElementById("last"), "last");
select.addEventListener("change", () => set({ stream: select.value }));

const drawn = new Map(); // by the element's id: the chart, and what it consists of
const most = 12; // streams that are drawn
let shown = "";

// showOverview follows the address.
export function showOverview() {
  const { stream = "", last = "15m" } = state();
  select.value = [...select.options].some((o) => o.value === stream) ? stream : "";
  pressed(last);
  if (shown !== select.value && history.at.length > 0) update();
  shown = select.value;
  drawOverview();
}

// place draws a chart in an element, or changes the one that is there.
function place(id, chart) {
  const shape = chart.title + chart.panels.map((p) => p.series.length).join();
  const there = drawn.get(id);
  if (there?.shape === shape) return there.chart.update(chart);
  there?.chart.destroy();
  drawn.set(id, { shape, chart: draw(document.getElementById(id), chart, { sync: chart.x.kind === "clock" ? "overview" : undefined }) });
}

// common returns the least and the greatest of values that the axis shows, for charts that
// are to be compared.
function common(x, all) {
  let low = Infinity, high = -Infinity;
  for (const y of all) y.forEach((v, i) => { if (v > 0 && (x == null || x.at[i] >= x.range[0])) low = Math.min(low, v), high = Math.max(high, v); });
  return low <= high ? [low, high] : null;
}

// drawOverview draws what is known.
export function drawOverview() {
  if (history.at.length === 0 || document.getElementById("overview").hidden) return;
  const { x, line } = ofSeconds(history, milliseconds(state().last ?? "15m") / 1000 || 900), marks = history.restarted.map((ms) => ms / 1000);
  const chart = (title, ...panels) => ({ title, x, marks, panels });
  place("chart-rate", chart("Readings per second", { unit: "perSecond", series: [
    { name: "ingested", tone: 0, y: line(history.in) }, { name: "stored", tone: 2, dashed: true, y: line(history.stored) },
  ] }, { label: "Merging: readings per update", unit: "count", series: [{ tone: 2, y: line(history.merging) }] }));
  place("chart-lag", chart("Lag: how far MongoDB is behind", { unit: "seconds", series: [
    { name: "oldest not stored", tone: 1, y: line(history.oldest) }, { name: "p50 when stored", tone: 0, y: line(history.lag) },
  ] }, { label: "Past due: how late updates are", unit: "seconds", series: [{ tone: 1, y: line(history.pastDue) }] }));
  place("chart-pending", chart("Pending: readings accepted and not stored yet", { unit: "count", series: [{ tone: 3, filled: true, y: line(history.queue) }] }));
  place("chart-journal", chart("Journal: what it keeps, stored readings included until their file is deleted", { unit: "bytes", series: [{ tone: 3, filled: true, y: line(history.journal) }] }));
  drawStreams(x, line, marks);
}

// drawStreams draws each stream with the same axes, so that they can be compared.
function drawStreams(x, line, marks) {
  const { stream } = state(), box = document.getElementById("chart-streams");
  const chosen = history.streams.filter((s) => s.name === stream);
  const streams = (chosen.length > 0 ? chosen : history.streams).slice(0, most);
  const ids = streams.map((s) => "stream-" + history.streams.indexOf(s));
  if (box.dataset.shown !== JSON.stringify([ids, streams.map((s) => s.name)])) {
    box.dataset.shown = JSON.stringify([ids, streams.map((s) => s.name)]);
    for (const id of [...drawn.keys()].filter((id) => id.startsWith("stream-"))) drawn.get(id).chart.destroy(), drawn.delete(id);
    box.replaceChildren(...streams.map((s, i) => {
      const figure = document.createElement("figure"), caption = document.createElement("figcaption");
      caption.textContent = s.name;
      const about = document.createElement("span");
      about.className = "note";
      about.textContent = " " + s.storage + (s.granularity ? ", window " + s.granularity : "");
      caption.append(about);
      figure.append(caption, ...["-time", "-fill"].map((part) => {
        const place = document.createElement("div");
        place.id = ids[i] + part;
        return place;
      }));
      return figure;
    }));
  }
  const times = streams.map((s) => ({ p50: line(s.p50), p99: line(s.p99), fill: line(s.fill) }));
  const latency = common(x, times.flatMap((t) => [t.p50, t.p99])), byFill = common(null, streams.flatMap((s) => [s.byFill.p50, s.byFill.p99]));
  const small = streams.length > 1, fills = { kind: "names", names: Array.from({ length: 10 }, (_, i) => i * 10 + "–" + (i + 1) * 10 + " %"), at: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9] };
  streams.forEach((s, i) => {
    place(ids[i] + "-time", { title: "Write latency", x, marks, small, panels: [
      { unit: "seconds", log: true, bounds: latency, series: [{ name: "p50", tone: 0, y: times[i].p50 }, { name: "p99", tone: 1, y: times[i].p99 }] },
      { label: "fill of the buckets being written", unit: "ratio", max: 1, series: [{ tone: 2, filled: true, y: times[i].fill }] },
    ] });
    place(ids[i] + "-fill", { title: "Write latency by bucket fill", x: fills, small, panels: [
      { unit: "seconds", log: true, bars: true, bounds: byFill, series: [{ name: "p50", tone: 0, y: s.byFill.p50 }, { name: "p99", tone: 1, y: s.byFill.p99 }] },
    ] });
  });
}
