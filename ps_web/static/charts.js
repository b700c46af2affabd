"use strict";
// Charts of columns: what is drawn, with which unit, and how it is kept bounded.

const COLOURS = ["#1f77b4", "#d9730d", "#2b8a3e", "#9b3fb5", "#c2255c", "#0b8a8f", "#8a6d00", "#5f6b7a"];
const MOST_POINTS = 3000; // of a table in this page

// table: which of a run's tables; key: which column; names of meters differ between methods.
const CHARTS = [
  { id: "rate", title: "Speed", unit: "steps/s", table: "points", keys: ["steps_per_second"] },
  { id: "updates", title: "Updates", unit: "updates/s", table: "points", keys: ["updates_per_second"] },
  { id: "staleness", title: "Staleness", unit: "updates", table: "points", keys: ["staleness_recent"] },
  { id: "losses", title: "Losses", unit: "", table: "meters", keys: ["loss", "policy_loss", "value_loss"] },
  { id: "entropy", title: "Entropy", unit: "nats", table: "meters", keys: ["entropy"] },
  { id: "norm", title: "Gradient norm", unit: "", table: "points", keys: ["gradient_norm"] },
  { id: "learning-rate", title: "Learning rate", unit: "", table: "points", keys: ["learning_rate"] },
  { id: "epsilon", title: "ε of exploration", unit: "", table: "meters", keys: ["epsilon"] },
  { id: "value", title: "Value", unit: "return", table: "meters", keys: ["value"] },
  { id: "length", title: "Episode length", unit: "steps", table: "episodes", keys: ["length"], points: true },
  { id: "workers-alive", title: "Workers", unit: "alive", table: "points", keys: ["workers_alive"] },
];

function colour(number) { return COLOURS[number % COLOURS.length]; }
function style(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }

function short(value) {
  if (value === null || value === undefined || !isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e6) return (value / 1e6).toFixed(2) + " M";
  if (size >= 1e4) return (value / 1e3).toFixed(1) + " k";
  if (size >= 100) return value.toFixed(0);
  if (size >= 1) return value.toFixed(2);
  return size === 0 ? "0" : value.toPrecision(2);
}

function last(values) {
  for (let k = (values || []).length - 1; k >= 0; k--) if (values[k] !== null && values[k] !== undefined) return values[k];
  return null;
}

// Appends rows to a table of columns. Rows that go back replace those beyond them: the run was resumed there.
function append(table, rows, order) {
  for (const row of rows) {
    const at = table[order] || (table[order] = []);
    while (at.length && at[at.length - 1] > row[order]) for (const name in table) table[name].pop();
    const count = at.length;
    for (const name in row) if (!table[name]) table[name] = new Array(count).fill(null);
    for (const name in table) table[name].push(row[name] === undefined ? null : row[name]);
  }
  const count = (table[order] || []).length;
  if (count > MOST_POINTS) for (const name in table) table[name] = table[name].filter((_, k) => k % 2 === (count - 1) % 2);
}

class Chart {
  constructor(parent, spec) {
    this.spec = spec;
    this.figure = document.createElement("figure");
    this.figure.id = "chart-" + spec.id;
    if (spec.wide) this.figure.className = "wide";
    const caption = document.createElement("figcaption");
    this.title = document.createElement("span");
    this.title.textContent = spec.title + (spec.unit ? ` (${spec.unit})` : "");
    this.value = document.createElement("span");
    this.value.className = "value";
    caption.append(this.title, this.value);
    this.place = document.createElement("div");
    this.place.setAttribute("role", "img");
    this.figure.append(caption, this.place);
    parent.append(this.figure);
    this.shape = "";
    this.plot = null;
  }

  // data: [xs, ys, …]; series: [{label, stroke, points, dash, width}, …] of ys; bands as uPlot wants them
  draw(x, data, series, bands = []) {
    const empty = !data[0].length || data.slice(1).every((ys) => last(ys) === null);
    this.figure.hidden = empty && !this.spec.wide;
    const now = short(last(data[data.length - 1]));
    this.value.textContent = empty ? "no values yet" : now;
    this.place.setAttribute("aria-label", `${this.spec.title} over ${x === "minutes" ? "minutes" : "steps"}: ${empty ? "no values yet" : "now " + now}`);
    if (this.figure.hidden) return;
    const width = Math.max(200, this.place.clientWidth || 300);
    const shape = JSON.stringify([x, series.map((one) => [one.label, one.stroke]), bands.length, style("--ink")]);
    if (this.plot && shape === this.shape) {
      if (this.plot.width !== width) this.plot.setSize({ width, height: this.height() });
      this.plot.setData(data);
      return;
    }
    if (this.plot) this.plot.destroy();
    this.shape = shape;
    const axis = { stroke: style("--quiet"), grid: { stroke: style("--line"), width: 1 }, ticks: { stroke: style("--line") } };
    this.plot = new uPlot({
      width, height: this.height(), legend: { show: series.length > 1 }, cursor: { y: false },
      scales: { x: { time: false } },
      axes: [
        { ...axis, values: (_, ticks) => ticks.map(short), label: x === "minutes" ? "minutes" : "steps", labelSize: 16, size: 34 },
        { ...axis, values: (_, ticks) => ticks.map(short), size: 58 },
      ],
      series: [{ label: x === "minutes" ? "minutes" : "steps", value: (_, value) => short(value) }, ...series.map((one) => ({
        label: one.label, stroke: one.stroke, width: one.points ? 0 : one.width || 1.5, dash: one.dash, spanGaps: true,
        points: one.points ? { show: true, size: 3, fill: one.stroke, stroke: one.stroke } : { show: false },
        paths: one.points ? () => null : undefined, value: (_, value) => short(value),
      }))],
      bands,
    }, data, this.place);
  }

  height() { return this.spec.wide ? 300 : 150; }
}
