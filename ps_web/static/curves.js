"use strict";
// The curves of the runs that are shown, in three ranks: returns, learning, plumbing; and what their controls decide.

const EVALUATION = "evaluation/mean_return"; // of games that were played apart from training, in the chart of returns
const returns = new Chart(by("charts"), { id: "return", title: "Return", unit: "of an episode, sum of its rewards", wide: true });
const charts = [[LEARNING, "learning"], [PLUMBING, "plumbing"]].flatMap(([specs, place]) => specs.map((spec) => new Chart(by(place), spec)));
const staleness = new Histogram(by("plumbing"));
by("chart-staleness").after(staleness.figure);

function frameOf(run) { // what all charts share
  const x = X[view.get("x")] ? view.get("x") : "global_steps", zoom = view.get("zoom").split("~").map(Number);
  return {
    x, log: view.get("log"), smooth: Math.min(0.999, Math.max(0, Number(view.get("smooth")) || 0)),
    zoom: zoom.length === 2 && zoom[0] < zoom[1] ? zoom : null, marks: marksOf(run, x),
  };
}

function marksOf(run, x) { // adjustments, at the place that each chart gives them
  return run.events.filter((event) => event.kind === "adjustment").map((event) => {
    const steps = run.points.global_steps || [], row = steps.findIndex((at) => at >= event.global_steps);
    const at = x === "episodes" ? (run.points.episodes || [])[row < 0 ? steps.length - 1 : row] : event[x];
    return { x: at ?? NaN, text: `adjusted: ${event.text}` };
  });
}

// A column of a run over x. While its server answers, the status is the newest point: tiles and curves have one source.
function columnOf(run, x, key, table = "points") {
  const xs = run[table][table === "episodes" && x === "episodes" ? "episode" : x] || [], ys = run[table][key] || [], status = run.status;
  if (table !== "points" || !status || status[key] === undefined || status.global_steps < last(run.points.global_steps)) return { xs, ys };
  return { xs: [...xs, status[x]], ys: [...ys, status[key]] };
}

function drawCurves(run, shown) {
  const frame = frameOf(run), open = by("plumbing-rank").open;
  drawControls(frame);
  drawReturns(run, shown, frame);
  addCustomCharts(shown);
  for (const chart of charts) {
    if (chart.place.closest("details") && !open) continue;
    const { table, key, points } = chart.spec;
    const lines = shown.map((one) => ({ label: one.name, stroke: colour(one.id), points, main: one === run, width: one === run ? 2 : 1.5, ...columnOf(one, frame.x, key, table) }));
    chart.draw(lines.filter((line) => last(line.ys) !== null), frame);
  }
  if (open) staleness.draw(run.staleness);
  for (const rank of ["learning", "plumbing"]) by(`no-${rank}`).hidden = [...by(rank).children].some((figure) => !figure.hidden);
}

function addCustomCharts(shown) { // a number of a custom environment or callback has a slash in its name
  const known = new Set([EVALUATION, ...charts.map((chart) => chart.spec.key)]);
  for (const table of ["points", "evaluations", "logged"]) {
    for (const key of new Set(shown.flatMap((run) => Object.keys(run[table])))) {
      if (key.includes("/") && !known.has(key)) charts.push(new Chart(by("learning"), { id: key, title: key, table, key }));
    }
  }
}

function drawReturns(run, shown, frame) {
  const groups = bySeed(shown), seeds = groups.filter((group) => group.length > 1);
  by("band-choice").hidden = !seeds.length;
  by("band").checked = view.get("seeds") === "band";
  const bands = [], banded = by("band").checked ? new Set(seeds.flat()) : new Set();
  const lines = [
    ...(shown.length > 1 ? [] : [{ label: "episodes", stroke: colour(run.id, 0.35), points: true, ...columnOf(run, frame.x, "episode_return", "episodes") }]),
    ...shown.filter((one) => !banded.has(one)).map((one) => ({
      label: shown.length > 1 ? one.name : "mean of 100", stroke: colour(one.id), width: one === run ? 2.5 : 1.5,
      ...columnOf(one, frame.x, "mean_return_100"),
    })),
    ...shown.filter((one) => one.evaluations[EVALUATION]).map((one) => ({
      label: shown.length > 1 ? `${one.name}: evaluation` : "evaluation", stroke: colour(one.id), width: 1.5, dash: [3, 3],
      ...columnOf(one, frame.x, EVALUATION, "evaluations"),
    })),
  ];
  for (const group of banded.size ? seeds : []) {
    const [highest, lowest, mean] = bandOf(group, frame.x), range = [lines.length + 1, lines.length];
    const label = `${settingsOf(group[0], groups) || "all"}: mean of ${group.length} seeds`;
    bands.push({ lines: [lines.length, lines.length + 1], fill: colour(group[0].id, 0.18) });
    lines.push(highest, lowest, { ...mean, label, range });
  }
  if (target(run) !== null) {
    const ends = lines.flatMap((line) => line.xs).filter((at) => at !== null).reduce(([low, high], at) => [Math.min(low, at), Math.max(high, at)], [Infinity, -Infinity]);
    lines.push({ label: "target", stroke: style("--good"), dash: [6, 4], xs: ends, ys: [target(run), target(run)] });
  }
  returns.draw(lines, frame, bands);
  if (shown.length === 1 && last(run.points.mean_return_100) === null) returns.values.textContent = "no episode has ended yet";
}

