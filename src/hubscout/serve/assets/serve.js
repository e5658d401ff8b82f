// Searching while typing and live panels, beside what page.js does.
// Markup comes from the server alone, where every name was escaped.
(() => {
  const { $, $$, theme, copying, switching, sorting, tips } = hubscout;
  const say = (words) => { if ($("#said").textContent !== words) $("#said").textContent = words; };

  const first = async () => {
    const answer = document.hidden ? null : await fetch("/rows").catch(() => null);
    if (answer && answer.ok && (await answer.text()).includes("<tr")) location.reload();
  };

  const list = () => {
    const form = $("#choose");
    if (!form) {
      if ($("#none")) setInterval(first, 3000);
      return;
    }
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

  addEventListener("DOMContentLoaded", () => {
    theme(); list(); live(); copying(); naming(); switching(); tips();
    $$("table.sortable").forEach((table) => sorting(table));
  });
})();
