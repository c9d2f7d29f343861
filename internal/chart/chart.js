// Draws charts with uPlot, which is loaded before. A chart is described as in chart.go:
// panels above each other with one X axis. The live page uses some more:
//
//   small   one of many beside each other
//   empty   what it says when there is nothing to draw
//   x.kind  clock; x.range: both ends of the axis
//   panels  bounds: least and greatest value, in common with other charts; free: the axis need
//           not begin at 0; digits of values that are read out; unit plain

// The multiples of each unit: [least value written in it, factor, suffix], the largest first.
const scales = {
  seconds: [[172800, 86400, " d"], [7200, 3600, " h"], [120, 60, " min"], [1, 1, " s"], [1e-3, 1e-3, " ms"], [0, 1e-6, " µs"]],
  perSecond: [[1e9, 1e9, "G/s"], [1e6, 1e6, "M/s"], [1e4, 1e3, "k/s"], [0, 1, "/s"]],
  ratio: [[0, 0.01, " %"]],
  bytes: [[2 ** 40, 2 ** 40, " TiB"], [2 ** 30, 2 ** 30, " GiB"], [2 ** 20, 2 ** 20, " MiB"], [1024, 1024, " KiB"], [0, 1, " B"]],
  count: [[1e9, 1e9, "G"], [1e6, 1e6, "M"], [1e4, 1e3, "k"], [0, 1, ""]],
  decimalBytes: [[1e12, 1e12, " TB"], [1e9, 1e9, " GB"], [1e6, 1e6, " MB"], [1e3, 1e3, " KB"], [0, 1, " B"]],
  plain: [[0, 1, ""]],
};

// rounded has so many digits, and is a whole number where it would have none after the point.
const rounded = (v, digits) => (Math.abs(v) >= 10 ** digits && Math.abs(v) < 1e4 ? Math.round(v) : Number(v.toPrecision(digits)));

// format writes a value with three digits, as format.go does, or with more; in the multiple
// that another value would be written in, if one is given.
export function format(unit, value, digits = 3, like = value) {
  if (value == null || !Number.isFinite(value)) return "–";
  if (like === 0) return "0" + (unit === "seconds" ? " s" : scales[unit].at(-1)[2]);
  const size = Math.max(Math.abs(like), Math.abs(rounded(like, digits)));
  const [, factor, suffix] = scales[unit].find(([from]) => size >= from);
  const scaled = value / factor;
  if (Math.abs(scaled) >= 1e15 || (unit === "plain" && scaled !== 0 && Math.abs(scaled) < 1e-4)) return scaled.toExponential(digits - 1) + suffix;
  return rounded(scaled, digits).toLocaleString("en", { maximumFractionDigits: 15 }) + suffix;
}

const two = (n) => String(n).padStart(2, "0");

// clock writes a time, in seconds since the epoch, as exactly as a step of so many seconds needs.
export function clock(at, step = 1) {
  const d = new Date(at * 1000);
  const day = d.toLocaleDateString("en", { day: "numeric", month: "short" });
  if (step >= 86400 * 300) return String(d.getFullYear());
  if (step >= 86400) return day;
  const minutes = two(d.getHours()) + ":" + two(d.getMinutes());
  if (step >= 60) return minutes;
  const seconds = minutes + ":" + two(d.getSeconds());
  return step >= 1 ? seconds : seconds + "." + String(d.getMilliseconds()).padStart(3, "0");
}

// date writes a time with its day.
export const date = (at, step = 1) => new Date(at * 1000).toLocaleDateString("en", { day: "numeric", month: "short", year: "numeric" }) + (step < 86400 ? " " + clock(at, step) : "");

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const tone = (i) => style("--chart-" + "abcdef"[i % 6]);
const font = () => "12px " + getComputedStyle(document.body).fontFamily;

// xLabels writes the labels of an axis from left to right. A time that begins a new day has
// its date below it.
function xLabels(x) {
  return (u, at, axis, space, step) => {
    let before = "";
    return at.map((v) => {
      if (v == null) return "";
      switch (x.kind) {
        case "names": return x.names[v] ?? "";
        case "percentile": return format("plain", 100 * (1 - 1 / v), 6) + " %";
        case "elapsed": return format("seconds", v);
        case "clock": {
          const day = clock(v, 86400), label = clock(v, step);
          const first = day !== before && step < 86400;
          before = day;
          return first && u.scales.x.max - u.scales.x.min > 43200 ? label + "\n" + day : label;
        }
        default: return format("count", v);
      }
    });
  };
}

