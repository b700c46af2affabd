"use strict";
// One run: its state, how far it is, what it was begun with and what may be typed next. Names and settings are anybody's text.

function stateOf(run) {
  const status = run.status;
  if (!status) return run.failed ? "failed" : run.ended ? (run.ended.startsWith("reached") ? "target reached" : "over") : gone ? "seen last" : run.asking ? "asking its server" : last(run.points.global_steps) === null ? "not begun" : "lost";
  if (status.drained || status.paused) return status.drained ? "drained" : "paused";
  if (status.ending || status.phase === "draining") return "ending";
  return status.workers_alive ? "live" : "waiting";
}

function drawRun(run) {
  by("run-name").textContent = run.name;
  by("run-state").textContent = by("run-state").dataset.state = stateOf(run);
  drawProgress(run);
  const score = run.status ? run.status.best_mean_return_100 : last(run.points.best_mean_return_100);
  const facts = [
    ["ended", run.failed ? run.ended : ""],
    ["state", stateOf(run) === "lost" ? "no server answers, and the records have no end: it was killed, or is out of reach" : ""],
    ["took", run.seconds > 0 ? `${duration(run.seconds)} from the first record to the newest` : ""],
    ["best checkpoint", run.best ? `best.safetensors; the best mean return of 100 games is ${short(score)}` : ""],
    ["protocol", protocolOf(run.settings.environment || {})],
    ["ps-rl", releasesOf(run.status)],
    ["started from", run.settings.start_from],
    ["begun by", run.command, true],
  ];
  const next = run.next || [];
  for (let k = 0; k + 1 < next.length; k += 2) facts.push([next[k].replace(/^# |:$/g, ""), next[k + 1], true]);
  const shown = facts.filter(([, text]) => text), text = JSON.stringify(shown);
  if (by("facts").dataset.shown !== text) {
    by("facts").dataset.shown = text;
    by("facts").replaceChildren(...shown.flatMap(([name, value, isCommand]) => {
      const term = document.createElement("dt"), detail = document.createElement("dd");
      term.textContent = name;
      if (isCommand) {
        const code = document.createElement("code");
        code.append(...value.split(" ").flatMap((word, k) => [k ? " " : "", word.startsWith("-") ? flagOf(word) : word]));
        detail.append(code, copying(`Copy the command: ${name}`, () => value, code));
      } else detail.textContent = value;
      return [term, detail];
    }));
  }
  if (by("settings-text").textContent !== toml(run.settings)) by("settings-text").textContent = toml(run.settings);
}

function releasesOf(status) { // that of the server, and those of its peers where they differ
  const others = status ? [...status.workers.filter((worker) => worker.alive), ...(status.standby ? [status.standby] : [])].map((peer) => peer.release) : [];
  const different = [...new Set(others)].filter((release) => release && release !== status.release);
  return status ? `${status.release}${different.length ? `, with peers of ${different.join(", ")}` : ""}` : "";
}

function flagOf(text) { // no line ends behind its hyphens
  const found = document.createElement("span");
  found.textContent = text;
  return found;
}

function duration(seconds) {
  if (seconds < 120) return `${seconds.toFixed(0)} s`;
  return seconds < 7200 ? `${(seconds / 60).toFixed(1)} min` : seconds < 172800 ? `${(seconds / 3600).toFixed(1)} h` : `${(seconds / 86400).toFixed(1)} days`;
}

function drawProgress(run) { // towards the limit that comes first; the target may end the run before it
  const status = run.status, budget = run.settings.budget || {};
  const now = { steps: status ? status.global_steps : last(run.points.global_steps), minutes: status ? status.minutes : last(run.points.minutes), episodes: status ? status.episodes : last(run.points.episodes) };
  const perMinute = { steps: status ? 60 * status.steps_per_second : 0, minutes: 1, episodes: now.minutes ? now.episodes / now.minutes : 0 };
  const limits = Object.keys(now).map((name) => ({ name, limit: (status || budget)[`max_${name}`] || 0 })).filter(({ limit }) => limit > 0);
  const first = limits.map(({ name, limit }) => ({ name, limit, share: Math.min(1, now[name] / limit), left: Math.max(0, limit - now[name]) / perMinute[name] }))
    .sort((one, other) => (status ? one.left - other.left : other.share - one.share))[0];
  by("progress-line").hidden = !first || !status; // of a run that is over the sentence says more
  if (!first || !status) return;
  const left = stateOf(run) === "live" && isFinite(first.left) ? `, ${target(run) === null ? "about" : "at most"} ${duration(60 * first.left)} left` : "";
  by("progress").value = first.share;
  by("progress-text").textContent = `${(100 * first.share).toFixed(0)} % of ${short(first.limit)} ${first.name}${left}`;
}

function protocolOf(settings) { // under which the scores are made
  const { id, sticky_actions: sticky, actions, frame_skip: skip, frame_stack: stack, noop_max: noops, max_episode_steps: steps, preprocessing, wrapper } = settings;
  if (!id) return "";
  const isAle = /(^|:)ALE\//.test(id), isGame = isAle || /(^|:)Vizdoom/.test(id);
  const parts = [id];
  if (isAle) parts.push(sticky ? `sticky actions ${sticky}` : "no sticky actions", `at most ${noops} no-ops at the start`);
  if (isGame) parts.push(`${skip} frames a step`, `${stack} frames stacked`, `preprocessing ${preprocessing}`);
  parts.push((actions || []).length ? `actions ${actions.join(", ")}` : "all actions");
  if (steps) parts.push(`at most ${steps} steps an episode`);
  if ((wrapper || []).length) parts.push(`wrappers ${wrapper.join(", ")}`);
  return parts.join(" · ");
}

// -- settings ---------------------------------------------------------------------------------------------------------

function flat(settings) { // [[section, name, value], …]
  return Object.entries(settings).flatMap(([section, inner]) =>
    (inner !== null && typeof inner === "object" && !Array.isArray(inner) ? Object.entries(inner).map(([name, value]) => [section, name, value]) : [["", section, inner]]));
}

function toml(settings) { // texts are quoted as in JSON, which TOML reads
  const value = (one) => (Array.isArray(one) ? `[${one.map(value).join(", ")}]`
    : one !== null && typeof one === "object" ? `{ ${Object.entries(one).map(([name, inner]) => `${JSON.stringify(name)} = ${value(inner)}`).join(", ")} }` : JSON.stringify(one));
  let text = "", open = "";
  for (const [section, name, one] of flat(settings).sort(([left], [right]) => (left ? 1 : 0) - (right ? 1 : 0))) {
    if (section !== open) text += `\n[${section}]\n`;
    open = section;
    text += `${name} = ${value(one)}\n`;
  }
  return text;
}

function copying(label, text, shown) { // a button; where the browser has no clipboard for the page, the text is selected
  const button = document.createElement("button");
  button.className = "copy";
  button.textContent = "Copy";
  button.setAttribute("aria-label", label);
  button.onclick = async () => {
    try {
      await navigator.clipboard.writeText(text());
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(shown);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  };
  return button;
}

by("copy-settings").replaceWith(copying("Copy the settings as TOML", () => toml((runs.get(chosen) || {}).settings || {}), by("settings-text")));
