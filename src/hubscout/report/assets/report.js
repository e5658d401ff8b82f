// Sorting, filtering, pointing and pinning on the report's page.
(() => {
  const { $, $$, theme, copying, switching, sorting, tips } = hubscout;
  const read = (id) => { const element = document.getElementById(id); return element ? JSON.parse(element.textContent) : null; };
  const { models } = read("report-data");
  theme();
  copying();
  switching();

  const table = $("#models");
  if (table) {
    const body = table.tBodies[0];
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
    sorting(table, filter);
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

  for (const button of $$("[data-choose]")) {
    button.addEventListener("click", () => {
      const [name, value] = [button.dataset.of, button.dataset.choose];
      $(`[data-switch="${name}"]`).dispatchEvent(new CustomEvent("choose", { detail: value }));
      for (const cell of $$("td.chosen")) cell.classList.remove("chosen");
      button.closest("td").classList.add("chosen");
    });
  }

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
  tips((mark) => togglePin(Number(mark.dataset.model)));
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
