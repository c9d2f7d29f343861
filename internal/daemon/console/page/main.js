// The live page: its tabs, the connection to the daemon, and the button that flushes.
import { set, state, watch } from "./state.js";
import { fetchLive, pollEvery } from "./live.js";
import { showOverview } from "./overview.js";
import { showSensors } from "./sensors.js";

const tabs = [...document.querySelectorAll("[role=tab]")];
const nameOf = (tab) => tab.getAttribute("aria-controls");

// show selects the tab that the address names.
function show() {
  const chosen = tabs.find((t) => nameOf(t) === state().tab) ?? tabs[0];
  for (const tab of tabs) {
    tab.setAttribute("aria-selected", String(tab === chosen));
    tab.tabIndex = tab === chosen ? 0 : -1;
    document.getElementById(nameOf(tab)).hidden = tab !== chosen;
  }
  document.title = (nameOf(chosen) === "sensors" ? (state().sensor ?? "Sensors") + " · " : "") + "Brim";
  (nameOf(chosen) === "sensors" ? showSensors : showOverview)();
}

for (const tab of tabs) {
  tab.addEventListener("click", () => set({ tab: nameOf(tab) }));
  tab.addEventListener("keydown", (e) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, Home: -tabs.indexOf(tab), End: tabs.length - 1 - tabs.indexOf(tab) }[e.key];
    if (step === undefined) return;
    e.preventDefault();
    const next = tabs[(tabs.indexOf(tab) + step + tabs.length) % tabs.length];
    next.focus();
    set({ tab: nameOf(next) });
  });
}
watch(show);
show();
pollEvery(2000);

const link = document.getElementById("link");
let said = 0;
document.getElementById("flush").addEventListener("submit", async (e) => {
  e.preventDefault();
  const button = e.target.querySelector("button"), mine = ++said;
  const say = (words, fine) => {
    link.textContent = words;
    link.classList.toggle("fine", Boolean(fine));
  };
  button.disabled = true;
  say("Storing pending readings …", true);
  try {
    const answer = await fetchLive("/flush", { method: "POST" });
    const told = await answer.json();
    say(answer.ok ? "Stored within " + told.seconds.toFixed(2) + " s" : told.message, answer.ok);
  } catch {
    say("The flush was not answered");
  }
  button.disabled = false;
  setTimeout(() => { if (mine === said) say(""); }, 8000);
});
