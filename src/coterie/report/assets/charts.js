/* The figures of a report as Vega-Lite specifications. Names come in as data and as domains of scales
   only: of lists in `sort`, Vega-Lite would make expressions. */
"use strict";

const coterie = {};

(function (c) {
  // Okabe and Ito's colours on white, Paul Tol's "light" ones on dark, and two more and one more;
  // Local is grey and dashed.
  const LIGHT = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8000E0", "#602000"];
  const DARK = ["#77AADD", "#EE8866", "#44BB99", "#FFAABB", "#EEDD88", "#99DDFF", "#BBCC33", "#D070FF"];
  const DASHES = [[1, 0], [7, 3], [2, 2], [9, 3, 2, 3]];
  const SHAPES = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down"];

  c.dark = () => document.documentElement.dataset.theme === "dark";

  /* Colour, dash and mark of every method, in the order of the data. */
  c.looks = (methods) => {
    const colours = c.dark() ? DARK : LIGHT;
    let i = 0, alone = 0;
    return methods.map((m) => {
      if (m.alone) {
        return { colour: c.dark() ? "#c3c9d4" : "#555c66", dash: DASHES[1 + (alone++ % 3)], shape: "cross" };
      }
      const look = {
        colour: colours[i % colours.length],
        dash: DASHES[Math.floor(i / colours.length) % DASHES.length],
        shape: SHAPES[i % SHAPES.length],
      };
      i += 1;
      return look;
    });
  };

  const scales = (methods) => {
    const looks = c.looks(methods), domain = methods.map((m) => m.label);
    return {
      color: { field: "method", type: "nominal", legend: null,
        scale: { domain, range: looks.map((l) => l.colour) } },
      strokeDash: { field: "method", type: "nominal", legend: null,
        scale: { domain, range: looks.map((l) => l.dash) } },
      shape: { field: "method", type: "nominal", legend: null,
        scale: { domain, range: looks.map((l) => l.shape) } },
    };
  };

  const tip = (field, title, format) => (format
    ? { field, title, type: "quantitative", format } : { field, title, type: "nominal" });
  const bytesAxis = { labelExpr: "format(datum.value, '.3~s') + 'B'" };
  const number = (v) => (Math.abs(v) >= 1 ? v.toFixed(2) : v.toPrecision(3));

  c.bytes = (v) => {
    for (const unit of ["B", "kB", "MB", "GB", "TB"]) {
      if (v < 1000 || unit === "TB") return `${unit === "B" || v >= 100 ? v.toFixed(0) : v.toFixed(1)} ${unit}`;
      v /= 1000;
    }
  };
  c.number = number;

  const shownMethods = (d, shown) => d.methods.map((m, i) => i).filter((i) => shown.has(i));

  /* Mean over rounds, bytes or gradients, with a band where there are several seeds. */
  c.curves = (d, shown, over) => {
    const rows = [], flat = [], all = [];
    for (const i of shownMethods(d, shown)) {
      const curve = d.curves[i];
      if (!curve) continue;
      const method = d.methods[i].label, x = curve[over], last = x.length - 1;
      if (over === "bytes" && x[last] === 0) {
        flat.push({ method, y: curve.mean[last], note: "no bytes; its end" });
        continue;
      }
      x.forEach((value, j) => {
        if (curve.mean[j] === null || (over !== "rounds" && value <= 0)) return;
        const std = curve.std ? curve.std[j] : 0;
        const row = { method, x: value, y: curve.mean[j], low: curve.mean[j] - std, high: curve.mean[j] + std,
          round: curve.rounds[j], bytes: c.bytes(curve.bytes[j]), gradients: curve.gradients[j],
          told: number(curve.mean[j]) + (curve.std ? ` ± ${curve.mean[j] >= 1 ? std.toFixed(2) : number(std)}` : "") };
        rows.push(row);
        if (j >= 0.15 * (x.length - 1)) all.push(row);
      });
    }
    // The first models would squeeze everything else.
    const ys = all.flatMap((r) => [r.low, r.high]).concat(flat.map((r) => r.y));
    const low = Math.min(...ys), high = Math.max(...ys), room = (high - low) * 0.05 || 1;
    const s = scales(d.methods);
    const title = { rounds: "round", bytes: "bytes per client so far, up and down",
      gradients: "gradients per client so far" }[over];
    const x = { field: "x", type: "quantitative", title,
      scale: over === "bytes" ? { type: "log", nice: false } : { nice: false },
      axis: over === "bytes" ? { ...bytesAxis, tickCount: 5 } : { format: "~s" } };
    const y = (field) => ({ field, type: "quantitative", title: d.metric.label,
      scale: { domain: [low - room, high + room], nice: false, zero: false } });
    const tooltip = [tip("method", "method"), tip("told", d.metric.title), tip("round", "round", ",d"),
      tip("bytes", "bytes per client"), tip("gradients", "gradients per client", ",.0f")];
    const layer = [];
    if (rows.some((r) => r.high > r.low)) {
      layer.push({ mark: { type: "area", opacity: 0.18, clip: true },
        encoding: { x, y: { ...y("low") }, y2: { field: "high" }, color: s.color } });
    }
    layer.push({ mark: { type: "line", strokeWidth: 2, clip: true },
      encoding: { x, y: y("y"), color: s.color, strokeDash: s.strokeDash } });
    layer.push({ mark: { type: "point", filled: true, size: 70, clip: true },
      params: [{ name: "near", select: { type: "point", on: "pointerover", clear: "pointerout", nearest: true } }],
      encoding: { x, y: y("y"), color: s.color, shape: s.shape, tooltip,
        opacity: { condition: { param: "near", value: 1, empty: false }, value: 0 } } });
    if (flat.length) {
      layer.push({ data: { values: flat }, mark: { type: "rule", strokeWidth: 2 },
        encoding: { y: y("y"), color: s.color, strokeDash: s.strokeDash,
          tooltip: [tip("method", "method"), tip("y", d.metric.title, ".2f"), tip("note", "bytes")] } });
    }
    return { data: { values: rows }, height: 300, layer,
      told: { columns: ["method", "round", "bytes per client", "gradients per client", d.metric.title],
        rows: rows.map((r) => [r.method, r.round, r.bytes, r.gradients, r.told]) } };
  };

  const quantile = (sorted, q) => {
    const at = (sorted.length - 1) * q, low = Math.floor(at);
    return sorted[low] + (at - low) * ((sorted[low + 1] ?? sorted[low]) - sorted[low]);
  };

  /* A row for each method, in this order. */
  const rowsOf = (domain) => ({ field: "method", type: "nominal", title: null, scale: { domain }, axis: { labelLimit: 130 } });

  /* What each client has: its score, or its gain over training alone. */
  c.valuesOf = (d, i, what) => {
    const own = d.clients.scores[i], m = d.methods[i];
    if (!own) return null;
    if (what === "score") return own;
    if (m.against === null || !d.clients.scores[m.against]) return null;
    const alone = d.clients.scores[m.against], sign = d.metric.higher ? 1 : -1;
    return own.map((v, k) => (v === null || alone[k] === null ? null : sign * (v - alone[k])));
  };

  c.spread = (d, shown, what) => {
    const points = [], boxes = [], worst = [];
    for (const i of shownMethods(d, shown)) {
      const values = c.valuesOf(d, i, what), method = d.methods[i].label;
      if (!values) continue;
      const has = values.map((v, k) => [v, k]).filter(([v, k]) => v !== null && d.clients.counts[k]);
      if (!has.length) continue;
      const sorted = has.map(([v]) => v).sort((a, b) => a - b);
      const low = what === "gain" || d.metric.higher;
      const [value, k] = has.reduce((a, b) => ((low ? b[0] < a[0] : b[0] > a[0]) ? b : a));
      boxes.push({ method, low: quantile(sorted, 0.25), mid: quantile(sorted, 0.5), high: quantile(sorted, 0.75) });
      worst.push({ method, v: value, client: d.clients.names[k], at: d.clients.ids[k] });
      const step = Math.max(1, Math.floor(has.length / 400));
      has.forEach(([v, j], n) => {
        if (n % step === 0 || j === k) {
          points.push({ method, v, client: d.clients.names[j], at: d.clients.ids[j],
            jitter: ((j * 0.6180339887) % 1) - 0.5, told: number(v), rows: d.clients.test[j] });
        }
      });
    }
    const s = scales(d.methods);
    const title = what === "gain" ? d.metric.gain : d.metric.label;
    const y = rowsOf(boxes.map((b) => b.method));
    const x = (field) => ({ field, type: "quantitative", title, scale: { zero: false, nice: true } });
    const layer = [
      { data: { values: boxes }, mark: { type: "bar", size: 32, opacity: 0.22 },
        encoding: { y, x: x("low"), x2: { field: "high" }, color: s.color } },
      { data: { values: points }, mark: { type: "point", filled: true, size: 26, opacity: 0.75, yOffset: { expr: "26 * datum.jitter" } },
        encoding: { y, x: x("v"),
          color: s.color, shape: s.shape,
          tooltip: [tip("client", "client"), tip("method", "method"), tip("told", title), tip("rows", "test rows", ",d")] } },
      { data: { values: boxes }, mark: { type: "tick", thickness: 3, size: 32, color: c.dark() ? "#fff" : "#111" },
        encoding: { y, x: x("mid"), tooltip: [tip("method", "method"), tip("mid", "median", ".2f")] } },
      { data: { values: worst }, mark: { type: "text", align: "left", dx: 2, dy: -13, fontSize: 10, limit: 130,
        color: c.dark() ? "#e8ecf3" : "#1c2330" }, encoding: { y, x: x("v"), text: { field: "client" } } },
    ];
    if (what === "gain") layer.unshift({ mark: { type: "rule", color: "#888" }, data: { values: [{ z: 0 }] },
      encoding: { x: { datum: 0 } } });
    return { height: 46 * Math.max(1, boxes.length), layer,
      told: { columns: ["method", "worst client", "worst", "lower quartile", "median", "upper quartile"],
        rows: boxes.map((b, n) => [b.method, worst[n].client, number(worst[n].v), number(b.low), number(b.mid), number(b.high)]) } };
  };

  c.scatter = (d, shown) => {
    const seeds = [], means = [];
    for (const i of shownMethods(d, shown)) {
      const found = d.fairness[i], method = d.methods[i].label;
      if (!found) continue;
      found.forEach(([std, mean], j) => seeds.push({ method, std, mean, seed: d.methods[i].seeds[j] }));
      const average = (n) => found.reduce((a, v) => a + v[n], 0) / found.length;
      means.push({ method, std: average(0), mean: average(1) });
    }
    // Names that would cover each other are left to the legend.
    const reach = (n) => Math.max(...means.map((m) => m[n])) - Math.min(...means.map((m) => m[n])) || 1;
    const wide = 0.14 * reach("std"), tall = 0.07 * reach("mean"), named = [];
    for (const m of means) {
      if (named.every((o) => Math.abs(o.std - m.std) > wide || Math.abs(o.mean - m.mean) > tall)) named.push(m);
    }
    const s = scales(d.methods), q = { type: "quantitative", scale: { zero: false, padding: 16 } };
    const x = { field: "std", title: "deviation between clients (left is fairer)", ...q };
    const y = { field: "mean", title: d.metric.label, ...q };
    const tooltip = [tip("method", "method"), tip("mean", "mean", ".2f"), tip("std", "deviation", ".2f")];
    const layer = [
      { data: { values: means }, mark: { type: "point", filled: true, size: 170, opacity: 1 },
        encoding: { x, y, color: s.color, shape: s.shape, tooltip } },
      { data: { values: named }, mark: { type: "text", dy: -14, fontSize: 10, limit: 120, color: c.dark() ? "#e8ecf3" : "#1c2330" },
        encoding: { x, y, text: { field: "method" } } }];
    if (seeds.length > means.length) {
      layer.unshift({ data: { values: seeds }, mark: { type: "point", filled: true, size: 30, opacity: 0.5 },
        encoding: { x, y, color: s.color, shape: s.shape, tooltip: [...tooltip, tip("seed", "seed")] } });
    }
    return { height: 300, layer, told: { columns: ["method", "mean", "deviation between clients"],
      rows: means.map((m) => [m.method, number(m.mean), number(m.std)]) } };
  };

  c.gains = (d, shown) => {
    const rows = [];
    for (const i of shownMethods(d, shown)) {
      const values = c.valuesOf(d, i, "gain");
      if (!values) continue;
      const has = values.map((v, k) => [v, k]).filter(([v, k]) => v !== null && d.clients.counts[k])
        .sort((a, b) => a[0] - b[0]);
      has.forEach(([v, k], n) => rows.push({ method: d.methods[i].label, v, told: number(v), client: d.clients.names[k],
        at: d.clients.ids[k], share: has.length > 1 ? (100 * n) / (has.length - 1) : 50 }));
    }
    const s = scales(d.methods);
    const x = { field: "share", type: "quantitative", title: "clients, sorted by gain (%)", scale: { domain: [0, 100] } };
    const y = { field: "v", type: "quantitative", title: d.metric.gain };
    return { height: 300, data: { values: rows }, layer: [
      { mark: { type: "rule", color: "#888" }, encoding: { y: { datum: 0 } } },
      { mark: { type: "line", strokeWidth: 2, interpolate: "step-after" }, encoding: { x, y, color: s.color, strokeDash: s.strokeDash } },
      { mark: { type: "point", filled: true, size: 60 },
        params: [{ name: "near", select: { type: "point", on: "pointerover", clear: "pointerout", nearest: true } }],
        encoding: { x, y, color: s.color, shape: s.shape,
          tooltip: [tip("client", "client"), tip("method", "method"), tip("told", d.metric.gain)],
          opacity: { condition: { param: "near", value: 1, empty: false }, value: 0 } } }],
      told: { columns: ["method", "client", d.metric.gain], rows: rows.map((r) => [r.method, r.client, r.told]) } };
  };

  c.bill = (d, shown) => {
    const rows = [];
    for (const i of shownMethods(d, shown)) {
      ["up", "down"].forEach((way, j) => rows.push({ method: d.methods[i].label, way, v: d.bill[i][j], told: c.bytes(d.bill[i][j]) }));
    }
    const colours = c.dark() ? ["#77AADD", "#EEDD88"] : ["#0072B2", "#E69F00"];
    return { height: 14 * Math.max(2, rows.length), data: { values: rows }, mark: { type: "bar" },
      encoding: { y: rowsOf([...new Set(rows.map((r) => r.method))]),
        x: { field: "v", type: "quantitative", title: "bytes of all clients together", axis: { ...bytesAxis, tickCount: 5 } },
        color: { field: "way", type: "nominal", title: null, sort: ["up", "down"], legend: { orient: "top" },
          scale: { domain: ["up", "down"], range: colours } },
        order: { field: "way", sort: "descending" },
        tooltip: [tip("method", "method"), tip("way", "direction"), tip("told", "bytes")] },
      told: { columns: ["method", "direction", "bytes"], rows: rows.map((r) => [r.method, r.way, r.told]) } };
  };

  c.graph = (d, i) => {
    const g = d.graphs[i], gains = c.valuesOf(d, i, "gain"), top = Math.max(...g.edges.map((e) => e[2]), 1e-12);
    const place = (k) => ({ x: g.places[k][0], y: g.places[k][1] });
    const ties = g.edges.map(([a, b, w]) => ({ ...place(a), x2: g.places[b][0], y2: g.places[b][1], w: w / top, told: number(w),
      a: d.clients.names[a], b: d.clients.names[b] }));
    const many = g.edges.length > 400;
    const nodes = g.places.map((p, k) => ({ ...place(k), client: d.clients.names[k], at: k, gain: gains ? gains[k] : null,
      told: gains && gains[k] !== null ? number(gains[k]) : "not known", rows: d.clients.train[k] }));
    const most = Math.max(...nodes.map((n) => Math.abs(n.gain ?? 0)), 1e-9);
    const off = { axis: null, scale: { domain: [-0.06, 1.06] } };
    const x = { field: "x", type: "quantitative", ...off }, y = { field: "y", type: "quantitative", ...off };
    return { height: 380, layer: [
      { data: { values: ties }, mark: { type: "rule", color: c.dark() ? "#8fa0bd" : "#5b6b85" },
        encoding: { x, y, x2: { field: "x2" }, y2: { field: "y2" },
          opacity: { field: "w", type: "quantitative", legend: null, scale: { domain: [0, 1], range: many ? [0.03, 0.35] : [0.12, 0.8] } },
          strokeWidth: { field: "w", type: "quantitative", legend: null, scale: { domain: [0, 1], range: [0.5, 2.5] } },
          tooltip: [tip("a", "between"), tip("b", "and"), tip("told", "weight")] } },
      { data: { values: nodes }, mark: { type: "point", filled: true, size: nodes.length > 80 ? 60 : 170, opacity: 1,
        stroke: c.dark() ? "#e8ecf3" : "#1c2330", strokeWidth: 0.8, cursor: "pointer" },
        encoding: { x, y,
          fill: { field: "gain", type: "quantitative", title: d.metric.gain,
            scale: { domain: [-most, 0, most], interpolate: "rgb",
              range: c.dark() ? ["#ff8c3a", "#3a4252", "#58b4ff"] : ["#c85a00", "#f7f7f7", "#0b6bc4"] },
            legend: { orient: "bottom", gradientLength: 160 } },
          tooltip: [tip("client", "client"), tip("told", d.metric.gain), tip("rows", "training rows", ",d")] } }],
      told: { columns: ["between", "and", "weight"], rows: ties.map((t) => [t.a, t.b, t.told]) } };
  };

  c.labels = (d) => {
    const rows = [];
    d.labels.counts.forEach((counts, k) => {
      const sum = counts.reduce((a, b) => a + b, 0) || 1;
      counts.forEach((n, j) => rows.push({ client: k, name: d.labels.of[k], label: j, called: d.labels.names[j], at: d.labels.clients[k],
        n, share: n / sum, told: `${n} (${((100 * n) / sum).toFixed(0)}%)` }));
    });
    const each = Math.max(4, Math.min(18, Math.floor(560 / d.labels.of.length)));
    // Where two have the same name, or there are many, their places make the axis.
    const axis = (by, name, all, most, title) => (all.length <= most && new Set(all).size === all.length
      ? { field: name, type: "ordinal", scale: { domain: all }, title, axis: { labelLimit: 90, ticks: false } }
      : { field: by, type: "ordinal", title: `${title} (${all.length})`, axis: { labels: false, ticks: false } });
    return { height: each * d.labels.of.length, data: { values: rows }, mark: { type: "rect", cursor: "pointer" },
      encoding: { x: axis("label", "called", d.labels.names, 30, "labels"),
        y: axis("client", "name", d.labels.of, 40, "clients"),
        color: { field: "share", type: "quantitative", title: "share of a client's rows",
          scale: { domain: [0, 1], range: c.dark() ? ["#1a202c", "#26618f", "#6fc3df", "#f4f1c9"] : ["#f4f6f9", "#8fc7dd", "#2b7bb3", "#0b2f5c"] },
          legend: { orient: "bottom", format: ".0%", gradientLength: 160 } },
        tooltip: [tip("name", "client"), tip("called", "label"), tip("told", "training rows")] },
      told: { columns: ["client", ...d.labels.names], rows: d.labels.counts.map((n, k) => [d.labels.of[k], ...n]) } };
  };

  /* One client: its score over rounds by every method. */
  c.client = (d, shown, k) => {
    const rows = [];
    for (const i of shownMethods(d, shown)) {
      const curve = d.clients.curves && d.clients.curves[i];
      if (!curve) continue;
      curve[k].forEach((v, j) => { if (v !== null) rows.push({ method: d.methods[i].label, round: d.clients.rounds[i][j], v, told: number(v) }); });
    }
    if (!rows.length) return null;
    const s = scales(d.methods);
    const x = { field: "round", type: "quantitative", title: "round", scale: { nice: false } };
    const y = { field: "v", type: "quantitative", title: d.metric.label, scale: { zero: false } };
    return { height: 260, data: { values: rows }, layer: [
      { mark: { type: "line", strokeWidth: 2 }, encoding: { x, y, color: s.color, strokeDash: s.strokeDash } },
      { mark: { type: "point", filled: true, size: 60 },
        params: [{ name: "near", select: { type: "point", on: "pointerover", clear: "pointerout", nearest: true } }],
        encoding: { x, y, color: s.color, shape: s.shape, tooltip: [tip("method", "method"), tip("round", "round", ",d"), tip("told", d.metric.title)],
          opacity: { condition: { param: "near", value: 1, empty: false }, value: 0 } } }],
      told: { columns: ["method", "round", d.metric.title], rows: rows.map((r) => [r.method, r.round, r.told]) } };
  };

  /* The labels of one client beside those of all. */
  c.clientLabels = (d, at) => {
    const k = d.labels ? d.labels.clients.indexOf(at) : -1;
    if (k < 0) return null;
    const sum = (counts) => counts.reduce((a, b) => a + b, 0) || 1;
    const own = d.labels.counts[k], all = d.labels.names.map((_, j) => sum(d.labels.counts.map((r) => r[j])));
    const rows = d.labels.names.flatMap((name, j) => [
      { j, name, who: "this client", share: own[j] / sum(own), told: `${own[j]} rows` },
      { j, name, who: "all clients", share: all[j] / sum(all), told: `${all[j]} rows` }]);
    return { height: 180, data: { values: rows }, mark: { type: "bar" },
      encoding: { x: { field: "name", type: "nominal", scale: { domain: d.labels.names }, title: "label", axis: { labelLimit: 80 } },
        xOffset: { field: "who", sort: ["this client", "all clients"] },
        y: { field: "share", type: "quantitative", title: "share of rows", axis: { format: ".0%" } },
        color: { field: "who", type: "nominal", title: null, legend: { orient: "top" },
          scale: { domain: ["this client", "all clients"], range: [c.dark() ? "#77AADD" : "#0072B2", c.dark() ? "#7a8496" : "#b3bac6"] } },
        tooltip: [tip("name", "label"), tip("who", "who"), tip("told", "has"), tip("share", "share", ".1%")] },
      told: { columns: ["label", "this client", "all clients"], rows: d.labels.names.map((n, j) => [n, own[j], all[j]]) } };
  };

  /* The honest clients' mean over the share of malicious ones, under one attack. */
  c.attack = (d, shown, a) => {
    const rows = [], gone = [];
    for (const i of shownMethods(d, shown)) {
      d.attacks[a].cells[i].forEach((cell, j) => {
        const row = { method: d.methods[i].label, f: d.fractions[j], told: cell.told };
        if (cell.mean === null) gone.push(row);
        else rows.push({ ...row, v: cell.mean, low: cell.mean - (cell.std || 0), high: cell.mean + (cell.std || 0) });
      });
    }
    const s = scales(d.methods);
    const domain = d.metric.percent ? [0, 101] : undefined;
    const x = { field: "f", type: "quantitative", title: "share of malicious clients", axis: { format: "%" } };
    const y = (field) => ({ field, type: "quantitative", title: d.metric.label, scale: domain ? { domain } : { zero: false } });
    const tooltip = [tip("method", "method"), tip("f", "malicious", ".0%"), tip("told", d.metric.title)];
    const layer = [
      { mark: { type: "line", strokeWidth: 2 }, encoding: { x, y: y("v"), color: s.color, strokeDash: s.strokeDash } },
      { mark: { type: "point", filled: true, size: 60 }, encoding: { x, y: y("v"), color: s.color, shape: s.shape, tooltip } }];
    if (rows.some((r) => r.high > r.low)) {
      layer.unshift({ mark: { type: "area", opacity: 0.18, clip: true }, encoding: { x, y: y("low"), y2: { field: "high" }, color: s.color } });
    }
    if (gone.length) {
      layer.push({ data: { values: gone }, mark: { type: "text", text: "×", fontSize: 18, fontWeight: "bold", dy: -6 },
        encoding: { x, y: { value: 300 }, color: s.color, tooltip } });
    }
    return { height: 300, data: { values: rows }, layer,
      told: { columns: ["method", "malicious", d.metric.title], rows: [...rows, ...gone].map((r) => [r.method, `${Math.round(100 * r.f)}%`, r.told]) } };
  };
})(coterie);
