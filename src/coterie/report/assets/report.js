/* The report of a comparison, or of methods under attack. */
"use strict";

(function (c) {
  const byId = (id) => document.getElementById(id);
  const d = JSON.parse(byId("data").textContent);
  const shown = new Set(d.methods.map((m, i) => i).filter((i) => !d.methods[i].collapsed));
  const chosen = (name) => document.querySelector(`input[name="${name}"]:checked`)?.value;
  let client = null;

  const place = () => (d.clients ? d.clients.ids.indexOf(client) : -1);

  const drawClient = () => {
    const k = place();
    byId("client-found").hidden = k < 0;
    if (k < 0) return;
    const facts = `${d.clients.names[k]}: ${d.clients.train[k]} training rows, ${d.clients.test[k]} test rows.`
      + (d.clients.counts[k] ? "" : " It is in no mean: it has too few test rows, or no score.");
    byId("client-facts").textContent = facts;
    const rows = [];
    d.methods.forEach((m, i) => {
      const own = d.clients.scores[i];
      if (!own || own[k] === null) return;
      const gains = c.valuesOf(d, i, "gain"), has = own.filter((v, j) => v !== null && d.clients.counts[j]);
      const better = has.filter((v) => (d.metric.higher ? v > own[k] : v < own[k])).length;
      rows.push([m.label, c.number(own[k]), gains && gains[k] !== null ? c.number(gains[k]) : "", `${better + 1} of ${has.length}`]);
    });
    byId("client-table").replaceChildren(c.table(["method", d.metric.label, d.metric.gain, "place among the clients shown"], rows));
    const near = byId("client-near");
    near.replaceChildren();
    d.graphs.forEach((g, i) => {
      if (!g) return;
      const ties = g.edges.filter(([a, b]) => a === k || b === k).sort((a, b) => b[2] - a[2]).slice(0, 12);
      const line = c.element("p", `Tied to, by the graph of ${d.methods[i].label}: ${ties.length ? "" : "nobody"}`);
      ties.forEach(([a, b, w]) => {
        const other = a === k ? b : a, button = c.element("button", `${d.clients.names[other]} (${c.number(w)})`, { type: "button" });
        button.addEventListener("click", () => pick(d.clients.ids[other]));
        line.append(" ", button);
      });
      near.append(line);
    });
    c.draw("figure-client", c.client(d, shown, k));
    c.draw("figure-client-labels", c.clientLabels(d, client));
  };

  const pick = (at) => {
    if (d.clients.ids.indexOf(at) < 0) return;
    client = at;
    byId("client").value = String(at);
    drawClient();
    byId("one-client").scrollIntoView({ block: "start" });
  };

  const drawGraph = () => {
    const choice = byId("graph-of");
    if (!choice) return;
    const i = Number(choice.value);
    byId("figure-graph").querySelector(".note").textContent =
      `Graph: ${d.graphs[i].kind}, ${d.graphs[i].all} edges`
      + (d.graphs[i].edges.length < d.graphs[i].all ? `, of which the ${d.graphs[i].edges.length} strongest are drawn` : "")
      + ". Blue: the client gains; orange: it loses. Select a client to see it alone.";
    c.draw("figure-graph", c.graph(d, i), pick);
  };

  const drawAll = () => {
    if (d.attacks) {
      d.attacks.forEach((_, a) => c.draw(`figure-attack-${a}`, c.attack(d, shown, a)));
      return;
    }
    c.draw("figure-curves", c.curves(d, shown, chosen("over")));
    c.draw("figure-spread", c.spread(d, shown, chosen("what") || "score"), pick);
    c.draw("figure-scatter", c.scatter(d, shown));
    if (byId("figure-gains")) c.draw("figure-gains", c.gains(d, shown), pick);
    c.draw("figure-bill", c.bill(d, shown));
    drawGraph();
    if (byId("figure-labels")) c.draw("figure-labels", c.labels(d), pick);
    drawClient();
  };

  document.querySelectorAll("main table").forEach(c.sortable);
  let redrawChips = () => {};
  c.theme(() => { redrawChips(); drawAll(); });
  redrawChips = c.chips(byId("methods"), d.methods, shown, drawAll);
  c.resized(drawAll);
  document.querySelectorAll('input[name="over"]').forEach((box) => box.addEventListener("change", () =>
    c.draw("figure-curves", c.curves(d, shown, chosen("over")))));
  document.querySelectorAll('input[name="what"]').forEach((box) => box.addEventListener("change", () =>
    c.draw("figure-spread", c.spread(d, shown, chosen("what")), pick)));
  if (d.clients) {
    d.clients.ids.forEach((at, k) => byId("client").append(c.element("option", d.clients.names[k], { value: at })));
    byId("client").addEventListener("change", (event) => { client = Number(event.target.value); drawClient(); });
    document.querySelectorAll("button.client").forEach((button) =>
      button.addEventListener("click", () => pick(Number(button.dataset.at))));
    const i = d.methods.findIndex((m, j) => m.against !== null && c.valuesOf(d, j, "gain"));
    const values = i < 0 ? null : c.valuesOf(d, i, "gain");
    const worst = values ? values.reduce((a, v, k) => (v !== null && (a < 0 || v < values[a]) ? k : a), -1) : 0;
    client = d.clients.ids[Math.max(0, worst)];
    byId("client").value = String(client);
  }
  byId("graph-of")?.addEventListener("change", drawGraph);
  drawAll();
})(coterie);
