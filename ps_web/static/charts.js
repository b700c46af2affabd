"use strict";
// Charts of columns: what is drawn, with which unit, and how it is kept bounded.

const by = (id) => document.getElementById(id);
const DARK = matchMedia("(prefers-color-scheme: dark)");
const MOST_POINTS = 3000; // of a table in this page, where it shows one run
const ALL_POINTS = 12000; // of one table of all runs together

const X = { global_steps: "steps", minutes: "minutes", episodes: "episodes" }; // columns that may be the x axis, and their units

// key: a column of a run's points, or of its episodes; losses differ between methods.
const LEARNING = [
  { id: "loss", title: "Loss", unit: "sum over an unroll", key: "loss" },
  { id: "policy-loss", title: "Policy loss", unit: "mean of a step", key: "policy_loss" },
  { id: "value-loss", title: "Value loss", unit: "mean of a step", key: "value_loss" },
  { id: "entropy", title: "Entropy", unit: "nats", key: "entropy" },
  { id: "value", title: "Value estimate", unit: "discounted return", key: "value" },
  { id: "norm", title: "Gradient norm", unit: "L2, mean of recent pushes", key: "gradient_norm" },
  { id: "learning-rate", title: "Learning rate", unit: "of the next update", key: "learning_rate" },
  { id: "epsilon", title: "ε", unit: "share of random actions", key: "epsilon" },
  { id: "length", title: "Episode length", unit: "steps", table: "episodes", key: "length", points: true },
];
const PLUMBING = [
  { id: "rate", title: "Speed", unit: "steps/s", key: "steps_per_second" },
  { id: "updates", title: "Updates", unit: "updates/s", key: "updates_per_second" },
  { id: "staleness", title: "Staleness", unit: "updates", key: "staleness_recent" },
  { id: "workers-alive", title: "Workers", unit: "alive", key: "workers_alive" },
  { id: "collect", title: "Collecting", unit: "share of a worker's time", key: "collect_share" },
  { id: "learn", title: "Learning", unit: "share of a worker's time", key: "learn_share" },
  { id: "server", title: "Waiting for the server", unit: "share of a worker's time", key: "server_share" },
];

function colour(id, alpha = 1) { // of a run, always the same: bytes of its id are a hue and one of three tones
  const hue = parseInt(id.slice(0, 4), 16) * 360 / 65536, tone = parseInt(id.slice(4, 8), 16) % 3;
  return `oklch(${DARK.matches ? 70 + 7 * tone : 42 + 6 * tone}% 0.17 ${hue.toFixed(0)} / ${alpha})`; // 3 to 1 at least on its ground
}
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
  const most = Math.max(0, ...values.map(Math.abs)), step = Math.abs(values[1] - values[0]) || most;
  const power = most && most < 1e-3 ? Math.floor(Math.log10(most)) : most >= 1e6 ? 6 : most >= 1e4 ? 3 : 0;
  const sign = { 6: " M", 3: " k", 0: "" }[power] ?? `e${power}`, scale = 10 ** power;
  let digits = 0;
  const isWhole = (size) => Math.round(size) > 0 && Math.abs(Math.round(size) - size) < 1e-3 * size; // of the last digit
  while (digits < 14 && step && !isWhole(step / scale * 10 ** digits)) digits++;
  return values.map((value) => (Math.abs(value) < step / 1e6 ? "0" : (value / scale).toFixed(digits) + sign));
}

// Places of a logarithmic axis: powers of ten, with fewer of them also numbers between, and in a narrow range even steps.
function powers(low, high) {
  const decades = [];
  for (let e = Math.floor(Math.log10(low)); 10 ** e <= high; e++) decades.push(Number(`1e${e}`));
  for (const parts of [[1], [1, 2, 5], [1, 2, 3, 4, 5, 6, 7, 8, 9]]) {
    const found = decades.flatMap((decade) => parts.map((part) => Number((part * decade).toPrecision(1)))).filter((at) => at >= low && at <= high);
    if (found.length > 2) return found;
  }
  const size = 10 ** Math.floor(Math.log10((high - low) / 2 || low)), step = size * [1, 2, 5, 10].find((part) => (high - low) / (part * size) < 7);
  return Array.from({ length: 8 }, (_, k) => (Math.ceil(low / step) + k) * step).filter((at) => at <= high);
}

function power(value) { // the label of such a place
  const size = Math.abs(value), unit = size >= 1e6 ? 1e6 : size >= 1e3 ? 1e3 : 1, text = Number((value / unit).toPrecision(6));
  return size && size < 1e-3 ? Number(value.toPrecision(6)).toExponential() : text + { 1e6: " M", 1e3: " k", 1: "" }[unit];
}

