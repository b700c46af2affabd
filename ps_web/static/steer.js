"use strict";
// The controls of the page: settings, pause, checkpoints; with the present values and the history of adjustments.

function drawSteering(run) {
  const ready = steering && Boolean(run.status);
  by("adjust").hidden = !run.status;
  by("steer-hint").hidden = ready;
  by("steer-hint").textContent = run.ended && !run.status ? "The run is over." : steering ? "A run is steered while a server answers." : "Steering takes the token: open the address that ps-web has printed.";
  for (const element of by("adjust").elements) element.disabled = !ready;
  drawSettings(run);
  by("pause").textContent = run.status && (run.status.paused || run.status.drained) ? "Resume" : "Pause";
  by("no-checkpoints").hidden = (run.checkpoints || []).length > 0;
  by("checkpoints").replaceChildren(...(run.checkpoints || []).map((name) => {
    const item = document.createElement("li");
    item.textContent = name;
    return item;
  }));
}

function drawSettings(run) { // the present values as hints, and the history of adjustments
  const status = run.status || {}, meters = (status.workers || []).filter((worker) => worker.alive).map((worker) => worker.meters);
  const mean = (name) => { const found = meters.filter((one) => name in one); return found.length ? found.reduce((sum, one) => sum + one[name], 0) / found.length : null; };
  const now = {
    "schedule.learning_rate": status.learning_rate, "budget.until_return": status.until_return ?? "none",
    "budget.max_steps": status.max_steps || "no limit", "budget.max_minutes": status.max_minutes || "no limit",
    "algorithm.entropy_weight": mean("entropy_weight"), "algorithm.final_epsilon": mean("epsilon"), checkpoint_seconds: status.checkpoint_seconds,
  };
  for (const input of by("adjust").querySelectorAll("input")) {
    const value = now[input.name];
    input.placeholder = typeof value === "number" ? Number(value.toPrecision(4)) : value ?? "";
    if (input.name.startsWith("algorithm.")) input.parentElement.hidden = meters.length > 0 && value === null;
  }
  const history = (status.adjustments || []).slice().reverse();
  by("adjustments-title").hidden = !history.length;
  by("adjustments").replaceChildren(...history.map((one) => {
    const item = document.createElement("li"), shown = (value) => (value === null ? "none" : typeof value === "number" ? Number(value.toPrecision(6)) : value);
    item.textContent = `${one.minutes.toFixed(1)} min, step ${short(one.global_steps)} · ${one.setting}: ${shown(one.before)} → ${shown(one.after)} · by ${one.by}`;
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
    by("steered").textContent = { checkpoint: () => `saved: ${JSON.parse(text).path}`, adjust: () => "done", stop: () => "asked to stop", watch: () => "" }[what]();
    if (what === "adjust") by("adjust").reset();
  } catch (error) {
    by("steered").textContent = error.message;
  }
}

by("adjust").onsubmit = (event) => {
  event.preventDefault();
  const settings = {};
  for (const input of by("adjust").querySelectorAll("input")) if (input.value.trim()) settings[input.name] = input.value.trim() === "none" ? null : Number(input.value);
  if (Object.values(settings).some((value) => value !== null && !isFinite(value))) by("steered").textContent = "each setting must be a number";
  else if (Object.keys(settings).length) post("adjust", settings);
};
by("pause").onclick = () => post("adjust", by("pause").textContent === "Pause" ? { paused: true } : { paused: false, drained: false });
by("drain").onclick = () => post("adjust", { drained: true });
by("stop").onclick = () => { if (confirm(`Stop ${(runs.get(chosen) || {}).name} for all its workers? It is saved first.`)) post("stop", {}); };
by("save").onclick = () => post("checkpoint", {});
