// What the page shows is in the fragment of its address, so that it can be shared:
//
//   #tab=overview&stream=readings&last=5m
//   #tab=sensors&stream=readings&prefix=plant-&tags=site%3Dnorth&sensor=plant-1&range=24h
//   #tab=sensors&sensor=plant-1&from=2026-11-23T08:00:00.000Z&to=2026-11-23T09:00:00.000Z
const watchers = [];

// state returns the parameters of the fragment.
export const state = () => Object.fromEntries(new URLSearchParams(location.hash.slice(1)));

// link returns the fragment with some parameters changed; null removes one.
export function link(changes) {
  const params = new URLSearchParams(location.hash.slice(1));
  for (const [name, value] of Object.entries(changes)) {
    if (value == null || value === "") params.delete(name);
    else params.set(name, value);
  }
  return "#" + params;
}

// set changes parameters; with replace, going back skips the change.
export function set(changes, { replace = false } = {}) {
  const hash = link(changes);
  if (hash === location.hash) return;
  history[replace ? "replaceState" : "pushState"](null, "", hash);
  again();
}

// watch calls a function after each change.
export const watch = (tell) => watchers.push(tell);
addEventListener("popstate", () => again());

// again tells all watchers, as if something had changed.
export const again = () => watchers.forEach((tell) => tell());

// choose makes the buttons of a fieldset select a parameter, and returns a function that
// shows which one is selected.
export function choose(fieldset, name, also = {}) {
  const buttons = [...fieldset.querySelectorAll("button")];
  for (const button of buttons) {
    button.type = "button";
    button.addEventListener("click", () => set({ [name]: button.value, ...also }));
  }
  return (value) => buttons.forEach((b) => b.setAttribute("aria-pressed", String(b.value === value)));
}

// milliseconds of a range like 15m, 6h or 30d.
export const milliseconds = (range) => Number.parseInt(range, 10) * { m: 60e3, h: 3600e3, d: 86400e3 }[range.at(-1)];
