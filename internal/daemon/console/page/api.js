// Asks the reading API, at most two questions at a time, so that a page full of sensors
// leaves the daemon time for others.
import { fetchLive } from "./live.js";

const most = 2;
const waiting = [];
let asking = 0;

function next() {
  while (asking < most && waiting.length > 0) {
    const one = waiting.shift();
    if (one.signal?.aborted) {
      one.reject(one.signal.reason);
      continue;
    }
    asking++;
    ask(one).then(one.resolve, one.reject).finally(() => { asking--; next(); });
  }
}

async function ask({ path, signal }) {
  const answer = await fetchLive(path, { signal });
  if (answer.ok) return answer.json();
  const told = await answer.json().catch(() => ({}));
  throw Object.assign(new Error(told.message ?? "the daemon answered " + answer.status), { status: answer.status });
}

// get returns the answer to GET path, with parameters that are not empty; a list is a
// parameter that is repeated.
export function get(path, parameters = {}, signal = undefined) {
  const query = new URLSearchParams(Object.entries(parameters).flatMap(([name, v]) => [v].flat().map((one) => [name, one])).filter(([, v]) => v != null && v !== ""));
  return new Promise((resolve, reject) => {
    waiting.push({ path: path + "?" + query, signal, resolve, reject });
    next();
  });
}

// pathOf is the path of a sensor's answers.
export const pathOf = (sensor, what) => "/v1/sensors/" + encodeURIComponent(sensor) + "/" + what;

// iso writes milliseconds as the API takes times.
export const iso = (ms) => new Date(ms).toISOString();

const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 10e3, 15e3, 30e3, 60e3, 120e3, 300e3, 600e3, 900e3, 1800e3, 3600e3, 7200e3, 10800e3, 21600e3, 43200e3, 86400e3, 2 * 86400e3, 7 * 86400e3];

// summary asks for a sensor's fields between two times in about so many steps, and returns
// the answer with the length of a step. Times are milliseconds.
export async function summary(stream, sensor, from, to, points, signal) {
  const every = steps.find((s) => s >= (to - from) / points) ?? steps.at(-1);
  const begin = Math.max(0, Math.floor(from / every) * every);
  const answer = await get(pathOf(sensor, "summary"), { stream, from: iso(begin), to: iso(to), every: every + "ms" }, signal);
  return { every, steps: answer.summary.map((s) => ({ at: Date.parse(s.start), count: s.count, fields: s.fields })) };
}

// spanOf returns from and to of a range that ends now; of a sensor that has been silent for
// longer, it ends with its newest reading.
export function spanOf(range, newest) {
  const now = Date.now();
  const to = newest < now - range || newest > now ? newest + 1 : now;
  return { from: to - range, to };
}
