// Puts values on an axis of time. A gap in a line is null; where a value is undefined, the
// line goes on.

// ofSeconds puts the history of the daemon on an axis that ends now. Where there is no
// sample, lines have a gap; a few seconds without a value are none, so that a stream that is
// written every five seconds has a line. A daemon that was just started has a short axis.
export function ofSeconds(history, span) {
  const at = [], from = [];
  history.at.forEach((ms, i) => {
    if (i > 0 && ms - history.at[i - 1] > 2500 * history.interval) at.push((ms + history.at[i - 1]) / 2000), from.push(-1);
    at.push(ms / 1000), from.push(i);
  });
  const bridged = 10 / history.interval, now = history.now / 1000;
  const line = (values) => {
    const y = from.map((i) => (i < 0 ? null : values[i]));
    let known = -1;
    for (let i = 0; i < y.length; i++) {
      if (from[i] < 0) known = -1;
      if (y[i] == null) continue;
      if (known >= 0 && i - known <= bridged) y.fill(undefined, known + 1, i);
      known = i;
    }
    return y;
  };
  return { x: { kind: "clock", at, range: [Math.max(now - span, Math.min(at[0], now - 60)), now] }, line };
}

// ofSteps puts the steps of a sensor's summary on an axis, and returns a line of each field.
// Where nothing came for three times as long as usual, lines have a gap.
export function ofSteps(steps, every) {
  const names = [...new Set(steps.flatMap((s) => Object.keys(s.fields)))].sort();
  const apart = steps.slice(1).map((s, i) => s.at - steps[i].at).sort((a, b) => a - b);
  const gap = 3 * (apart[Math.floor(apart.length / 2)] ?? every);
  const at = [], rows = [];
  steps.forEach((s, i) => {
    if (i > 0 && s.at - steps[i - 1].at > gap) at.push((s.at + steps[i - 1].at) / 2000), rows.push(null);
    at.push(s.at / 1000), rows.push(s.fields);
  });
  const value = (v) => (typeof v === "number" ? v : null); // a sum may not fit a double
  const line = (name, of) => rows.map((fields) => (fields === null ? null : fields[name] ? value(fields[name][of]) : undefined));
  return { at, names, line };
}
