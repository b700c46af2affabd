"use strict";
// The page: one stream of server-sent events in, charts and tables out. Everything shown comes from `runs`.

const runs = new Map(); // by number: {name, settings, points, meters, episodes, events, status, address, checkpoints}
const ORDER = { points: "global_steps", meters: "global_steps", episodes: "episode" };
let chosen = 0, x = "global_steps", steering = false, drawn = 0, source = null;

const by = (id) => document.getElementById(id);
const returns = new Chart(by("charts"), { id: "return", title: "Return", unit: "of an episode", wide: true });
const charts = CHARTS.map((spec) => new Chart(by("charts"), spec));

function connect() {
  source = new EventSource("api/stream");
  const on = (kind, take) => source.addEventListener(kind, (event) => { take(JSON.parse(event.data)); later(); });
  source.onopen = () => { by("link").textContent = "connected to ps-web"; };
  source.onerror = () => {
    by("link").textContent = "ps-web does not answer; trying again …";
    if (source.readyState === EventSource.CLOSED) { source.close(); setTimeout(connect, 2000); }
  };
  on("hello", (hello) => { steering = hello.steering; runs.clear(); });
  on("run", (run) => runs.set(run.run, run));
  on("now", (now) => Object.assign(runs.get(now.run) || {}, now));
  source.addEventListener("frame", (event) => drawFrame(JSON.parse(event.data)));
  on("table", (news) => { const run = runs.get(news.run); if (run) run[news.table] = news.columns; });
  on("rows", (news) => { const run = runs.get(news.run); if (run) append(run[news.table], news.rows, ORDER[news.table]); });
  on("events", (news) => { const run = runs.get(news.run); if (run) run.events = run.events.concat(news.events).slice(-200); });
}

function later() { // at most twice a second, and not at all in a hidden tab
  if (drawn || document.hidden) return;
  drawn = setTimeout(() => { drawn = 0; draw(); }, 250);
}

function draw() {
  const run = runs.get(chosen) || runs.values().next().value;
  if (!run) return;
  chosen = run.run;
  drawRuns();
  drawLink(run);
  drawTiles(run);
  drawReturns(run);
  for (const chart of charts) {
    const { table, keys, points } = chart.spec;
    const present = keys.filter((key) => last(run[table][key]) !== null);
    const series = present.map((key, k) => ({ label: key.replace(/_/g, " "), stroke: colour(k), points }));
    chart.draw(x, [run[table][x] || [], ...present.map((key) => run[table][key])], series);
  }
  drawWorkers(run);
  drawGame(run);
  drawSteering(run);
  drawEvents(run);
}

function drawRuns() {
  const nav = by("runs");
  if (nav.children.length !== runs.size) {
    nav.replaceChildren(...[...runs.values()].map((run) => {
      const button = document.createElement("button");
      const dot = document.createElement("span");
      dot.className = "dot";
      dot.style.background = colour(run.run);
      button.append(dot, run.name);
      button.onclick = () => { chosen = run.run; draw(); };
      return button;
    }));
    nav.hidden = runs.size < 2;
    by("band-choice").hidden = runs.size < 2;
  }
  [...runs.values()].forEach((run, k) => nav.children[k].setAttribute("aria-pressed", run.run === chosen));
}

function drawLink(run) {
  document.title = `${run.name} · ps-rl`;
  const state = !run.status ? "no server answers; this is the past" : run.status.paused ? "paused" : run.status.ending || run.status.phase;
  by("link").textContent = `${run.name}: ${state}${run.address ? " at " + run.address : ""}`;
}

function drawTiles(run) {
  const status = run.status, points = run.points;
  const tiles = [
    ["mean return", short(status ? status.mean_return_100 : last(points.mean_return_100))],
    ["best", short(status ? status.best_mean_return_100 : highest(points.mean_return_100))],
    ["target", short(target(run))],
    ["steps", short(status ? status.global_steps : last(points.global_steps))],
    ["minutes", short(status ? status.minutes : last(points.minutes))],
    ["steps/s", short(status ? status.steps_per_second : null)],
    ["updates/s", short(status ? status.updates_per_second : null)],
    ["workers", status ? String(status.workers_alive) : "–"],
    ["learning rate", short(status ? status.learning_rate : last(points.learning_rate))],
    ["environment", status ? status.environment : (run.settings.environment || {}).id || "–"],
  ];
  const list = by("tiles");
  if (list.children.length !== tiles.length) {
    list.replaceChildren(...tiles.map(() => {
      const tile = document.createElement("div");
      tile.append(document.createElement("dt"), document.createElement("dd"));
      return tile;
    }));
  }
  tiles.forEach(([name, value], k) => {
    list.children[k].children[0].textContent = name;
    list.children[k].children[1].textContent = value;
  });
}

