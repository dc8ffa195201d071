// Keeps the page fresh: on every tick the same address is asked again, with its ETag, and the
// content of <main> is exchanged. Without this file the page is complete, only not live.
"use strict";
(() => {
  const POLL_MS = 5000;
  const pause = document.getElementById("pause");
  let paused = false;
  let etag = null;
  let running = false;
  let again = false;

  async function refresh() {
    if (paused || document.hidden) return;
    if (running) {
      again = true;
      return;
    }
    running = true;
    try {
      const headers = etag ? { "If-None-Match": etag } : {};
      const answer = await fetch(location.href, { headers, cache: "no-store" });
      if (answer.status !== 304) {
        etag = answer.headers.get("ETag");
        show(await answer.text());
      }
      document.body.classList.remove("stale");
    } catch {
      stale();
    } finally {
      running = false;
      if (again) {
        again = false;
        refresh();
      }
    }
  }

  function show(text) {
    const fresh = new DOMParser().parseFromString(text, "text/html");
    const main = document.getElementById("main");
    const focused = main.contains(document.activeElement)
      ? document.activeElement.getAttribute("href")
      : null;
    const scrolled = [...main.querySelectorAll(".scroll")].map((box) => box.scrollLeft);
    main.replaceChildren(...fresh.getElementById("main").childNodes);
    [...main.querySelectorAll(".scroll")].forEach((box, i) => { box.scrollLeft = scrolled[i] || 0; });
    if (focused) main.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
  }

  function stale() {
    if (document.body.classList.contains("stale")) return;
    document.body.classList.add("stale");
    const note = document.createElement("p");
    note.className = "banner bad";
    note.setAttribute("role", "status");
    note.textContent = "✕ The monitor does not answer; what stands here is old.";
    document.getElementById("main").prepend(note);
  }

  pause.hidden = false;
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    pause.textContent = paused ? "Resume" : "Pause";
    refresh();
  });
  document.addEventListener("visibilitychange", refresh);

  if (typeof SharedWorker === "function") {
    const worker = new SharedWorker("/static/ticks.js");
    worker.port.onmessage = refresh;
    addEventListener("pagehide", () => worker.port.postMessage("bye"));
  }
  // Ticks can stop without a word (a sleeping laptop, a browser without shared workers).
  setInterval(refresh, POLL_MS);
})();
