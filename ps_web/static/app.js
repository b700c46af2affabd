"use strict";
// The page: one stream of server-sent events in, charts and tables out. Everything shown comes from `runs`.

const runs = new Map(); // by number: {name, settings, points, episodes, evaluations, logged, events, status, address, checkpoints}
let chosen = -1, steering = false, drawn = 0, source = null;
let streamed = []; // ids of the runs that the stream was asked for
let gone = ""; // why nothing new comes from ps-web; "" while it answers

function connect() {
  if (source) source.close();
  streamed = shownIds();
  const mine = source = new EventSource(`api/stream?runs=${streamed.join(",")}`);
  const on = (kind, take) => source.addEventListener(kind, (event) => { take(JSON.parse(event.data)); later(); });
  source.onopen = () => { by("link").textContent = "connected to ps-web"; };
  source.onerror = async () => {
    if (!gone) leave(`ps-web does not answer since ${new Date().toLocaleTimeString()}; trying again …`);
    if (source.readyState !== EventSource.CLOSED) return;
    const why = await refusal(mine.url);
    if (source !== mine) return; // another run was ticked meanwhile
    if (why) leave(`ps-web refuses this page: ${why}; trying again …`);
    setTimeout(() => { if (source === mine) start(); }, 2000);
  };
  on("hello", (hello) => { steering = hello.steering; gone = ""; runs.clear(); look(); });
  on("bye", (bye) => { source.close(); for (const run of bye.runs) if (runs.has(run.run)) runs.set(run.run, run); leave("ps-web has ended."); });
  on("run", (run) => runs.set(run.run, run));
  on("now", (now) => Object.assign(runs.get(now.run) || {}, now));
  source.addEventListener("frame", (event) => drawFrame(JSON.parse(event.data)));
  on("table", (news) => { const run = runs.get(news.run); if (run) run[news.table] = news.columns; });
  on("rows", (news) => { const run = runs.get(news.run); if (run && append(run[news.table], news.rows) > mostPoints()) connect(); });
  on("events", (news) => { const run = runs.get(news.run); if (run) Object.assign(run, news); });
}

async function refusal(url) { // the sentence of ps-web, which an EventSource does not tell; "" where it does not answer
  try {
    const answer = await fetch(url), isSentence = !answer.ok && answer.headers.get("Content-Type").startsWith("text/plain");
    if (isSentence) return (await answer.text()).trim();
    await answer.body.cancel();
    return "";
  } catch { return ""; }
}

function leave(why) { // what was seen last stays, as the past: nobody knows which workers live, and nothing can be steered
  gone = why;
  by("link").textContent = why;
  for (const run of runs.values()) { run.status = null; run.address = ""; }
  draw();
}

async function start() { // the list first: it says which runs are shown
  if (!gone) await look();
  connect();
}

function mostPoints() { // then the page gets the whole again, with fewer points
  return Math.max(200, Math.min(MOST_POINTS, Math.round(ALL_POINTS / runs.size)));
}

function later() { // at most twice a second, and not at all in a hidden tab
  if (drawn || document.hidden) return;
  drawn = setTimeout(() => { drawn = 0; draw(); }, 250);
}

function shownRuns() {
  const ids = shownIds();
  return [...runs.values()].filter((run) => ids.includes(run.id));
}

function draw() {
  const shown = shownRuns(), open = view.get("open"), ticked = tickedIds();
  const run = shown.find((one) => one.id === open) || shown.find((one) => one.id === ticked[0]) || shown[0];
  if (!run) return;
  if (chosen !== run.run) { chosen = run.run; drawList(); }
  drawLink(run);
  drawRun(run);
  drawTiles(run);
  drawGame(run);
  drawCurves(run, shown);
  drawWorkers(run);
  drawSteering(run);
  drawEvents(run);
}

const PHASES = { empty: "waiting for its first worker", serving: "training", draining: "ending", standby: "following as the standby" };

function drawLink(run) {
  document.title = `${run.name} · ps-rl`;
  const status = run.status, game = status ? status.environment : (run.settings.environment || {}).id;
  const waits = status && status.phase === "serving" && !status.workers_alive;
  const phase = status && (waits ? "waiting for a worker" : PHASES[status.phase] || status.phase);
  const halted = status && (status.drained ? "drained, no worker is admitted" : status.paused ? "paused" : "");
  const past = run.ended || (gone ? "this is the run as it was seen last" : run.asking ? "asking its server …" : "no server answers; this is the past");
  const state = !status ? past : halted || status.ending || phase;
  by("link").textContent = `${run.name}: ${game ? game + ", " : ""}${state}${run.address ? " at " + run.address : ""}${gone ? ". " + gone : ""}`;
  by("link").dataset.state = status ? (halted ? "paused" : "live") : "over";
}