function highest(values) { return (values || []).reduce((best, value) => (value !== null && (best === null || value > best) ? value : best), null); }

function target(run) {
  return run.status ? run.status.until_return : ((run.settings.budget || {}).until_return ?? null);
}

function drawReturns(run) {
  if (by("band").checked && runs.size > 1) return drawBand();
  const shown = runs.size > 1 ? [...runs.values()] : [run];
  // One row for each value of each curve: several episodes may end at the same step.
  const rows = [], place = (table, key, column) => (table[x] || []).forEach((at, k) => rows.push([at, column, table[key][k]]));
  place(run.episodes, "episode_return", 1);
  const series = [{ label: "episodes", stroke: style("--quiet"), points: true }];
  for (const one of shown) {
    series.push({ label: shown.length > 1 ? one.name : "mean of 100", stroke: colour(one.run), width: one === run ? 2.5 : 1.5 });
    place(one.points, "mean_return_100", series.length);
  }
  rows.sort((one, other) => one[0] - other[0]);
  const xs = rows.map((row) => row[0]);
  const data = [xs, ...series.map((_, k) => rows.map((row) => (row[1] === k + 1 ? row[2] : null)))];
  if (target(run) !== null) {
    data.push(xs.map(() => target(run)));
    series.push({ label: "target", stroke: style("--good"), dash: [6, 4] });
  }
  returns.draw(x, data, series);
  const mean = last(run.points.mean_return_100);
  returns.value.textContent = mean === null ? "no episode has ended yet" : `mean of 100: ${short(mean)}`;
}

