"use strict";
// Charts of columns: what is drawn, with which unit, and how it is kept bounded.

const by = (id) => document.getElementById(id);
const COLOURS = ["#1f77b4", "#d9730d", "#2b8a3e", "#9b3fb5", "#c2255c", "#0b8a8f", "#8a6d00", "#5f6b7a"];
const ON_DARK = ["#6cb6ff", "#ffa657", "#7ee787", "#d2a8ff", "#ff9bce", "#56d4dd", "#e3b341", "#b1bac4"];
const DARK = matchMedia("(prefers-color-scheme: dark)");
const MOST_POINTS = 3000; // of a table in this page, where it shows one run
const ALL_POINTS = 12000; // of one table of all runs together

// table: which of a run's tables; key: which column; losses differ between methods.
const CHARTS = [
  { id: "rate", title: "Speed", unit: "steps/s", table: "points", keys: ["steps_per_second"] },
  { id: "updates", title: "Updates", unit: "updates/s", table: "points", keys: ["updates_per_second"] },
  { id: "staleness", title: "Staleness", unit: "updates", table: "points", keys: ["staleness_recent"] },
  { id: "loss", title: "Loss", unit: "sum over an unroll", table: "points", keys: ["loss"] },
  { id: "losses", title: "Policy and value loss", unit: "mean of a step", table: "points", keys: ["policy_loss", "value_loss"] },
  { id: "entropy", title: "Entropy", unit: "nats", table: "points", keys: ["entropy"] },
  { id: "norm", title: "Gradient norm", unit: "L2, mean of recent pushes", table: "points", keys: ["gradient_norm"] },
  { id: "learning-rate", title: "Learning rate", unit: "of the next update", table: "points", keys: ["learning_rate"] },
  { id: "epsilon", title: "ε", unit: "share of random actions", table: "points", keys: ["epsilon"] },
  { id: "value", title: "Value estimate", unit: "discounted return", table: "points", keys: ["value"] },
  { id: "length", title: "Episode length", unit: "steps", table: "episodes", keys: ["length"], points: true },
  { id: "workers-alive", title: "Workers", unit: "alive", table: "points", keys: ["workers_alive"] },
];

function colour(number) { return (DARK.matches ? ON_DARK : COLOURS)[number % COLOURS.length]; }
function style(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }

function short(value) {
  if (value === null || value === undefined || !isFinite(value)) return "–";
  if (Number.isInteger(value) && Math.abs(value) < 1e4) return String(value);
  const size = Math.abs(value);
  if (size >= 1e6) return (value / 1e6).toFixed(2) + " M";
  if (size >= 1e4) return (value / 1e3).toFixed(1) + " k";
  if (size >= 100) return value.toFixed(0);
  if (size >= 1) return value.toFixed(2);
  return size < 1e-3 ? value.toExponential(2) : value.toPrecision(3);
}

// Labels of an axis: one unit for all, and as many digits as tell neighbours apart.
function ticks(values) {
  const most = Math.max(...values.map(Math.abs)), step = values.length > 1 ? Math.abs(values[1] - values[0]) : most;
  const power = most && most < 1e-3 ? Math.floor(Math.log10(most)) : most >= 1e6 ? 6 : most >= 1e4 ? 3 : 0;
  const sign = { 6: " M", 3: " k", 0: "" }[power] ?? `e${power}`, scale = 10 ** power;
  let digits = 0;
  while (digits < 8 && Math.abs(Math.round(step / scale * 10 ** digits) - step / scale * 10 ** digits) > 1e-6) digits++;
  return values.map((value) => (Math.abs(value) < step / 1e6 ? "0" : (value / scale).toFixed(digits) + sign));
}

function last(values) {
  return upTo(values || [], (values || []).length - 1);
}

function upTo(values, index) { // the newest value at this index or before it
  for (let k = index; k >= 0; k--) if (values[k] !== null && values[k] !== undefined) return values[k];
  return null;
}

// Appends rows to a table of columns. Rows that go back replace those beyond them: the run was resumed there.
function append(table, rows, order, most = MOST_POINTS) {
  for (const row of rows) {
    const at = table[order] || (table[order] = []);
    while (at.length && at[at.length - 1] > row[order]) for (const name in table) table[name].pop();
    const count = at.length;
    for (const name in row) if (!table[name]) table[name] = new Array(count).fill(null);
    for (const name in table) table[name].push(row[name] === undefined ? null : row[name]);
  }
  for (let count = (table[order] || []).length; count > most; count = table[order].length) {
    for (const name in table) table[name] = table[name].filter((_, k) => k % 2 === (count - 1) % 2);
  }
}

// A card with a caption: the title with its unit, and the values.
function card(parent, id, title, wide) {
  const figure = document.createElement("figure"), caption = document.createElement("figcaption");
  const name = document.createElement("span"), values = document.createElement("span"), place = document.createElement("div");
  figure.id = "chart-" + id;
  if (wide) figure.className = "wide";
  name.textContent = title;
  values.className = "values";
  place.setAttribute("role", "img");
  caption.append(name, values);
  figure.append(caption, place);
  if (wide) parent.prepend(figure);
  else parent.append(figure);
  return { figure, values, place };
}

function titled(spec) { return spec.title + (spec.unit ? ` (${spec.unit})` : ""); }

