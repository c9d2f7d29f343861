"use strict";
(() => {
  const every = 2000, patience = 5000;
  const live = document.getElementById("live"), link = document.getElementById("link");
  const since = document.getElementById("since");
  const select = document.getElementById("stream"), small = matchMedia("(max-width: 640px)");
  let lostSince = 0, said = 0, turn = 0, timer = 0;

  const say = (words, fine) => {
    link.textContent = words;
    link.classList.toggle("fine", Boolean(fine));
  };
  const lost = () => {
    const words = "The daemon does not answer";
    document.body.classList.add("lost");
    if (link.textContent !== words) say(words); // which is read out; the seconds are not
    since.textContent = "since " + Math.round((Date.now() - lostSince) / 1000) + " s";
  };
  const open = () => new Set(Array.from(live.querySelectorAll("details[open]"), (d) => d.id));

  // What is opened stays open, and what was scrolled aside stays so.
  const show = (html) => {
    const opened = open(), aside = Array.from(live.querySelectorAll(".scroll"), (s) => s.scrollLeft);
    live.innerHTML = html;
    live.querySelectorAll("details").forEach((d) => { d.open = opened.has(d.id); });
    live.querySelectorAll(".scroll").forEach((s, i) => { s.scrollLeft = aside[i] || 0; });
  };

  const update = async () => {
    clearTimeout(timer);
    if (document.hidden) return; // until it is seen again
    const mine = ++turn;
    try {
      const query = new URLSearchParams();
      if (select.value) query.set("stream", select.value);
      if (small.matches) query.set("narrow", "");
      // Of the origin: what is relative has the password of the page's address, if
      // there is one, and is refused for that.
      const answer = await fetch(location.origin + "/console?" + query, { signal: AbortSignal.timeout(patience), cache: "no-store" });
      if (!answer.ok) throw new Error(answer.status);
      const html = await answer.text();
      if (mine !== turn) return;
      if (answer.headers.get("Brim-Page") !== document.body.dataset.edition) return location.reload();
      if (lostSince) {
        lostSince = 0;
        document.body.classList.remove("lost");
        say("");
        since.textContent = "";
      }
      show(html);
    } catch {
      if (mine !== turn) return;
      if (!lostSince) lostSince = Date.now();
      lost();
    }
    timer = setTimeout(update, every);
  };

  select.addEventListener("change", () => {
    const url = new URL(location);
    if (select.value) url.searchParams.set("stream", select.value);
    else url.searchParams.delete("stream");
    history.replaceState(null, "", url);
    update();
  });
  document.getElementById("choose").addEventListener("submit", (e) => e.preventDefault());

  document.getElementById("flush").addEventListener("submit", async (e) => {
    e.preventDefault();
    const button = e.target.querySelector("button"), mine = ++said;
    button.disabled = true;
    say("Storing pending readings …", true);
    try {
      const answer = await fetch(location.origin + "/flush", { method: "POST" });
      const told = await answer.json();
      say(answer.ok ? "Stored within " + told.seconds.toFixed(2) + " s" : told.message, answer.ok);
    } catch {
      say("The flush was not answered");
    }
    button.disabled = false;
    setTimeout(() => { if (mine === said && !lostSince) say(""); }, 8000);
  });

  setInterval(() => { if (lostSince) lost(); }, 1000);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) update(); });
  small.addEventListener("change", update);
  if (small.matches) update();
  else timer = setTimeout(update, every);
})();
