"use strict";
// What the report and the pages of the server share: theme, copying, panels, sorting and tips.
// The pages are complete without it. Text of a run enters a page through textContent only.
const hubscout = (() => {
  const $ = (selector, root = document) => root.querySelector(selector);
  const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
  const root = document.documentElement;
  root.classList.add("scripted");

  // Theme: what the system says until somebody chooses. A page opened from a file may have no storage.
  const store = {
    get() { try { return localStorage.getItem("hubscout-theme"); } catch { return null; } },
    set(value) { try { localStorage.setItem("hubscout-theme", value); } catch { /* not kept, still applied */ } },
  };
  // Before the page is painted, so that it does not flash in the other theme.
  if (["light", "dark"].includes(store.get())) root.dataset.theme = store.get();
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

  // Copying: the clipboard interface is missing on some pages opened from a file, so selecting is the fallback.
  const copying = () => {
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
  };

  // Panels of which one is shown at a time.
  const switching = () => {
    for (const box of $$("[data-switch]")) {
      const panels = $$(":scope > .panel", box);
      const show = (value) => { for (const panel of panels) panel.hidden = panel.dataset.panel !== value; };
      const control = $(":scope > .switch, :scope > .select", box);
      if (!control) continue;
      control.addEventListener("change", (event) => show(event.target.value));
      show(($("input:checked", control) || $("select", control)).value);
      box.addEventListener("choose", (event) => {
        const select = $("select", control);
        if (select) select.value = event.detail;
        for (const input of $$("input", control)) input.checked = input.value === event.detail;
        show(event.detail);
      });
    }
  };

  // Click a heading to sort, again to turn round. Cells without a value stay last.
  const smallFirst = new Set(["#", "Params", "FLOPs", "Latency", "Time", "Error"]);
  const sorting = (table, after = () => {}) => {
    const body = table.tBodies[0];
    const key = (row, column) => {
      const value = row.cells[column].dataset.value;
      if (value === undefined) return null;
      return value !== "" && !Number.isNaN(Number(value)) ? Number(value) : value;
    };
    for (const button of $$("thead button", table)) {
      button.addEventListener("click", () => {
        const head = button.closest("th");
        const rows = [...body.rows].map((row) => [key(row, head.cellIndex), row]);
        const text = rows.some(([value]) => typeof value === "string");
        const before = head.getAttribute("aria-sort");
        const rising = before === "none" ? text || smallFirst.has(button.textContent) : before === "descending";
        for (const other of $$("thead th[aria-sort]", table)) other.setAttribute("aria-sort", "none");
        head.setAttribute("aria-sort", rising ? "ascending" : "descending");
        table.classList.toggle("sorted", !(button.textContent === "#" && rising));
        const sign = rising ? 1 : -1;
        rows.sort(([a], [b]) => {
          if (a === null || b === null) return (a === null) - (b === null);
          if (typeof a === "number" && typeof b === "number") return sign * (a - b);
          return sign * String(a).localeCompare(String(b), undefined, { numeric: true });
        });
        body.append(...rows.map(([, row]) => row));
        after();
      });
    }
  };

  // Pointing at a mark, by mouse or by keyboard, says what it is; `press` is told which one was chosen.
  const tips = (press = () => {}) => {
    const tip = $("#tip");
    let pointed = null;
    const place = () => {
      const mark = pointed.querySelector("circle").getBoundingClientRect();
      const size = tip.getBoundingClientRect();
      const left = Math.min(Math.max(12, mark.x + mark.width / 2 - size.width / 2), innerWidth - size.width - 12);
      const above = mark.y - size.height - 10;
      tip.style.left = `${left}px`;
      tip.style.top = `${above > 8 ? above : mark.bottom + 12}px`;
    };
    const hide = () => { pointed = null; tip.hidden = true; };
    const point = (event) => {
      pointed = event.target.closest("[data-tip]");
      if (!pointed) return hide();
      tip.textContent = pointed.dataset.tip;
      tip.hidden = false;
      place();
    };
    document.addEventListener("pointerover", point);
    document.addEventListener("focusin", point);
    document.addEventListener("scroll", () => { if (pointed?.isConnected) place(); else hide(); }, { passive: true, capture: true });
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape") hide();
      const mark = event.target.closest && event.target.closest("[data-tip]");
      if (!mark) return;
      if ((event.key === "Enter" || event.key === " ") && mark.getAttribute("role") === "button") {
        event.preventDefault();
        press(mark);
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
  };

  return { $, $$, theme, copying, switching, sorting, tips };
})();
