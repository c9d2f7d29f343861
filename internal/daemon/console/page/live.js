// Asks the daemon every two seconds for what has changed: the parts of the page that it
// renders itself, and the seconds that the charts are drawn from.
import { state } from "./state.js";
import { drawOverview } from "./overview.js";

const patience = 5000;
const link = document.getElementById("link"), since = document.getElementById("since");
let lostSince = 0, turn = 0, timer = 0, every = 0;

// history is all known seconds, in columns.
export const history = { at: [], streams: [], restarted: [] };
const columns = ["in", "stored", "lag", "oldest", "pastDue", "queue", "merging", "journal"];

// fetchLive asks this daemon. An address that is relative has the password of the page's
// own, if there is one, and is refused for that.
export const fetchLive = (path, options = {}) => fetch(location.origin + path, { cache: "no-store", ...options });

// add appends new seconds, and drops those that are over 15 minutes old.
function add(next) {
  const old = next.now - 15 * 60e3;
  const keep = history.at.findIndex((at) => at > old);
  const join = (before = [], after = []) => (keep < 0 ? [] : before.slice(keep)).concat(after);
  const streams = new Map(history.streams.map((s) => [s.name, s]));
  const missing = Array(history.at.length).fill(null);
  for (const name of columns) history[name] = join(history[name], next[name]);
  history.streams = next.streams.map((s) => {
    const before = streams.get(s.name);
    for (const name of ["p50", "p99", "fill"]) s[name] = join(before?.[name] ?? missing, s[name]);
    return s;
  });
  history.restarted = history.restarted.filter((at) => at > old).concat(next.restarted ?? []);
  history.at = join(history.at, next.at);
  history.interval = next.interval;
  history.now = next.now;
}

// show replaces the rendered parts. What is open stays open, and what was scrolled aside
// stays so.
function show(html) {
  const parts = document.createElement("template");
  parts.innerHTML = html;
  for (const part of [...parts.content.children]) {
    const old = document.getElementById(part.id);
    const open = new Set(Array.from(old.querySelectorAll("details[open]"), (d) => d.id));
    const aside = Array.from(old.querySelectorAll(".scroll"), (s) => s.scrollLeft);
    const focused = old.contains(document.activeElement) ? document.activeElement.closest("details")?.id : "";
    part.querySelectorAll("details").forEach((d) => { d.open = open.has(d.id); });
    old.replaceWith(part);
    part.querySelectorAll(".scroll").forEach((s, i) => { s.scrollLeft = aside[i] || 0; });
    if (focused) document.getElementById(focused)?.querySelector("summary").focus();
  }
  localTime();
}

// localTime shows the time of the last sample in the reader's time zone.
function localTime() {
  for (const t of document.querySelectorAll("time")) t.textContent = new Date(t.dateTime).toLocaleTimeString("en-GB");
}

function lost() {
  const words = "The daemon has not answered";
  document.body.classList.add("lost");
  if (link.textContent !== words) link.textContent = words; // which is read out; the seconds are not
  link.classList.remove("fine");
  since.textContent = "for " + Math.round((Date.now() - lostSince) / 1000) + " s";
}

// update asks once, and again after a while.
export async function update() {
  clearTimeout(timer);
  if (document.hidden) return; // until it is seen again
  const mine = ++turn;
  try {
    const get = async (path) => {
      const answer = await fetchLive(path, { signal: AbortSignal.timeout(patience) });
      if (!answer.ok) throw new Error(answer.status);
      return answer;
    };
    const stream = state().stream ?? "", after = history.at.at(-1);
    const [parts, seconds] = await Promise.all([
      get("/console?" + new URLSearchParams({ stream })),
      get("/console/seconds" + (after ? "?after=" + after : "")),
    ]);
    const [html, next] = [await parts.text(), await seconds.json()];
    if (mine !== turn) return;
    if (parts.headers.get("Brim-Page") !== document.body.dataset.edition) return location.reload();
    if (lostSince) {
      lostSince = 0;
      document.body.classList.remove("lost");
      link.textContent = since.textContent = "";
    }
    if (after > next.now) history.at = []; // the daemon's clock was set back: all of it comes next time
    else add(next);
    show(html);
    drawOverview();
  } catch (e) {
    if (mine !== turn) return;
    if (!(e instanceof TypeError || e instanceof DOMException || /^\d+$/.test(e.message))) console.error(e);
    if (!lostSince) lostSince = Date.now();
    lost();
  }
  timer = setTimeout(update, every);
}

// pollEvery begins to ask.
export function pollEvery(milliseconds) {
  every = milliseconds;
  localTime();
  update();
  setInterval(() => { if (lostSince) lost(); }, 1000);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) update(); });
}
