"use strict";
// The page is complete without this script; it adds sorting, filtering, pointing, pinning and the theme.
// Text of the run enters the page through textContent only.
(() => {
  const $ = (selector, root = document) => root.querySelector(selector);
  const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
  const read = (id) => { const element = document.getElementById(id); return element ? JSON.parse(element.textContent) : null; };
  const { models } = read("report-data");
  const root = document.documentElement;
  root.classList.add("scripted");

  // Theme: what the system says until somebody chooses. A page opened from a file may have no storage.
  const store = {
    get() { try { return localStorage.getItem("hubscout-theme"); } catch { return null; } },
    set(value) { try { localStorage.setItem("hubscout-theme", value); } catch { /* not kept, still applied */ } },
  };
  const systemDark = matchMedia("(prefers-color-scheme: dark)");
  const current = () => root.dataset.theme || (systemDark.matches ? "dark" : "light");
  const themeButton = $("#theme");
  const nameTheme = () => { themeButton.textContent = current() === "dark" ? "Light theme" : "Dark theme"; };
  if (["light", "dark"].includes(store.get())) root.dataset.theme = store.get();
  themeButton.addEventListener("click", () => {
    root.dataset.theme = current() === "dark" ? "light" : "dark";
    store.set(root.dataset.theme);
    nameTheme();
  });
  systemDark.addEventListener("change", nameTheme);
  nameTheme();

  // Copying: the clipboard interface is missing on some pages opened from a file, so selecting is the fallback.
  for (const button of $$(".copy")) {
    button.addEventListener("click", async () => {
      const code = button.previousElementSibling;
      try {
        await navigator.clipboard.writeText(code.textContent);
      } catch {
        getSelection().selectAllChildren(code);
        document.execCommand("copy");
      }
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1600);
    });
  }

  // The table: click a heading to sort, again to turn round. Cells without a value stay last.
  const table = $("#models");
  if (table) {
    const body = table.tBodies[0];
    const key = (row, column) => {
      const value = row.cells[column].dataset.value;
      if (value === undefined) return null;
      return value !== "" && !Number.isNaN(Number(value)) ? Number(value) : value;
    };
    const smallFirst = new Set(["#", "Model", "Params", "FLOPs", "Latency", "Time"]);
    for (const button of $$("thead button", table)) {
      button.addEventListener("click", () => {
        const head = button.closest("th");
        const column = Number(button.dataset.column);
        const before = head.getAttribute("aria-sort");
        const rising = before === "none" ? smallFirst.has(button.textContent) : before === "descending";
        for (const other of $$("thead th[aria-sort]", table)) other.setAttribute("aria-sort", "none");
        head.setAttribute("aria-sort", rising ? "ascending" : "descending");
        table.classList.toggle("sorted", !(column === 0 && rising));
        const sign = rising ? 1 : -1;
        const rows = [...body.rows].map((row) => [key(row, column), row]);
        rows.sort(([a], [b]) => {
          if (a === null || b === null) return (a === null) - (b === null);
          if (typeof a === "number" && typeof b === "number") return sign * (a - b);
          return sign * String(a).localeCompare(String(b));
        });
        body.append(...rows.map(([, row]) => row));
        filter();
      });
    }
    // A long table is folded, unless somebody looks for something.
    const unfold = $("#unfold");
    let folded = Boolean(unfold);
    const form = $("#filters");
    const filter = () => {
      const words = $("#filter-name").value.toLowerCase().split(/\s+/).filter(Boolean);
      const limit = $("#filter-params") ? parseFloat($("#filter-params").value) : NaN;
      const tiedOnly = $("#filter-tied") ? $("#filter-tied").checked : false;
      let count = 0;
      for (const row of body.rows) {
        const params = row.dataset.params === undefined ? NaN : Number(row.dataset.params);
        const shown = words.every((word) => row.dataset.search.includes(word))
          && (Number.isNaN(limit) || params <= limit * 1e6)
          && (!tiedOnly || row.dataset.tied === "1");
        row.hidden = !shown;
        count += shown;
        row.classList.toggle("folded", folded && count > Number(unfold.dataset.shown));
      }
      $("#filter-count").textContent = `${count} of ${body.rows.length} models`;
    };
    form.addEventListener("input", filter);
    form.addEventListener("submit", (event) => event.preventDefault());
    if (unfold) {
      unfold.addEventListener("click", () => {
        folded = !folded;
        table.classList.toggle("unfolded", !folded);
        unfold.textContent = folded ? `Show all ${body.rows.length} models` : `Show the first ${unfold.dataset.shown}`;
        filter();
      });
      filter();
    }
  }

  // Panels of which one is shown at a time.
  for (const box of $$("[data-switch]")) {
    const panels = $$(":scope > .panel", box);
    const show = (value) => { for (const panel of panels) panel.hidden = panel.dataset.panel !== value; };
    const control = $(":scope > .switch, :scope > .select", box);
    if (!control) continue;
    control.addEventListener("change", (event) => show(event.target.value));
    const chosen = $("input:checked", control) || $("select", control);
    show(chosen.value);
    box.addEventListener("choose", (event) => {
      const select = $("select", control);
      if (select) select.value = event.detail;
      for (const input of $$("input", control)) input.checked = input.value === event.detail;
      show(event.detail);
    });
  }
  for (const button of $$("[data-choose]")) {
    button.addEventListener("click", () => {
      const [name, value] = [button.dataset.of, button.dataset.choose];
      $(`[data-switch="${name}"]`).dispatchEvent(new CustomEvent("choose", { detail: value }));
      for (const cell of $$("td.chosen")) cell.classList.remove("chosen");
      button.closest("td").classList.add("chosen");
    });
  }

  // Pointing at a mark, by mouse or by keyboard, says what it is.
  const tip = $("#tip");
  let pointed = null;
  const placeTip = () => {
    const place = pointed.querySelector("circle").getBoundingClientRect();
    const size = tip.getBoundingClientRect();
    const left = Math.min(Math.max(12, place.x + place.width / 2 - size.width / 2), innerWidth - size.width - 12);
    const above = place.y - size.height - 10;
    tip.style.left = `${left}px`;
    tip.style.top = `${above > 8 ? above : place.bottom + 12}px`;
  };
  const showTip = (mark) => {
    pointed = mark;
    tip.textContent = mark.dataset.tip;
    tip.hidden = false;
    placeTip();
  };
  const hideTip = () => { pointed = null; tip.hidden = true; };
  document.addEventListener("pointerover", (event) => {
    const mark = event.target.closest("[data-tip]");
    if (mark) showTip(mark); else hideTip();
  });
  document.addEventListener("focusin", (event) => {
    const mark = event.target.closest("[data-tip]");
    if (mark) showTip(mark); else hideTip();
  });
  document.addEventListener("scroll", () => { if (pointed) placeTip(); }, { passive: true, capture: true });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hideTip();
    const mark = event.target.closest && event.target.closest("[data-tip]");
    if (!mark) return;
    if ((event.key === "Enter" || event.key === " ") && mark.getAttribute("role") === "button") {
      event.preventDefault();
      togglePin(Number(mark.dataset.model));
      return;
    }
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const marks = $$("[data-tip]", mark.parentElement);
    const next = marks[(marks.indexOf(mark) + step + marks.length) % marks.length];
    mark.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });

  // Pinning a model marks it in every chart and table.
  const pins = [];
  const bar = $("#pins");
  const drawPins = () => {
    for (const element of $$(".pinned")) {
      element.classList.remove("pinned", ...[0, 1, 2, 3, 4, 5].map((index) => `pin-${index}`));
      if (element.hasAttribute("aria-pressed")) element.setAttribute("aria-pressed", "false");
    }
    pins.forEach((model, index) => {
      if (model === null) return;
      for (const element of $$(`[data-model="${model}"]`)) {
        if (element.closest("#pins") || element.matches(".heat td")) continue;
        element.classList.add("pinned", `pin-${index}`);
        if (element.hasAttribute("aria-pressed")) element.setAttribute("aria-pressed", "true");
      }
    });
    bar.replaceChildren();
    bar.hidden = pins.every((model) => model === null);
    pins.forEach((model, index) => {
      if (model === null) return;
      const button = document.createElement("button");
      button.type = "button";
      button.dataset.model = model;
      button.className = `pin-${index}`;
      button.textContent = models[model];
      button.title = "Unpin";
      button.setAttribute("aria-label", `Unpin ${models[model]}`);
      button.addEventListener("click", () => togglePin(model));
      bar.append(button);
    });
  };
  const togglePin = (model) => {
    const place = pins.indexOf(model);
    if (place >= 0) {
      pins[place] = null;
    } else {
      const free = pins.indexOf(null);
      if (free >= 0) pins[free] = model;
      else if (pins.length < 6) pins.push(model);
      else pins[5] = model;
    }
    drawHeat();
    drawPins();
  };
  document.addEventListener("click", (event) => {
    const mark = event.target.closest(".point[data-model], .pin");
    if (mark) togglePin(Number(mark.dataset.model));
  });

  // The heat map: any class can be found, and pinned models join the best ones.
  const heat = $("#heat");
  const cells = read("targets-data");
  let everything = false;
  function drawHeat() {
    if (!heat) return;
    const field = $("#target-filter");
    const words = field ? field.value.toLowerCase().trim() : "";
    const columns = cells.models.map((model, place) => [model, place])
      .filter(([model, place]) => place < cells.columns || pins.includes(model));
    const wanted = cells.targets.map((name, index) => [name, index])
      .filter(([name]) => !words || name.toLowerCase().includes(words));
    const shown = words || everything ? wanted.slice(0, 300) : wanted.slice(0, cells.shown);
    const make = (name, text, attributes = {}) => {
      const element = document.createElement(name);
      element.textContent = text;
      for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
      return element;
    };
    const head = heat.tHead.rows[0];
    for (const [model] of columns) {
      if ($(`th[data-model="${model}"]`, head)) continue;
      const cell = make("th", "", { scope: "col", "data-model": model, title: models[model] });
      cell.append(make("span", models[model]));
      head.append(cell);
    }
    for (const cell of [...head.cells].slice(1)) {
      if (!columns.some(([model]) => model === Number(cell.dataset.model))) cell.remove();
    }
    const order = [...head.cells].slice(1).map((cell) => cells.models.indexOf(Number(cell.dataset.model)));
    heat.tBodies[0].replaceChildren(...shown.map(([name, target]) => {
      const row = document.createElement("tr");
      row.append(make("th", name, { scope: "row", title: name }));
      for (const place of order) {
        const value = cells.gains[place][target];
        const share = Math.min(1, Math.max(0, (value - cells.low) / (cells.high - cells.low)));
        const cell = make("td", value.toFixed(2), { "data-model": cells.models[place] });
        cell.style.setProperty("--heat", share.toFixed(2));
        if (share > 0.55) cell.className = "hot";
        row.append(cell);
      }
      return row;
    }));
    const count = $("#target-count");
    if (count) count.textContent = `${shown.length} of ${cells.targets.length} shown`;
  }
  if (heat && $("#target-filter")) {
    $("#target-filter").addEventListener("input", drawHeat);
    $("#target-filter").form.addEventListener("submit", (event) => event.preventDefault());
    $("#target-all").addEventListener("click", (event) => {
      everything = !everything;
      event.target.setAttribute("aria-expanded", String(everything));
      event.target.textContent = everything ? `Show only ${cells.shown}` : `Show all ${cells.targets.length}`;
      drawHeat();
    });
  }
})();
