/* A page over the runs of a folder: asks how they are, and shows it. */
"use strict";

(function (c) {
  const byId = (id) => document.getElementById(id), EVERY = 2000, MOST = 8;
  const known = new Set();
  let last = "", names = "", runs = [], shown = new Set(), chosen = new Set(), redraw = () => {};

  const seconds = (s) => {
    if (s === null) return "";
    if (s >= 7200) return `${(s / 3600).toFixed(1)} h`;
    return s >= 120 ? `${(s / 60).toFixed(1)} min` : `${s.toFixed(0)} s`;
  };

  /* Lines of the chosen runs; by round. */
  const spec = () => {
    const chosen = runs.filter((_, i) => shown.has(i)), rows = [];
    chosen.forEach((run) => run.curve.forEach(([round, v]) => {
      if (v !== null) rows.push({ method: run.name, x: round, y: v, told: c.number(v), round });
    }));
    const methods = runs.map((run) => ({ label: run.name, alone: run.method === "local" }));
    const looks = c.looks(methods), domain = methods.map((m) => m.label);
    const color = { field: "method", type: "nominal", legend: null, scale: { domain, range: looks.map((l) => l.colour) } };
    const strokeDash = { field: "method", type: "nominal", legend: null, scale: { domain, range: looks.map((l) => l.dash) } };
    const titles = [...new Set(chosen.map((run) => run.metric + (run.percent ? " (%)" : "")).filter(Boolean))];
    const x = { field: "x", type: "quantitative", title: "round", scale: { nice: false } };
    // The first models would squeeze everything else.
    const later = chosen.flatMap((run) => run.curve.filter(([, v], j) => v !== null && j >= 0.15 * (run.curve.length - 1)).map(([, v]) => v));
    const low = Math.min(...later), high = Math.max(...later), room = 0.05 * (high - low) || 1;
    const scale = later.length ? { domain: [low - room, high + room], nice: false, zero: false } : { zero: false };
    const y = { field: "y", type: "quantitative", title: `test ${titles.length === 1 ? titles[0] : "score"}`, scale };
    return { height: 320, data: { values: rows }, layer: [
      { mark: { type: "line", strokeWidth: 2, clip: true }, encoding: { x, y, color, strokeDash } },
      { mark: { type: "point", filled: true, size: 60, clip: true },
        params: [{ name: "near", select: { type: "point", on: "pointerover", clear: "pointerout", nearest: true } }],
        encoding: { x, y, color, opacity: { condition: { param: "near", value: 1, empty: false }, value: 0 },
          tooltip: [{ field: "method", title: "run", type: "nominal" }, { field: "round", title: "round", type: "quantitative" },
            { field: "told", title: "score", type: "nominal" }] } }],
      told: { columns: ["run", "round", "score"], rows: rows.map((r) => [r.method, r.round, r.told]) } };
  };

  /* Only what has changed is drawn again, so that what is under the pointer stays. */
  let drawn = "";
  const draw = () => {
    const now = JSON.stringify([c.dark(), innerWidth, runs.filter((_, i) => shown.has(i)).map((run) => [run.name, run.curve])]);
    if (now === drawn) return;
    drawn = now;
    c.draw("figure-runs", runs.some((run) => run.curve.length) ? spec() : null);
  };

  /* The table of runs; how it is sorted and where the focus is stays. */
  const table = () => {
    const place = byId("runs"), heads = [...place.querySelectorAll("th")];
    const by = heads.findIndex((head) => head.hasAttribute("aria-sort"));
    const way = by < 0 ? "" : heads[by].getAttribute("aria-sort");
    const at = heads.findIndex((head) => head.contains(document.activeElement));
    const rows = runs.map((run) => [run.name, run.method, run.seed ?? "", run.state,
      run.rounds ? `${run.round} of ${run.rounds}` : "", seconds(run.left), run.value ? `${run.metric} ${run.value}` : "",
      run.bytes === null ? "" : c.bytes(run.bytes)]);
    const made = c.table(["run", "method", "seed", "state", "rounds", "left", "score", "bytes"], rows);
    [...made.tBodies[0].rows].forEach((line, i) => {
      const run = runs[i], bar = c.element("progress", null, { max: run.rounds || 1, value: run.round, "aria-label": "rounds" });
      line.cells[4].append(" ", bar);
      line.cells[4].dataset.v = run.rounds ? run.round / run.rounds : 0;
      line.cells[5].dataset.v = run.left ?? -1;
      line.cells[6].dataset.v = run.curve.length ? run.curve[run.curve.length - 1][1] ?? -Infinity : -Infinity;
      line.cells[7].dataset.v = run.bytes ?? -1;
    });
    place.replaceChildren(made);
    const buttons = made.querySelectorAll("th button");
    if (by >= 0) for (let press = way === "ascending" ? 2 : 1; press > 0; press -= 1) buttons[by].click();
    if (at >= 0) buttons[at].focus();
  };

  const reports = (found) => {
    const lines = found.map((name) => {
      const line = c.element("p");
      line.append(c.element("a", `Report of ${name === "." ? "this folder" : name}`, { href: `report?of=${encodeURIComponent(name)}` }));
      return line;
    });
    byId("reports").replaceChildren(...lines);
  };

  const show = (told) => {
    runs = told.runs;
    const count = (...states) => runs.filter((run) => states.includes(run.state)).length;
    byId("summary").textContent = runs.length
      ? `${runs.length} runs: ${count("finished", "collapsed")} ended, ${count("running")} under way.` : "There are no runs here yet.";
    for (const run of runs) {
      if (run.curve.length && !known.has(run.name)) {
        known.add(run.name);
        if (chosen.size < MOST) chosen.add(run.name);
      }
    }
    shown = new Set(runs.map((_, i) => i).filter((i) => chosen.has(runs[i].name)));
    const now = JSON.stringify(runs.map((run) => [run.name, chosen.has(run.name)]));
    if (now !== names) {
      names = now;
      const methods = runs.map((run) => ({ label: run.name, alone: run.method === "local" }));
      redraw = () => c.chips(byId("methods"), methods, shown, () => {
        chosen = new Set([...shown].map((i) => runs[i].name));
        names = JSON.stringify(runs.map((run) => [run.name, chosen.has(run.name)]));
        draw();
      });
      redraw();
    }
    reports(told.reports);
    table();
    draw();
  };

  const ask = async () => {
    try {
      const text = await (await fetch("runs.json")).text();
      if (text !== last) { last = text; show(JSON.parse(text)); }
    } catch {
      byId("summary").textContent = "The server has ended; this is what it told last.";
    }
    setTimeout(ask, document.hidden ? 5 * EVERY : EVERY);
  };

  c.theme(() => { redraw(); draw(); });
  c.resized(draw);
  ask();
})(coterie);
