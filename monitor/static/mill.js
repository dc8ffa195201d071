// Keeps the page fresh: on every tick the same address is asked again, with its ETag, and what
// differs is patched into the page, node by node, so that a selection, the focus, scrolling and
// open tables survive. Without this file every page is complete, only not live.
"use strict";
(() => {
  // Addresses are relative to this file, so that a proxy may put the site below any path.
  const ROOT = new URL("..", document.currentScript.src);
  const POLL_MS = 5000;
  const GIVE_UP_MS = 4000;
  const STALE_MS = 10000;
  const pause = document.getElementById("pause");
  const main = document.getElementById("main");
  let paused = kept("paused") === "yes";
  let etag = null;
  let running = false;
  let again = false;
  let answeredAt = Date.now();

  function kept(key) {
    try { return localStorage.getItem("mill." + key); } catch { return null; }
  }
  function keep(key, value) {
    try { localStorage.setItem("mill." + key, value); } catch { /* Private windows may refuse. */ }
  }

  async function refresh() {
    if (paused || document.hidden) return;
    if (running) { again = true; return; }
    running = true;
    try {
      // The monitor does not take this request for a sign that the user is still there.
      const headers = { "Millrace-Refresh": "1" };
      if (etag) headers["If-None-Match"] = etag;
      const signal = AbortSignal.timeout(GIVE_UP_MS);
      // A page that stays as it is has the head of another one kept fresh above it.
      const address = main.dataset.still ?? location.href;
      const answer = await fetch(address, { headers, signal, cache: "no-store" });
      if (answer.redirected && new URL(answer.url).pathname.endsWith("/login")) {
        // The session has ended.
        location.assign(answer.url);
        return;
      }
      if (answer.status !== 304) {
        const text = await answer.text();
        if (!answer.headers.get("Content-Type")?.startsWith("text/html")) throw new Error();
        etag = answer.headers.get("ETag");
        const fresh = new DOMParser().parseFromString(text, "text/html");
        patch(document.querySelector("header"), fresh.querySelector("header"));
        if (!main.dataset.still) patch(main, fresh.getElementById("main"));
        showPause();
      }
      answeredAt = Date.now();
      stale();
    } catch {
      stale();
    } finally {
      running = false;
      if (again) { again = false; refresh(); }
    }
  }

  // Makes `old` like `fresh` with as few changes as possible. What a reader opened stays open.
  function patch(old, fresh) {
    if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) {
      old.replaceWith(document.importNode(fresh, true));
      return;
    }
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
      return;
    }
    if (old.hasAttribute("data-own")) return;
    for (const { name, value } of fresh.attributes) {
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    for (const { name } of [...old.attributes]) {
      if (!fresh.hasAttribute(name) && !(name === "open" && old.nodeName === "DETAILS")) {
        old.removeAttribute(name);
      }
    }
    const theirs = [...fresh.childNodes];
    theirs.forEach((child, index) => {
      const mine = old.childNodes[index];
      if (mine) patch(mine, child);
      else old.appendChild(document.importNode(child, true));
    });
    while (old.childNodes.length > theirs.length) old.lastChild.remove();
  }

  function stale() {
    const age = Date.now() - answeredAt;
    const note = document.getElementById("stale");
    if (age < STALE_MS || paused) {
      document.body.classList.remove("stale");
      note.hidden = true;
      return;
    }
    const shown = document.querySelector("header time")?.textContent ?? "";
    const text = `✕ The monitor has not answered for ${Math.round(age / 1000)} s; `
      + `what stands here is of ${shown}. Trying again every ${POLL_MS / 1000} s.`;
    document.body.classList.add("stale");
    // Announced once: a text that changes every second would be read out every second.
    if (note.hidden) document.getElementById("said").textContent = "The monitor does not answer.";
    note.textContent = text;
    note.hidden = false;
  }

  function showPause() {
    const button = document.getElementById("pause");
    button.hidden = false;
    button.setAttribute("aria-pressed", String(paused));
    button.textContent = paused ? "Resume" : "Pause";
  }

  document.addEventListener("click", (event) => {
    if (event.target.id !== "pause") return;
    paused = !paused;
    keep("paused", paused ? "yes" : "no");
    answeredAt = Date.now();
    showPause();
    refresh();
  });
  document.addEventListener("visibilitychange", () => {
    answeredAt = Math.max(answeredAt, Date.now() - STALE_MS / 2);
    refresh();
  });

  // The verdict alone is spoken, and only when its state changes.
  const said = document.getElementById("said");
  let spoken = main.dataset.state;
  new MutationObserver(() => {
    if (main.dataset.state === spoken) return;
    spoken = main.dataset.state;
    said.textContent = document.querySelector(".verdict h1")?.textContent ?? spoken;
  }).observe(main, { attributes: true, attributeFilter: ["data-state"] });

  // Reading a chart by pointer or by arrow keys; its values are fetched once it is touched.
  const read = new WeakMap();
  async function values(chart) {
    const stamp = document.querySelector("header time")?.dateTime;
    if (read.get(chart)?.stamp !== stamp) {
      const query = new URLSearchParams({ range: chart.dataset.range });
      for (const name of chart.dataset.series.split("\n")) query.append("series", name);
      const answer = await fetch(new URL("api/v1/history?" + query, ROOT),
        { signal: AbortSignal.timeout(GIVE_UP_MS) });
      read.set(chart, { stamp, rows: (await answer.json()).data, at: read.get(chart)?.at });
    }
    return read.get(chart);
  }
  async function point(chart, choose) {
    try {
      const known = await values(chart);
      if (!known.rows.length) return;
      const count = known.rows.length;
      known.at = Math.min(count - 1, Math.max(0, choose(known.at ?? count - 1, count)));
      const row = known.rows[known.at];
      const labels = chart.dataset.labels.split("\n");
      const text = chart.dataset.series.split("\n").map((name, index) => {
        const value = row[name];
        const scaled = value === null ? "–" : (value * chart.dataset.scale).toLocaleString("en",
          { maximumSignificantDigits: 4 });
        return `${labels[index]} ${scaled}`;
      });
      chart.querySelector(".read").textContent = `${row.at.slice(11, 19)}  ${text.join("  ")}`;
    } catch { /* The stale banner says that the monitor does not answer. */ }
  }
  addEventListener("pointermove", (event) => {
    const area = event.target.closest?.(".area");
    const chart = area?.closest(".chart");
    if (!chart?.dataset.series) return;
    const box = area.getBoundingClientRect();
    point(chart, (_, count) => Math.round((event.clientX - box.left) / box.width * (count - 1)));
  });
  addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const chart = event.target.closest?.(".chart");
    if (!step || !chart?.dataset.series) return;
    event.preventDefault();
    point(chart, (at) => at + step);
  });

  showPause();
  if (typeof SharedWorker === "function") {
    const worker = new SharedWorker(new URL("static/ticks.js", ROOT));
    worker.port.onmessage = refresh;
    addEventListener("pagehide", () => worker.port.postMessage("bye"));
  }
  // Ticks can stop without a word (a sleeping laptop, a browser without shared workers).
  setInterval(refresh, POLL_MS);
  setInterval(stale, 1000);
})();
