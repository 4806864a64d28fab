// What the pages do beyond loading parts of themselves: times in the reader's zone, copying, keys, and keeping what a reader
// has opened while a page moves. Without it everything is still there.
"use strict";
(() => {
  const said = () => document.getElementById("said");
  let silence = 0;
  function say(text, ms) {
    said().textContent = text;
    clearTimeout(silence);
    if (ms) silence = setTimeout(() => { said().textContent = ""; }, ms);
  }

  const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
  const ago = new Intl.RelativeTimeFormat(undefined, { style: "narrow", numeric: "always" });
  function times(root) {
    for (const t of root.querySelectorAll("time[datetime]")) {
      const at = new Date(t.dateTime), s = (at - Date.now()) / 1000;
      if (isNaN(at)) continue;
      t.title = t.dateTime;
      const short = t.closest("td") !== null;
      let text = exact.format(at);
      if (short && s > -60 && s < 5) text = "just now";
      else if (short && s > -3600) text = ago.format(Math.round(s / 60), "minute");
      else if (short && s > -86400) text = ago.format(Math.round(s / 3600), "hour");
      if (short) t.title = exact.format(at);
      if (t.textContent !== text) t.textContent = text;
    }
  }

  function ready(root) {
    times(root);
    for (const b of root.querySelectorAll("button[hidden].copy, button[hidden][data-keys]")) b.hidden = false;
  }

  // A moving part is put in anew; what a reader has folded and scrolled there stays.
  let kept = null;
  function keep(part) {
    kept = { details: new Map(), scroll: new Map() };
    for (const d of part.querySelectorAll("details[id]")) kept.details.set(d.id, d.open);
    for (const s of part.querySelectorAll("[data-keep][id]")) kept.scroll.set(s.id, [s.scrollLeft, s.scrollTop]);
  }
  function restore() {
    if (!kept) return;
    for (const [id, open] of kept.details) { const d = document.getElementById(id); if (d) d.open = open; }
    for (const [id, at] of kept.scroll) { const s = document.getElementById(id); if (s) [s.scrollLeft, s.scrollTop] = at; }
    kept = null;
  }

  // Windows of tokens: those near the reader are loaded, newest wish first, and those far away given up again, so that a row
  // of a million tokens never stands on the page as a whole.
  const wanted = new Set();
  let loading = 0;
  async function fill() {
    while (loading < 2 && wanted.size) {
      const w = [...wanted].pop();
      wanted.delete(w);
      loading++;
      try {
        const answer = await fetch(w.dataset.load);
        if (answer.ok) {
          w.innerHTML = await answer.text();
          w.classList.add("here");
          w.style.minHeight = "";
        }
      } catch { /* its link is still there, and coming back tries again */ }
      loading--;
    }
  }
  const near = new IntersectionObserver((seen) => {
    for (const e of seen) {
      if (e.isIntersecting && !e.target.querySelector(".t")) wanted.add(e.target);
      else wanted.delete(e.target);
    }
    fill();
  }, { rootMargin: "100% 0px" });
  const far = new IntersectionObserver((seen) => {
    for (const { isIntersecting, target: w } of seen) {
      if (isIntersecting || !w.querySelector(".t") || w.querySelector(".now")) continue;
      w.style.minHeight = w.offsetHeight + "px";
      w.replaceChildren();
      w.classList.remove("here");
    }
  }, { rootMargin: "600% 0px" });
  function windows(root) {
    for (const w of root.querySelectorAll(".window[data-load]")) { near.observe(w); far.observe(w); }
  }

  // Tokens: arrow keys go from one to the next.
  function choose(list, token) {
    list.querySelector(".t.now")?.classList.remove("now");
    if (!token) return;
    token.classList.add("now");
    token.scrollIntoView({ block: "nearest" });
    say(token.title);
  }
  function step(list, by) {
    const all = [...list.querySelectorAll(".t")];
    const i = all.findIndex((t) => t.classList.contains("now"));
    choose(list, all[Math.max(0, Math.min(all.length - 1, i < 0 ? 0 : i + by))]);
  }

  // Lists: j and k go from entry to entry.
  function entry(by) {
    const all = [...document.querySelectorAll("[data-entry]")];
    if (!all.length) return false;
    let i = all.findIndex((e) => e.classList.contains("chosen"));
    if (i >= 0) all[i].classList.remove("chosen");
    i = i < 0 ? (by > 0 ? 0 : all.length - 1) : Math.max(0, Math.min(all.length - 1, i + by));
    all[i].classList.add("chosen");
    all[i].querySelector("a")?.focus({ preventScroll: true });
    all[i].scrollIntoView({ block: "nearest" });
    return true;
  }

  function follow(selector) {
    const a = document.querySelector(selector);
    if (a) a.click();
    return a !== null;
  }

  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || e.target.closest("input, select, textarea, dialog")) return;
    const list = e.target.closest("[data-tokenlist]");
    let done = true;
    if (list && e.key === "ArrowRight") step(list, 1);
    else if (list && e.key === "ArrowLeft") step(list, -1);
    else if (e.key === "j") done = follow("a[rel=next]:not(.pages a)") || entry(1);
    else if (e.key === "k") done = follow("a[rel=prev]") || entry(-1);
    else if (e.key === "u") done = follow("header.bar nav li:last-child a");
    else if (e.key === "/") { const f = document.querySelector("#filters select"); if (f) f.focus(); done = f !== null; }
    else if (e.key === "?") document.getElementById("keys").showModal();
    else done = false;
    if (done) e.preventDefault();
  });

  document.addEventListener("click", async (e) => {
    const copy = e.target.closest("[data-copy]");
    if (copy) {
      try {
        await navigator.clipboard.writeText(copy.dataset.copy);
        say("copied", 1500);
      } catch {
        const code = copy.parentElement.querySelector("code");
        getSelection().selectAllChildren(code);
        say("selected: copy it with Ctrl+C", 3000);
      }
      return;
    }
    if (e.target.closest("[data-keys]")) { document.getElementById("keys").showModal(); return; }
    const list = e.target.closest("[data-tokenlist]");
    if (list) { choose(list, e.target.closest(".t")); return; }
    // A strip leads to the tokens under the pointer.
    const strip = e.target.closest("a.striplink[data-tokens]");
    if (strip && e.clientX) {
      const box = strip.getBoundingClientRect();
      const at = Math.floor((e.clientX - box.left) / box.width * Number(strip.dataset.tokens));
      e.preventDefault();
      location.assign(strip.getAttribute("href").split(/[?#]/)[0] + "?at=" + Math.max(0, at) + "#at");
    }
  });

  document.addEventListener("submit", (e) => {
    const question = e.target.dataset.confirm;
    if (question && !confirm(question)) e.preventDefault();
  });
  document.addEventListener("change", (e) => {
    if (e.target.matches("#filters select, #filters input[type=checkbox]")) e.target.form.requestSubmit();
  });
  document.addEventListener("htmx:beforeSwap", (e) => { if (e.target.id === "live" || e.target.id === "list") keep(e.target); });
  document.addEventListener("htmx:afterSettle", (e) => { restore(); ready(document); });
  document.addEventListener("DOMContentLoaded", () => { ready(document); windows(document); });
  setInterval(() => times(document), 15000);
})();