// where says what the crosshair points at.
function where(x, at, step) {
  switch (x.kind) {
    case "names": return x.names[at] ?? "";
    case "percentile": return format("plain", 100 * (1 - 1 / at), 6) + " %";
    case "elapsed": return format("seconds", at);
    case "clock": return step >= 86400 || Date.now() / 1000 - at > 43200 ? date(at, step) : clock(at, step);
    default: return (x.label ? x.label + " " : "") + format("count", at);
  }
}

function xAxis(x, last) {
  const axis = { stroke: () => style("--chart-ink"), font: font(), grid: { show: false }, ticks: { show: false }, gap: 4, size: 24, values: xLabels(x), show: last };
  if (x.kind === "clock") {
    const m = 60, h = 3600, d = 86400;
    axis.incrs = [0.001, 0.01, 0.1, 1, 2, 5, 10, 15, 30, m, 2 * m, 5 * m, 10 * m, 15 * m, 30 * m, h, 2 * h, 3 * h, 6 * h, 12 * h, d, 2 * d, 7 * d, 14 * d, 30 * d, 90 * d, 365 * d];
    axis.space = 64;
    axis.size = (u, labels) => (labels?.some((l) => l.includes("\n")) ? 36 : 22); // a second line has the date
  }
  if (x.kind === "percentile") axis.splits = (u) => [50, 90, 99, 99.9, 99.99, 99.999].map((p) => 1 / (1 - p / 100)).filter((v) => v <= u.scales.x.max * 1.01);
  if (x.kind === "percentile") axis.filter = (u, at) => at;
  if (x.kind === "names") {
    const widest = Math.max(0, ...x.names.map((n) => n.length)) * 6.6 + 10;
    axis.splits = () => x.names.map((_, i) => i);
    axis.filter = (u, at) => at;
    axis.values = (u, at) => {
      const room = u.bbox.width / devicePixelRatio / x.names.length;
      const short = Math.floor(room / 6.6);
      if (widest <= room || short >= 8) return at.map((i) => (x.names[i].length > short ? x.names[i].slice(0, short - 1) + "…" : x.names[i]));
      const every = Math.ceil(widest / room);
      return at.map((i) => (i % every === 0 ? x.names[i] : ""));
    };
  }
  if (x.label && last) Object.assign(axis, { label: x.label, labelSize: 18, labelFont: font() });
  return axis;
}

// yRange of a linear axis begins at 0, unless values may be anywhere.
// Charts that are to be compared have bounds in common.
const yRange = (current) => (u, least, greatest) => {
  const panel = current();
  const [low, high] = panel.bounds ?? [least, greatest];
  if (low == null) return panel.log ? [0.001, 0.01] : [0, 1];
  if (panel.log) {
    const [from, to] = [10 ** Math.floor(Math.log10(low) + 1e-9), 10 ** Math.ceil(Math.log10(high) - 1e-9)];
    return [from, Math.max(to, from * 10)];
  }
  if (panel.max) return [0, panel.max];
  if (panel.free) return uPlot.rangeNum(low, high === low ? low + (Math.abs(low) || 1) * 1e-3 : high, 0.1, true);
  return uPlot.rangeNum(Math.min(0, low), Math.max(high, low < 0 ? 0 : high || 1), { min: { pad: low < 0 ? 0.1 : 0 }, max: { pad: 0.1 } });
};

// A bar of each series stands at each place, beside those of the others. A thin line goes up
// to the greatest of the repeats.
const bars = (series, of, ranged) => (u, i, from, to) => {
  const path = new Path2D(), group = u.bbox.width / (u.scales.x.max - u.scales.x.min) * 0.76;
  const width = Math.min(group / of, 28 * devicePixelRatio), bottom = u.bbox.top + u.bbox.height;
  for (let j = from; j <= to; j++) {
    if (u.data[i][j] == null) continue;
    const left = u.valToPos(u.data[0][j], "x", true) + (series - of / 2) * width, top = Math.min(u.valToPos(u.data[i][j], "y", true), bottom);
    path.rect(left + width * 0.05, top, width * 0.9, bottom - top);
    const high = ranged ? u.data[i + 2][j] : null;
    if (high > u.data[i][j]) path.rect(left + width / 2 - 1, u.valToPos(high, "y", true), 2, top - u.valToPos(high, "y", true));
  }
  return { stroke: null, fill: path };
};