function bySeed(shown) { // runs whose settings are the same but for the seed, and so never of two environments
  const groups = new Map();
  for (const run of shown) {
    const { seed, ...others } = settingsById(run.id);
    const key = seed === undefined ? run.id : JSON.stringify(Object.entries(others).sort());
    groups.set(key, [...(groups.get(key) || []), run]);
  }
  return [...groups.values()];
}

function settingsOf(run, groups) { // what tells its group from the others
  const names = differing(groups.map((group) => settingsById(group[0].id))).filter((name) => name !== "seed"), settings = settingsById(run.id);
  return names.length < 6 ? names.map((name) => `${lastPart(name)} ${written(settings[name])}`).join(", ") : groupName(lineOf(run.id) || {});
}

function bandOf(group, x) { // the mean of a group, and the lowest and the highest, as far as the shortest run goes
  const shown = group.filter((run) => (run.points[x] || []).length > 1), stroke = colour(group[0].id);
  const end = Math.min(...shown.map((run) => last(run.points[x]))) || 0;
  const xs = Array.from({ length: shown.length ? 300 : 0 }, (_, k) => end * k / 299);
  const values = shown.map((run) => interpolated(run.points[x], run.points.mean_return_100, xs));
  const over = (pick) => xs.map((_, k) => { const ys = values.map((one) => one[k]).filter((y) => y !== null); return ys.length ? pick(ys) : null; });
  return [
    { label: "highest", stroke: style("--line"), xs, ys: over((ys) => Math.max(...ys)), bare: true },
    { label: "lowest", stroke: style("--line"), xs, ys: over((ys) => Math.min(...ys)), bare: true },
    { label: "mean", stroke, width: 2.5, xs, ys: over((ys) => ys.reduce((sum, y) => sum + y, 0) / ys.length), bare: true },
  ];
}

function interpolated(xs, ys, wanted) {
  let k = 0;
  return wanted.map((at) => {
    while (k + 1 < xs.length && xs[k + 1] < at) k++;
    const [y0, y1] = [ys[k], ys[Math.min(k + 1, ys.length - 1)]];
    if (y0 === null || y1 === null || at < xs[0]) return null;
    const span = (xs[k + 1] ?? xs[k]) - xs[k];
    return span ? y0 + (y1 - y0) * Math.min(1, (at - xs[k]) / span) : y0;
  });
}

// -- controls ---------------------------------------------------------------------------------------------------------

function zoomTo(range) {
  view.set("zoom", range ? range.map((at) => Number(at.toPrecision(8))).join("~") : "");
  draw();
}

function drawControls(frame) {
  for (const choice of document.querySelectorAll('input[name="x"]')) choice.checked = choice.value === frame.x;
  by("smooth").value = frame.smooth;
  by("smooth-value").textContent = frame.smooth.toFixed(2);
  by("log-x").checked = frame.log.includes("x");
  by("log-y").checked = frame.log.includes("y");
  by("zoom-out").hidden = !frame.zoom;
}

for (const choice of document.querySelectorAll('input[name="x"]')) choice.onchange = () => { view.set("x", choice.value); zoomTo(null); };
for (const axis of ["x", "y"]) by(`log-${axis}`).onchange = () => { view.set("log", ["x", "y"].filter((one) => by(`log-${one}`).checked).join("")); draw(); };
by("smooth").oninput = () => { view.set("smooth", Number(by("smooth").value) ? by("smooth").value : ""); draw(); };
by("zoom-out").onclick = () => zoomTo(null);
by("band").onchange = () => { view.set("seeds", by("band").checked ? "band" : ""); draw(); };