function last(values) {
  return upTo(values || [], (values || []).length - 1);
}

function upTo(values, index) { // the newest value at this index or before it
  for (let k = index; k >= 0; k--) if (values[k] !== null && values[k] !== undefined) return values[k];
  return null;
}

function append(table, rows) { // to the columns of a table; returns how many rows it has
  let count = (Object.values(table)[0] || []).length;
  for (const row of rows) {
    for (const name in row) if (!table[name]) table[name] = new Array(count).fill(null);
    for (const name in table) table[name].push(row[name] ?? null);
    count++;
  }
  return count;
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
  return { figure, caption, name, values, place };
}

function titled(spec) { return spec.title + (spec.unit ? ` (${spec.unit})` : ""); }

// The exponential moving average, divided by the sum of its weights: the first values are not drawn towards 0.
function smoothed(values, weight) {
  let sum = 0, weights = 0;
  return values.map((value) => {
    if (value === null) return null;
    sum = weight * sum + (1 - weight) * value;
    weights = weight * weights + (1 - weight);
    return sum / weights;
  });
}

class Chart {
  constructor(parent, spec) {
    this.spec = spec;
    Object.assign(this, card(parent, spec.id, titled(spec), spec.wide));
    this.shape = "";
    this.plot = null;
    this.tip = document.createElement("div");
    this.tip.className = "tip";
    this.tip.hidden = true;
    this.place.append(this.tip);
  }

  // lines: [{label, stroke, xs, ys, points, dash, width, bare, main, range}, …]; a bare one is drawn as it is, however
  // smooth the others; of a small chart with many lines only the main one stands above it; a range is two other lines.
  // frame: {x, zoom, log, smooth, marks: [{x, text}, …]}; bands: [{lines: [above, below], fill}, …]
  draw(lines, frame, bands = []) {
    const { xs, raw } = this.join(lines, frame);
    const empty = !xs.length || xs[0] === xs[xs.length - 1] || lines.every((line, k) => line.dash || last(raw[k]) === null);
    this.frame = frame;
    this.lines = lines;
    this.figure.hidden = empty && !this.spec.wide;
    if (this.figure.hidden) return;
    this.place.hidden = empty;
    const drawn = raw.map((ys, k) => (frame.smooth && !lines[k].points && !lines[k].dash && !lines[k].bare ? smoothed(ys, frame.smooth) : ys));
    Object.assign(this, { xs, raw, drawn });
    if (empty) this.values.textContent = "no values yet";
    else this.describe(this.plot ? this.plot.cursor.idx : null);
    const now = empty ? "no values yet" : "now " + lines.map((line, k) => `${line.label} ${short(last(raw[k]))}`).join(", ");
    this.place.setAttribute("aria-label", [`${this.spec.title} over ${X[frame.x]}: ${now}`, ...frame.marks.map((mark) => mark.text)].join("; "));
    if (empty) return;
    const behind = raw.filter((ys, k) => ys !== drawn[k]), data = [xs, ...behind, ...drawn];
    const size = { width: Math.max(200, this.place.clientWidth || 300), height: this.height() };
    const positive = raw.every((ys) => ys.every((y) => y === null || y > 0));
    this.name.textContent = titled(this.spec) + (frame.log.includes("y") && !positive ? ", symlog: logarithmic on both sides of 0" : "");
    const shape = JSON.stringify([frame.x, frame.log, positive, lines.map((line) => [line.label, line.stroke, line.width]), behind.length, bands.length, style("--ink")]);
    if (this.plot && shape === this.shape) {
      if (this.plot.width !== size.width || this.plot.height !== size.height) this.plot.setSize(size);
      this.plot.setData(data);
      return;
    }
    if (this.plot) this.plot.destroy();
    this.shape = shape;
    this.plot = new uPlot(this.options(size, positive, bands), data, this.place);
    this.plot.over.addEventListener("dblclick", () => zoomTo(null));
  }

  // One row for each value of each line, in the order of x: several games may end at the same step.
  join(lines, { log }) {
    const rows = [];
    lines.forEach(({ xs, ys }, k) => xs.forEach((at, i) => {
      const y = ys[i] ?? null;
      if (at !== null && y !== null && isFinite(y) && (at > 0 || !log.includes("x"))) rows.push([at, k, y]);
    }));
    rows.sort((one, other) => one[0] - other[0]);
    return { xs: rows.map((row) => row[0]), raw: lines.map((_, k) => rows.map((row) => (row[1] === k ? row[2] : null))) };
  }