class Chart {
  constructor(parent, spec) {
    this.spec = spec;
    Object.assign(this, card(parent, spec.id, titled(spec), spec.wide));
    this.shape = "";
    this.plot = null;
  }

  // data: [xs, ys, …]; series: [{label, stroke, points, dash, width}, …] of ys; bands as uPlot wants them
  draw(x, data, series, bands = []) {
    const empty = !data[0].length || data[0][0] === data[0][data[0].length - 1] ||
      series.every((one, k) => one.dash || last(data[k + 1]) === null); // a dashed line is no result
    this.x = x === "minutes" ? "minutes" : "steps";
    this.data = data;
    this.series = series;
    this.figure.hidden = empty && !this.spec.wide;
    if (this.figure.hidden) return;
    this.place.hidden = empty;
    if (empty) this.values.textContent = "no values yet";
    else this.describe(this.plot ? this.plot.cursor.idx : null);
    const now = empty ? "no values yet" : "now " + series.map((one, k) => `${one.label} ${short(last(data[k + 1]))}`).join(", ");
    this.place.setAttribute("aria-label", `${this.spec.title} over ${this.x}: ${now}`);
    if (empty) return;
    const size = { width: Math.max(200, this.place.clientWidth || 300), height: this.height() };
    const shape = JSON.stringify([x, series.map((one) => [one.label, one.stroke, one.width]), bands.length, style("--ink")]);
    if (this.plot && shape === this.shape) {
      if (this.plot.width !== size.width || this.plot.height !== size.height) this.plot.setSize(size);
      this.plot.setData(data);
      return;
    }
    if (this.plot) this.plot.destroy();
    this.shape = shape;
    this.plot = new uPlot(this.options(size, bands), data, this.place);
  }

  options(size, bands) {
    const axis = { stroke: style("--quiet"), grid: { stroke: style("--line"), width: 1 }, ticks: { stroke: style("--line") } };
    const labels = (_, values) => ticks(values);
    const widest = (_, values) => 22 + 7 * Math.max(3, ...(values || []).map((value) => value.length));
    return {
      ...size, legend: { show: false }, cursor: { y: false }, padding: [10, 12, 0, 0],
      hooks: { setCursor: [(plot) => this.describe(plot.cursor.idx)] },
      scales: { x: { time: false } },
      axes: [{ ...axis, values: labels, size: 28 }, { ...axis, values: labels, size: widest }],
      series: [{}, ...this.series.map((one) => ({
        stroke: one.stroke, width: one.points ? 0 : one.width || 1.5, dash: one.dash, spanGaps: true,
        points: one.points ? { show: true, size: 4, fill: one.stroke, stroke: one.stroke } : { show: false },
        paths: one.points ? () => null : undefined,
      }))],
      bands,
    };
  }

  describe(index) { // the values where the pointer is, else the newest ones
    const here = index !== null && index !== undefined && index < this.data[0].length;
    const parts = this.series.map((one, k) => {
      const part = document.createElement("span"), value = short(here ? upTo(this.data[k + 1], index) : last(this.data[k + 1]));
      part.textContent = this.series.length > 1 ? `${one.label} ${value}` : value;
      if (this.series.length > 1) {
        const dot = document.createElement("span");
        dot.className = "dot";
        dot.style.background = one.stroke;
        part.prepend(dot);
      }
      return part;
    });
    if (here) parts.push(`at ${short(this.data[0][index])} ${this.x}`);
    this.values.replaceChildren(...parts);
  }

  height() { return this.spec.wide ? (this.place.closest(".with-game") ? 400 : 300) : 170; }
}

// Shares of updates by staleness.
class Histogram {
  constructor(parent) {
    this.place = null;
    Object.assign(this, card(parent, "staleness-histogram", "Staleness, share of updates (%)", false));
    this.place.className = "bars";
  }

  draw(staleness) { // {bounds, all, recent}: counts by bound, the last above all of them
    const recent = (staleness?.recent || []).length > 0, counts = (recent ? staleness.recent : staleness?.all) || [];
    const sum = counts.reduce((total, count) => total + count, 0);
    this.figure.hidden = !sum;
    if (!sum) return;
    const end = counts.reduce((most, count, k) => (count ? k : most), 0) + 1;
    const names = staleness.bounds.map((bound, k) => {
      const least = k ? staleness.bounds[k - 1] + 1 : bound;
      return least === bound ? String(bound) : `${least}–${bound}`;
    }).concat(`> ${staleness.bounds[staleness.bounds.length - 1]}`);
    const shares = counts.slice(0, Math.max(end, 4)).map((count) => 100 * count / sum), most = Math.max(...shares);
    this.values.textContent = recent ? "last minute" : "whole run";
    this.place.setAttribute("aria-label", `Staleness in updates, ${this.values.textContent}: ` +
      shares.map((share, k) => `${names[k]}: ${share.toFixed(1)} %`).join(", "));
    this.place.replaceChildren(...shares.map((share, k) => {
      const column = document.createElement("div"), number = document.createElement("span"), bar = document.createElement("i");
      const name = document.createElement("span");
      number.textContent = share && share < 0.5 ? "< 1" : share.toFixed(0);
      bar.style.height = `${100 * share / most}px`;
      name.textContent = names[k];
      column.append(number, bar, name);
      return column;
    }));
  }
}