function drawTiles(run) {
  const status = run.status, points = run.points;
  const tiles = [
    ["mean return", short(status ? status.mean_return_100 : last(points.mean_return_100))],
    ["best", short(status ? status.best_mean_return_100 : last(points.best_mean_return_100))],
    ["target", short(target(run))],
    ["episodes", short(status ? status.episodes : last(run.episodes.episode))],
    ["steps", short(status ? status.global_steps : last(points.global_steps))],
    ["minutes", short(status ? status.minutes : last(points.minutes))],
    ["steps/s", short(status ? status.steps_per_second : null)],
    ["updates/s", short(status ? status.updates_per_second : null)],
    ["workers", status ? String(status.workers_alive) : "–"],
    ["learning rate", short(status ? status.learning_rate : last(points.learning_rate))],
  ].filter(([name, value]) => value !== "–" || name === "mean return");
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

function target(run) {
  return run.status ? run.status.until_return : ((run.settings.budget || {}).until_return ?? null);
}

const STATES = {
  alive: "alive", stalled: "stalled: its environment does not step", left: "left: it has said goodbye", lost: "lost: silent for longer than its lease",
};

function drawWorkers(run) {
  const body = by("workers").tBodies[0];
  const rows = (run.status ? run.status.workers : []).map((worker) => {
    const row = document.createElement("tr");
    const state = worker.alive ? (worker.stalled ? "stalled" : "alive") : worker.left ? "left" : "lost";
    const refused = Object.entries(worker.refused).map(([code, count]) => `${count} ${code}`).join(", ");
    const cells = [worker.worker_id, STATES[state], short(worker.alive ? worker.meters.steps_per_second : 0), short(worker.staleness),
      ago(worker.silent_seconds), refused ? `${refused}; the last: ${worker.refusal}` : "–", worker.environments, worker.host];
    cells.forEach((text, k) => {
      const cell = document.createElement(k ? "td" : "th");
      if (!k) cell.scope = "row";
      if (k === 1) cell.className = state;
      if (k === 5 && refused) cell.className = "long";
      cell.textContent = text;
      row.append(cell);
    });
    row.dataset.worker = worker.worker_id;
    row.dataset.state = state;
    return row;
  });
  body.replaceChildren(...rows);
  by("workers").hidden = !rows.length;
  by("no-workers").hidden = rows.length > 0;
  by("no-workers").textContent = run.status ? "No worker has joined yet: rl-worker --server " + run.address
    : run.ended ? "The run is over: it has no workers." : "Workers are shown while a server answers.";
}

function ago(seconds) {
  if (seconds < 2) return "now";
  if (seconds < 120) return `${seconds.toFixed(0)} s ago`;
  return seconds < 7200 ? `${(seconds / 60).toFixed(0)} min ago` : `${(seconds / 3600).toFixed(0)} h ago`;
}

function drawEvents(run) {
  const list = by("events");
  const end = run.events[run.events.length - 1];
  const newest = end ? `${end.epoch}.${end.number}` : "";
  if (list.dataset.run === String(run.run) && list.dataset.newest === newest) return;
  list.dataset.run = run.run;
  list.dataset.newest = newest;
  by("no-events").hidden = run.events.length > 0;
  list.replaceChildren(...run.events.slice().reverse().map((event) => {
    const item = document.createElement("li");
    item.className = event.text.startsWith("the run has failed") ? "warning" : event.kind;
    const count = event.kind === "checkpoint" && run.saved > 1 ? `${run.saved} checkpoints, the newest: ` : "";
    item.textContent = `${event.minutes.toFixed(1)} min · ${count}${event.text}`;
    return item;
  }));
}

by("plumbing-rank").open = view.get("plumbing") === "open";
by("plumbing-rank").ontoggle = () => { view.set("plumbing", by("plumbing-rank").open ? "open" : ""); draw(); };
addEventListener("hashchange", show);
DARK.addEventListener("change", draw);
addEventListener("resize", later);
document.addEventListener("visibilitychange", later);
start();