// Values without neighbours have no line, so they are points. Where a value is undefined
// rather than null, the line goes on.
const isolated = (u, i) => {
  const y = u.data[i], out = [];
  let last = -1, alone = false;
  const end = () => { if (alone) out.push(last); };
  y.forEach((v, j) => {
    if (v === undefined) return;
    if (v === null) return end(), last = -1, alone = false;
    alone = last < 0;
    last = j;
  });
  end();
  return out;
};

// columns returns what uPlot draws of a panel: the places, each series, and its range.
function columns(chart, panel) {
  const shown = (y) => (panel.log ? y.map((v) => (v > 0 ? v : null)) : y);
  return [chart.x.at, ...panel.series.flatMap((s) => (s.low ? [shown(s.y), shown(s.low), shown(s.high)] : [shown(s.y)]))];
}

function seriesOf(panel) {
  const out = [{}], bands = [];
  panel.series.forEach((s, at) => {
    const colour = () => tone(s.tone ?? at), fill = () => colour() + "33";
    const line = { label: s.name ?? "", stroke: colour, width: 1.6, spanGaps: Boolean(s.bridge), points: { show: Boolean(s.points), size: 6, width: 0, fill: colour, filter: s.points ? undefined : isolated } };
    if (s.dashed) line.dash = [5, 4];
    if (s.filled) line.fill = fill;
    if (panel.bars) Object.assign(line, { paths: bars(at, panel.series.length, Boolean(s.low)), fill: colour, points: { show: false } });
    const i = out.push(line) - 1;
    if (s.low) {
      const edge = { width: 0, points: { show: false }, spanGaps: Boolean(s.bridge) };
      out.push({ ...edge }, { ...edge });
      if (!panel.bars) bands.push({ series: [i + 2, i + 1], fill });
    }
  });
  return { series: out, bands };
}

const element = (name, words, className) => {
  const e = document.createElement(name);
  if (words) e.textContent = words;
  if (className) e.className = className;
  return e;
};