  options(size, positive, bands) {
    const axis = { stroke: style("--quiet"), grid: { stroke: style("--line"), width: 1 }, ticks: { stroke: style("--line") } };
    const log = this.frame.log, labels = (isLog) => (_, values) => (isLog ? values.map((value) => (value === null ? "" : power(value))) : ticks(values));
    const places = (isLog) => (isLog ? { splits: (_, axis, low, high) => powers(low, high), filter: (_, splits) => splits } : {});
    const widest = (_, values) => 22 + 7 * Math.max(3, ...(values || []).map((value) => (value || "").length));
    const behind = this.lines.filter((_, k) => this.raw[k] !== this.drawn[k]);
    const series = (line) => ({
      stroke: line.stroke, width: line.points ? 0 : line.width || 1.5, dash: line.dash, spanGaps: true,
      points: line.points ? { show: true, size: 3, fill: line.stroke, stroke: line.stroke, width: 0 } : { show: false },
      paths: line.points ? () => null : undefined,
    });
    return {
      ...size, legend: { show: false }, padding: [10, 14, 0, 0],
      cursor: { y: false, drag: { x: true, y: false, setScale: false }, points: { show: false } },
      hooks: {
        setCursor: [(plot) => this.describe(plot.cursor.idx)],
        setSelect: [(plot) => this.select(plot)],
        draw: [(plot) => this.mark(plot)],
      },
      scales: {
        x: { time: false, distr: log.includes("x") ? 3 : 1, range: (_, low, high) => this.frame.zoom || [low, high] },
        y: { distr: log.includes("y") ? (positive ? 3 : 4) : 1 },
      },
      axes: [
        { ...axis, ...places(log.includes("x")), values: labels(log.includes("x")), size: 28, space: 50 },
        { ...axis, ...places(log.includes("y") && positive), values: labels(log.includes("y")), size: widest },
      ],
      series: [{}, ...behind.map((line) => ({ ...series(line), width: 1, alpha: 0.3 })), ...this.lines.map(series)],
      bands: bands.map(({ lines, fill }) => ({ series: lines.map((k) => 1 + behind.length + k), fill })),
    };
  }

  select(plot) { // what was dragged over becomes the range of all charts
    const { left, width } = plot.select;
    if (width < 4) return;
    const range = [left, left + width].map((at) => plot.posToVal(at, "x"));
    plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    zoomTo(range);
  }

  mark(plot) { // a line where something was adjusted
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.strokeStyle = style("--warn");
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
    for (const { x } of this.frame.marks) {
      const at = Math.round(plot.valToPos(x, "x", true));
      if (!(at >= bbox.left && at <= bbox.left + bbox.width)) continue;
      ctx.beginPath();
      ctx.moveTo(at, bbox.top);
      ctx.lineTo(at, bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.restore();
  }

  describe(index) { // the newest values above the chart, and beside the pointer those where it is
    const here = index !== null && index !== undefined && index < this.xs.length;
    const isShort = this.spec.wide || this.lines.length < 3, ranges = this.lines.flatMap((line) => line.range || []);
    const named = this.lines.map((_, k) => k).filter((k) => !ranges.includes(k));
    this.values.replaceChildren(...named.filter((k) => isShort || this.lines[k].main).map((k) => this.value(k, last)));
    this.tip.hidden = !here;
    if (!here) return;
    const { marks, x } = this.frame, left = this.plot.cursor.left, place = document.createElement("b");
    place.textContent = `at ${short(this.xs[index])} ${X[x]}`;
    const near = marks.filter((mark) => Math.abs(this.plot.valToPos(mark.x, "x") - left) < 8).map((mark) => {
      const text = document.createElement("span");
      text.textContent = mark.text;
      return text;
    });
    const isBeyond = (k) => !this.lines[k].xs.some((x) => x >= this.xs[index]);
    this.tip.replaceChildren(place, ...named.map((k) => this.value(k, (column) => (isBeyond(k) ? null : upTo(column, index)))), ...near);
    this.tip.dataset.side = left < this.plot.over.clientWidth / 2 ? "right" : "left";
  }

  value(k, pick) { // of one line: its name and its value; where it is smooth, also the value as it is
    const part = document.createElement("span"), { label, stroke, range } = this.lines[k], isSmooth = this.raw[k] !== this.drawn[k];
    const beside = range ? range.map((one) => short(pick(this.raw[one]))).join(" to ") : isSmooth ? short(pick(this.raw[k])) : "";
    const text = short(pick(this.drawn[k])) + (beside ? ` (${beside})` : "");
    part.textContent = this.lines.length > 1 ? `${label} ${text}` : text;
    if (this.lines.length > 1) part.prepend(dot(stroke));
    return part;
  }

  height() { return this.spec.wide ? (this.place.closest(".with-game") ? 400 : 300) : 170; }
}

function dot(ink) {
  const found = document.createElement("span");
  found.className = "dot";
  found.style.background = ink;
  return found;
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
