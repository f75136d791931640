/* What a page does: draws its figures, sorts its tables, and shows one client. */
"use strict";

(function (c) {
  const root = document.documentElement, byId = (id) => document.getElementById(id);

  c.element = (name, text, attributes) => {
    const made = document.createElement(name);
    if (text !== undefined && text !== null) made.textContent = text;
    for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
    return made;
  };

  /* Light or dark: as the system has it, until the button is pressed. */
  c.theme = (changed) => {
    const wanted = window.matchMedia("(prefers-color-scheme: dark)");
    let chosen = null;
    try { chosen = localStorage.getItem("coterie-theme"); } catch { /* pages from disk may keep nothing */ }
    const set = (theme) => {
      root.dataset.theme = theme;
      byId("theme").textContent = theme === "dark" ? "Light" : "Dark";
    };
    set(chosen || (wanted.matches ? "dark" : "light"));
    wanted.addEventListener("change", (event) => { if (!chosen) { set(event.matches ? "dark" : "light"); changed(); } });
    byId("theme").addEventListener("click", () => {
      chosen = c.dark() ? "light" : "dark";
      try { localStorage.setItem("coterie-theme", chosen); } catch { /* as above */ }
      set(chosen);
      changed();
    });
  };

  /* Tables whose heads are buttons: numbers by data-v, else by their text. */
  c.sortable = (table) => {
    const heads = [...table.querySelectorAll("thead th")];
    heads.forEach((head, column) => {
      const button = c.element("button", head.textContent, { type: "button" });
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const rising = head.getAttribute("aria-sort") === "descending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", rising ? "ascending" : "descending");
        const body = table.tBodies[0];
        const key = (row) => {
          const cell = row.cells[column];
          if (cell.dataset.v !== undefined) return Number(cell.dataset.v);
          return cell.textContent || null;
        };
        const rows = [...body.rows].map((row) => [key(row), row]);
        rows.sort(([a], [b]) => {
          if (a === null || b === null) return (a === null) - (b === null);
          const order = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
          return rising ? order : -order;
        });
        body.append(...rows.map(([, row]) => row));
      });
    });
  };

  c.table = (columns, rows) => {
    const table = c.element("table"), head = table.createTHead().insertRow(), body = table.createTBody();
    columns.forEach((name) => head.append(c.element("th", name, { scope: "col" })));
    for (const row of rows) {
      const line = body.insertRow();
      row.forEach((value) => {
        const cell = line.insertCell();
        cell.textContent = value;
        if (typeof value === "number") cell.dataset.v = value;
        else if (/^[+-]?[\d.]+$/.test(value)) cell.dataset.v = Number(value);
      });
    }
    c.sortable(table);
    return table;
  };

  const tip = byId("tip");
  const showTip = (_handler, event, _item, value) => {
    if (value === null || value === undefined || value === "") { tip.hidden = true; return; }
    const list = c.element("dl");
    for (const [key, text] of Object.entries(value)) list.append(c.element("dt", key), c.element("dd", String(text)));
    tip.replaceChildren(list);
    tip.hidden = false;
    const box = tip.getBoundingClientRect(), x = event.clientX + 14, y = event.clientY + 14;
    tip.style.left = `${Math.max(4, x + box.width > innerWidth ? event.clientX - box.width - 10 : x)}px`;
    tip.style.top = `${Math.max(4, y + box.height > innerHeight ? event.clientY - box.height - 10 : y)}px`;
  };

  const config = () => {
    const ink = c.dark() ? "#e8ecf3" : "#1c2330", line = c.dark() ? "#333c4d" : "#d9dee7";
    const text = { labelColor: ink, titleColor: ink, titleFontWeight: "normal" };
    return { background: "transparent", font: getComputedStyle(document.body).fontFamily, view: { stroke: null },
      axis: { ...text, gridColor: line, domainColor: line, tickColor: line, labelFontSize: 11, titleFontSize: 12 },
      legend: { ...text, labelFontSize: 11, titleFontSize: 11 } };
  };

  const views = new Map();
  /* Draws a specification into the figure `id`; without one, the figure is hidden. */
  c.draw = (id, spec, picked) => {
    const figure = byId(id), place = figure.querySelector(".chart");
    if (views.has(id)) { views.get(id).finalize(); views.delete(id); }
    figure.hidden = !spec;
    if (!spec) return;
    const { told, ...drawn } = spec;
    const whole = { ...drawn, width: Math.max(200, place.clientWidth - 4), config: config(),
      autosize: { type: "fit-x", contains: "padding" }, description: figure.querySelector("h3").textContent };
    const view = new vega.View(vega.parse(vegaLite.compile(whole).spec), { renderer: "svg", container: place, hover: true })
      .tooltip(showTip);
    views.set(id, view);
    if (picked) view.addEventListener("click", (_event, item) => {
      const datum = item && item.datum && (item.datum.datum || item.datum);
      if (datum && datum.at !== undefined) picked(datum.at);
    });
    const details = figure.querySelector("details");
    if (details) {
      const fill = () => details.querySelector(".scroll").replaceChildren(c.table(told.columns, told.rows.slice(0, 2000)));
      details.ontoggle = () => { if (details.open) fill(); };
      if (details.open) fill();
    }
    return view.runAsync();
  };

  /* Checkboxes with the colour, dash and mark of every method. */
  c.chips = (place, methods, shown, changed) => {
    const draw = () => {
      const looks = c.looks(methods);
      place.querySelectorAll("label").forEach((old) => old.remove());
      methods.forEach((method, i) => {
        const label = c.element("label", null, { class: "chip" });
        const box = c.element("input", null, { type: "checkbox" });
        box.checked = shown.has(i);
        box.disabled = Boolean(method.collapsed);
        box.addEventListener("change", () => { if (box.checked) shown.add(i); else shown.delete(i); changed(); });
        const ns = "http://www.w3.org/2000/svg", svg = document.createElementNS(ns, "svg"), line = document.createElementNS(ns, "line");
        svg.setAttribute("class", "swatch"); svg.setAttribute("viewBox", "0 0 32 16"); svg.setAttribute("aria-hidden", "true");
        for (const [key, value] of Object.entries({ x1: 0, y1: 8, x2: 32, y2: 8, stroke: looks[i].colour, "stroke-width": 5,
          "stroke-dasharray": looks[i].dash.join(" ") })) line.setAttribute(key, value);
        svg.append(line);
        label.append(box, svg, c.element("span", method.label + (method.collapsed ? " (collapsed)" : "")));
        place.append(label);
      });
    };
    draw();
    return draw;
  };

  /* Calls again, a moment after the window has got another width. */
  c.resized = (changed) => {
    let width = innerWidth, timer = 0;
    addEventListener("resize", () => {
      clearTimeout(timer);
      timer = setTimeout(() => { if (innerWidth !== width) { width = innerWidth; changed(); } }, 150);
    });
  };
})(coterie);