// draw shows a chart in an element, and returns functions to change it and to remove it.
// Options: sync, the name that charts share whose crosshairs move together; zoom(from, to),
// called when a span was dragged, or with nothing at a double click; height of the first
// panel.
export function draw(holder, chart, options = {}) {
  const box = element("div", "", "chart");
  holder.replaceChildren(box);
  const plots = [], key = options.sync ?? uPlot.sync("chart" + Math.random()).key;
  const stepOf = () => {
    const at = chart.x.at, n = at.length;
    return n > 1 ? Math.min(1, (at[n - 1] - at[0]) / (n - 1)) || 1 : 1;
  };

  const head = element("div", "", "chart-head"), place = element("span", "", "chart-at");
  head.append(element("strong", chart.title), place);
  box.append(head);

  const build = (panel, index) => {
    const last = index === chart.panels.length - 1, holder = element("div", "", "chart-panel");
    const legend = element("div", "", "chart-legend");
    if (panel.label) legend.append(element("span", panel.label, "chart-label"));
    const values = panel.series.map((s, i) => {
      const item = element("span", "", "chart-item"), mark = element("i", "", "chart-mark tone-" + ((s.tone ?? i) % 6) + (s.dashed ? " dashed" : ""));
      const value = element("b");
      if (s.name || panel.series.length > 1) item.append(mark, s.name + " ");
      item.append(value);
      legend.append(item);
      return value;
    });
    holder.append(legend);
    box.append(holder);

    const places = panel.series.map((s, i) => 1 + panel.series.slice(0, i).reduce((n, t) => n + (t.low ? 3 : 1), 0));
    // Where the crosshair is not, the newest values are read out of what goes on with time.
    const read = (u) => {
      const at = u.cursor.idx;
      panel.series.forEach((s, i) => {
        const y = u.data[places[i]];
        let j = at;
        if (at == null) j = chart.x.kind === "clock" ? y.findLastIndex((v) => v != null) : -1;
        const unit = s.unit ?? panel.unit, v = j >= 0 ? y[j] : null;
        let words = v == null ? (at == null ? "" : "–") : format(unit, v, panel.digits);
        if (v != null && s.low && u.data[places[i] + 1][j] !== u.data[places[i] + 2][j]) words += ` (${format(unit, u.data[places[i] + 1][j], panel.digits)} to ${format(unit, u.data[places[i] + 2][j], panel.digits)})`;
        values[i].textContent = words;
      });
      if (index === 0) place.textContent = at == null ? "" : where(chart.x, u.data[0][at], stepOf());
    };

    const small = chart.small, first = small ? 150 : 210;
    const height = panel.height ?? (index === 0 ? options.height ?? first : small ? 64 : 84);
    const { series, bands } = seriesOf(panel);
    const names = chart.x.kind === "names";
    const u = new uPlot({
      width: Math.max(box.clientWidth, 120), height: height + (last ? 24 : 0), pxAlign: 1, series, bands, legend: { show: false },
      padding: [8, 16, last ? null : 10, 0],
      scales: {
        x: {
          time: false, distr: chart.x.log || chart.x.kind === "percentile" ? 3 : 1,
          range: (u, low, high) => chart.x.range ?? (names ? [-0.5, chart.x.names.length - 0.5] : low == null ? [0, 1] : low === high ? [low - 1, high + 1] : [low, high]),
        },
        y: { distr: panel.log ? 3 : 1, range: yRange(() => chart.panels[index]) },
      },
      axes: [
        xAxis(chart.x, last),
        { stroke: () => style("--chart-ink"), font: font(), grid: { stroke: () => style("--chart-grid"), width: 1 }, ticks: { show: false }, gap: 4, size: 62, space: index === 0 ? 34 : 22,
          values: (u, at) => at.map((v) => (v == null ? "" : format(panel.unit, v, 4, panel.log ? v : at.at(-1)))), ...(panel.log || !increments[panel.unit] ? {} : { incrs: increments[panel.unit] }) },
      ],
      cursor: {
        sync: { key, setSeries: false }, y: false, points: { size: 7 }, drag: { x: Boolean(options.zoom), y: false, setScale: false, dist: 6 },
        bind: options.zoom ? { dblclick: () => () => { options.zoom(); return null; } } : { dblclick: () => null },
      },
      hooks: {
        setCursor: [read], setData: [read],
        setSelect: [(u) => {
          if (!options.zoom || u.select.width < 6) return;
          const [from, to] = [u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x")];
          for (const p of plots) p.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          options.zoom(from, to);
        }],
        draw: [(u) => {
          const pen = u.ctx;
          pen.save();
          pen.strokeStyle = pen.fillStyle = style("--chart-ink");
          pen.setLineDash([2 * devicePixelRatio, 3 * devicePixelRatio]);
          pen.beginPath();
          for (const mark of chart.marks ?? []) {
            if (mark < u.scales.x.min || mark > u.scales.x.max) continue;
            const at = u.valToPos(mark, "x", true);
            pen.moveTo(at, u.bbox.top);
            pen.lineTo(at, u.bbox.top + u.bbox.height);
          }
          pen.stroke();
          if (!u.data.slice(1).some((y) => y.some((v) => v != null))) {
            pen.font = 12 * devicePixelRatio + "px " + getComputedStyle(document.body).fontFamily;
            pen.textAlign = "center";
            pen.fillText(chart.empty ?? "no data yet", u.bbox.left + u.bbox.width / 2, u.bbox.top + u.bbox.height / 2);
          }
          pen.restore();
        }],
      },
    }, columns(chart, panel), holder);
    u.root.setAttribute("role", "img");
    u.root.setAttribute("aria-label", [chart.title, panel.label].filter(Boolean).join(": "));
    read(u);
    return u;
  };
  chart.panels.forEach((panel, i) => plots.push(build(panel, i)));

  const resize = new ResizeObserver(() => {
    for (const u of plots) if (box.clientWidth > 0 && box.clientWidth !== u.width) u.setSize({ width: box.clientWidth, height: u.height });
  });
  resize.observe(box);
  const dark = matchMedia("(prefers-color-scheme: dark)"), repaint = () => plots.forEach((u) => u.redraw(false, true));
  dark.addEventListener("change", repaint);

  return {
    // update shows other values of the same series.
    update(next) {
      chart = next;
      next.panels.forEach((panel, i) => plots[i].setData(columns(next, panel)));
    },
    destroy() {
      resize.disconnect();
      dark.removeEventListener("change", repaint);
      plots.forEach((u) => u.destroy());
      box.remove();
    },
  };
}

// Ticks are at round numbers of what a unit is written in.
const decades = Array.from({ length: 24 }, (_, i) => 10 ** (i - 12)).flatMap((d) => [d, 2 * d, 5 * d]);
const increments = {
  bytes: Array.from({ length: 50 }, (_, i) => 2 ** i),
  seconds: [...decades.filter((d) => d < 15), 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 43200, 86400, ...decades.filter((d) => d >= 5).map((d) => d * 86400)],
};
