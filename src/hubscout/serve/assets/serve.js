"use strict";
// The pages work without this script; it adds the theme, searching while typing, live panels and tips.
// Markup comes from the server alone, where every name was escaped.
(() => {
  const root = document.documentElement;
  root.classList.add("scripted");
  const store = {
    get() { try { return localStorage.getItem("hubscout-theme"); } catch { return null; } },
    set(value) { try { localStorage.setItem("hubscout-theme", value); } catch { /* not kept, still applied */ } },
  };
  // Before the page is painted, so that it does not flash in the other theme.
  if (["light", "dark"].includes(store.get())) root.dataset.theme = store.get();
  const $ = (selector, from = document) => from.querySelector(selector);
  const $$ = (selector, from = document) => [...from.querySelectorAll(selector)];
  const say = (words) => { if ($("#said").textContent !== words) $("#said").textContent = words; };

  const theme = () => {
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const current = () => root.dataset.theme || (dark.matches ? "dark" : "light");
    const name = () => { $("#theme").textContent = current() === "dark" ? "Light theme" : "Dark theme"; };
    $("#theme").addEventListener("click", () => {
      root.dataset.theme = current() === "dark" ? "light" : "dark";
      store.set(root.dataset.theme);
      name();
    });
    dark.addEventListener("change", name);
    name();
  };

  const list = () => {
    const form = $("#choose");
    if (!form) return;
    const chosen = new Set();
    const find = $("#find");
    const ticks = () => {
      for (const box of $$("input[name=run]", form)) box.checked = chosen.has(box.value);
      $("#compare").disabled = chosen.size < 2;
      $("#compare-hint").textContent = ["Tick two runs or more.", "Tick at least one more."][chosen.size] || `${chosen.size} runs`;
    };
    const rows = async () => {
      const wanted = find.value;
      const answer = await fetch(`/rows?q=${encodeURIComponent(wanted)}`).catch(() => null);
      if (!answer || !answer.ok || find.value !== wanted) return;
      const holder = document.createElement("template");
      holder.innerHTML = `<table>${await answer.text()}</table>`;
      const body = $("tbody", holder.content);
      const focused = document.activeElement && document.activeElement.closest("#rows") ? document.activeElement : null;
      const again = focused && (focused.value ? `input[value="${CSS.escape(focused.value)}"]` : `a[href="${focused.getAttribute("href")}"]`);
      $("#rows").replaceWith(body);
      if ($("#count").textContent !== body.dataset.count) $("#count").textContent = body.dataset.count;
      const there = new Set($$("input[name=run]", form).map((box) => box.value));
      for (const name of chosen) if (!there.has(name) && !wanted) chosen.delete(name);
      ticks();
      if (again) $(again, body)?.focus();
    };
    form.addEventListener("change", (event) => {
      if (event.target.name !== "run") return;
      if (event.target.checked) chosen.add(event.target.value); else chosen.delete(event.target.value);
      ticks();
    });
    form.addEventListener("submit", (event) => {
      // A run that the search hides stays chosen.
      event.preventDefault();
      if (chosen.size > 1) location.href = `/compare?${new URLSearchParams([...chosen].map((name) => ["run", name]))}`;
    });
    $("#search").addEventListener("submit", (event) => { event.preventDefault(); rows(); });
    let waiting;
    find.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(rows, 150); });
    // Often while something is going on; else now and then, because a command may have begun a run.
    let looks = 0;
    setInterval(() => { if (!document.hidden && ($("#rows").dataset.going || ++looks % 3 === 0)) rows(); }, 3000);
    for (const box of $$("input[name=run]:checked", form)) chosen.add(box.value);
    ticks();
  };

  const live = () => {
    const panel = $("#live[data-stream]");
    if (!panel) return;
    const source = new EventSource(panel.dataset.stream);
    source.addEventListener("panel", (event) => {
      const { html, status } = JSON.parse(event.data);
      panel.innerHTML = html;
      if ($("#live-status").textContent !== status) { $("#live-status").textContent = status; say(status); }
    });
    source.addEventListener("end", async (event) => {
      source.close();
      const state = JSON.parse(event.data).state;
      const answer = await fetch(location.href).catch(() => null);
      if (answer && answer.ok) {
        const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
        $("main").replaceWith(fresh.querySelector("main"));
        $(".subtitle")?.replaceWith(fresh.querySelector(".subtitle") || "");
        copying();
      }
      say(`The run is ${state}.`);
    });
    addEventListener("pagehide", () => source.close());
  };

  const copying = () => {
    for (const button of $$(".copy")) {
      button.addEventListener("click", async () => {
        const code = button.previousElementSibling;
        try { await navigator.clipboard.writeText(code.textContent); } catch { getSelection().selectAllChildren(code); document.execCommand("copy"); }
        button.textContent = "Copied";
        setTimeout(() => { button.textContent = "Copy"; }, 1600);
      });
    }
  };

  const naming = () => {
    const data = $("#data"), name = $("#name");
    if (!data) return;
    data.addEventListener("change", () => {
      if (name.value && name.dataset.made !== name.value) return;
      const stem = data.value.split("/").pop().replace(/\.[a-z.]+$/i, "");
      const now = new Date(), two = (number) => String(number).padStart(2, "0");
      name.value = stem && `${stem}-${two(now.getMonth() + 1)}${two(now.getDate())}-${two(now.getHours())}${two(now.getMinutes())}`;
      name.dataset.made = name.value;
    });
  };

  const sorting = () => {
    for (const button of $$("table.sortable thead button")) {
      button.addEventListener("click", () => {
        const head = button.closest("th"), table = button.closest("table"), column = head.cellIndex;
        const rising = head.getAttribute("aria-sort") !== "ascending";
        for (const other of $$("th[aria-sort]", table)) other.setAttribute("aria-sort", "none");
        head.setAttribute("aria-sort", rising ? "ascending" : "descending");
        const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
        const order = (a, b) => (rising ? 1 : -1) * key(a).localeCompare(key(b), undefined, { numeric: true });
        const number = (row) => parseFloat(key(row));
        const numeric = (a, b) => (rising ? 1 : -1) * (number(a) - number(b));
        const rows = [...table.tBodies[0].rows];
        const all = rows.every((row) => !Number.isNaN(number(row)) || ["", "–"].includes(key(row)));
        const known = (row) => !["", "–"].includes(key(row));
        rows.sort((a, b) => known(b) - known(a) || (known(a) ? (all ? numeric(a, b) : order(a, b)) : 0));
        table.tBodies[0].append(...rows);
      });
    }
  };

  const tips = () => {
    const tip = document.createElement("div");
    tip.id = "tip"; tip.hidden = true; tip.setAttribute("role", "tooltip");
    document.body.append(tip);
    const show = (event) => {
      const point = event.target.closest?.("[data-tip]");
      tip.hidden = !point;
      if (!point) return;
      tip.textContent = point.dataset.tip;
      const box = point.getBoundingClientRect();
      tip.style.left = `${Math.max(8, Math.min(box.right + 8, innerWidth - tip.offsetWidth - 12))}px`;
      tip.style.top = `${Math.max(8, box.top - tip.offsetHeight - 6)}px`;
    };
    document.addEventListener("pointerover", show);
    document.addEventListener("focusin", show);
    document.addEventListener("keydown", (event) => { if (event.key === "Escape") tip.hidden = true; });
  };

  addEventListener("DOMContentLoaded", () => { theme(); list(); live(); copying(); naming(); sorting(); tips(); });
})();