function drawBand() { // all runs: their mean, and between the lowest and the highest, as far as the shortest goes
  const shown = [...runs.values()].filter((run) => (run.points[x] || []).length > 1);
  const end = Math.min(...shown.map((run) => last(run.points[x])));
  const xs = Array.from({ length: 300 }, (_, k) => end * k / 299);
  const all = shown.map((run) => interpolated(run.points[x], run.points.mean_return_100, xs));
  const over = (pick) => xs.map((_, k) => { const ys = all.map((one) => one[k]).filter((y) => y !== null); return ys.length ? pick(ys) : null; });
  const mean = over((ys) => ys.reduce((sum, y) => sum + y, 0) / ys.length);
  returns.draw(x, [xs, over((ys) => Math.max(...ys)), over((ys) => Math.min(...ys)), mean], [
    { label: "highest", stroke: style("--line") }, { label: "lowest", stroke: style("--line") },
    { label: `mean of ${shown.length} runs`, stroke: colour(0), width: 2.5 },
  ], [{ series: [1, 2], fill: "rgba(31,119,180,.18)" }]);
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

function drawWorkers(run) {
  const body = by("workers").tBodies[0];
  const rows = (run.status ? run.status.workers : []).map((worker) => {
    const row = document.createElement("tr");
    const state = worker.alive ? (worker.stalled ? "stalled" : "alive") : "lost";
    const refused = Object.entries(worker.refused).map(([code, count]) => `${count} ${code}`).join(", ");
    const why = state === "lost" ? `lost: no message for ${short(worker.silent_seconds)} s` : state === "stalled" ? "stalled: its environment does not step" : "alive";
    const cells = [worker.worker_id, worker.host, worker.environments, short(worker.alive ? worker.meters.steps_per_second : 0),
      short(worker.staleness), `${short(worker.silent_seconds)} s ago`, refused || "–", why];
    cells.forEach((text, k) => {
      const cell = document.createElement(k ? "td" : "th");
      if (!k) cell.scope = "row";
      if (k === 7) cell.className = state;
      cell.textContent = text;
      row.append(cell);
    });
    row.dataset.worker = worker.worker_id;
    row.dataset.state = state;
    return row;
  });
  body.replaceChildren(...rows);
}

function drawGame(run) { // who can be watched; the game itself is drawn by drawFrame
  const names = run.status ? run.status.workers.filter((worker) => worker.alive || worker.worker_id === run.watched).map((worker) => worker.worker_id) : [];
  by("game-section").hidden = !names.length || !(steering || run.watched);
  const choice = by("watch"), wanted = ["", ...names];
  if (choice.dataset.names !== wanted.join(" ")) { // not while it is open and nothing has changed
    choice.dataset.names = wanted.join(" ");
    choice.replaceChildren(...wanted.map((name) => new Option(name || "none", name)));
  }
  if (document.activeElement !== choice) choice.value = run.watched || "";
  choice.disabled = !steering;
  if (by("game").dataset.shown && by("game").dataset.shown !== `${run.run} ${run.watched}`) clearGame();
}

function clearGame() {
  by("game").replaceChildren();
  by("game").dataset.shown = "";
}

function drawFrame(frame) {
  const run = runs.get(frame.run), game = by("game");
  if (!run || run.run !== chosen || frame.worker !== run.watched || document.hidden) return;
  const shown = `${frame.run} ${frame.worker}`, bars = JSON.stringify(frame.actions);
  if (game.dataset.shown !== shown || game.dataset.bars !== bars) {
    game.dataset.shown = shown;
    game.dataset.bars = bars;
    const image = document.createElement("img"), side = document.createElement("div"), text = document.createElement("p");
    image.alt = `the game of ${frame.worker}`;
    side.append(text, ...frame.actions.map((name) => {
      const label = document.createElement("label"), meter = document.createElement("meter");
      label.append(name, meter);
      return label;
    }));
    game.replaceChildren(image, side);
  }
  const [image, side] = game.children;
  image.hidden = !frame.image;
  if (frame.image) image.src = `data:image/jpeg;base64,${frame.image}`;
  side.firstChild.textContent = `score ${short(frame.score)} · value ${short(frame.value)} · action ${frame.taken}`;
  frame.probabilities.forEach((share, k) => {
    const label = side.children[k + 1];
    label.lastChild.value = share;
    label.classList.toggle("taken", frame.actions[k] === frame.taken);
  });
  game.dataset.frames = 1 + Number(game.dataset.frames || 0);
}

function drawSteering(run) {
  const ready = steering && Boolean(run.status);
  by("steer-hint").hidden = steering;
  for (const element of by("adjust").elements) element.disabled = !ready;
  by("pause").textContent = run.status && run.status.paused ? "Resume" : "Pause";
  by("checkpoints").replaceChildren(...(run.checkpoints || []).map((name) => {
    const item = document.createElement("li");
    item.textContent = name;
    return item;
  }));
}

function drawEvents(run) {
  const list = by("events");
  const end = run.events[run.events.length - 1];
  const newest = end ? `${end.epoch}.${end.number}` : "";
  if (list.dataset.run === String(run.run) && list.dataset.newest === newest) return;
  list.dataset.run = run.run;
  list.dataset.newest = newest;
  list.replaceChildren(...run.events.slice().reverse().map((event) => {
    const item = document.createElement("li");
    item.className = event.kind;
    item.textContent = `${event.minutes.toFixed(1)} min · ${event.text}`;
    return item;
  }));
}

async function post(what, content) {
  by("steered").textContent = "…";
  try {
    const answer = await fetch(`api/runs/${chosen}/${what}`, {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(content),
    });
    const text = await answer.text();
    if (!answer.ok) throw new Error(text.trim());
    by("steered").textContent = what === "checkpoint" ? `saved: ${JSON.parse(text).path}` : "done";
  } catch (error) {
    by("steered").textContent = error.message;
  }
}

by("adjust").onsubmit = (event) => {
  event.preventDefault();
  const settings = {};
  for (const input of by("adjust").querySelectorAll("input")) if (input.value.trim()) settings[input.name] = Number(input.value);
  if (Object.values(settings).some((value) => !isFinite(value))) by("steered").textContent = "each setting must be a number";
  else if (Object.keys(settings).length) post("adjust", settings);
};
by("pause").onclick = () => post("adjust", { paused: by("pause").textContent === "Pause" });
by("save").onclick = () => post("checkpoint", {});
by("watch").onchange = () => post("watch", { worker_id: by("watch").value || null });
by("band").onchange = draw;
for (const choice of document.querySelectorAll('input[name="x"]')) choice.onchange = () => { x = choice.value; draw(); };
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
addEventListener("resize", later);
document.addEventListener("visibilitychange", later);
connect();
