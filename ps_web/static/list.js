"use strict";
// The list of all runs: filter, order, groups, ticks. What is ticked, and the run that is open, stands in the address.

const LOOK_SECONDS = 5, SHOWN_AT_FIRST = 8, MOST_SHOWN = 50;
const ORDERS = {
  "": (one, other) => other.live - one.live || other.written - one.written,
  score: (one, other) => (other.score ?? -Infinity) - (one.score ?? -Infinity),
  steps: (one, other) => other.steps - one.steps,
  date: (one, other) => other.written - one.written,
};
const OPERATORS = {
  ">=": (a, b) => a >= b, "<=": (a, b) => a <= b, "!=": (a, b) => a !== b, ">": (a, b) => a > b, "<": (a, b) => a < b, "=": (a, b) => a === b,
};
let lines = [], listed = "", tag = ""; // a line for each run; `listed` is what the list was drawn from
let pinned = { open: "", ids: [] }; // what is shown where nothing is ticked: runs that come later change nothing of it

async function look() {
  if (gone || (document.hidden && lines.length)) return; // the stream finds ps-web again
  try {
    const answer = await fetch("api/runs", tag ? { headers: { "If-None-Match": tag } } : {});
    if (answer.status !== 200) return;
    tag = answer.headers.get("ETag") || "";
    lines = await answer.json();
    streamed = streamed.filter(lineOf); // a run that comes back is asked for again
    if (lines.length > 1 && !table) table = await (await fetch("api/settings")).json();
  } catch { return; } // the stream says that ps-web does not answer
  if (source) show();
  else drawList();
}

function lineOf(id) { return lines.find((line) => line.id === id); }

// -- what is shown ------------------------------------------------------------------------------------------------------

function tickedIds() { // of runs that are there
  const wanted = view.get("ticked").split(",").filter(lineOf), open = view.get("open");
  if (wanted.length) return wanted;
  if (pinned.open !== open || !pinned.ids.some(lineOf)) pinned = { open, ids: firstIds(open) };
  return pinned.ids.filter(lineOf);
}

function firstIds(open) { // the run that is open alone; where none is, the live and newest of one group
  if (lineOf(open)) return [open];
  const sorted = [...lines].sort(ORDERS[""]), first = sorted[0];
  return sorted.filter((line) => groupName(line) === groupName(first)).slice(0, SHOWN_AT_FIRST).map((line) => line.id);
}

function shownIds() {
  const open = view.get("open"), ticked = tickedIds();
  return (lineOf(open) && !ticked.includes(open) ? [open, ...ticked] : ticked).slice(0, MOST_SHOWN);
}

function tick(ids) {
  view.set("ticked", ids.slice(0, MOST_SHOWN).join(","));
  show();
}

function tickOnly(ids) { // and one of them is open
  if (!ids.includes((runs.get(chosen) || {}).id)) view.set("open", ids[0]);
  tick(ids);
}

function openRun(id) {
  view.set("open", id);
  show();
}

function show() { // the stream of what is shown now
  drawList();
  if (shownIds().some((id) => !streamed.includes(id))) connect();
  else draw();
}

// -- filter and groups --------------------------------------------------------------------------------------------------

function passes(line, text) { // words, and settings such as learning_rate>1e-3
  return text.split(/\s+/).filter(Boolean).every((term) => {
    const [, name, operator, typed] = term.match(/^([\w.]+)(>=|<=|!=|>|<|=)(.+)$/) || [];
    if (!name) return [line.name, line.group, line.environment].join(" ").toLowerCase().includes(term.toLowerCase());
    const value = settingOf(line, name), number = Number(typed);
    if (value === undefined || value === null) return operator === "!=";
    return typeof value === "number" && !isNaN(number) ? OPERATORS[operator](value, number) : OPERATORS[operator](String(value), typed);
  });
}

function settingOf(line, name) { // by its whole name or the last part of it; also a column of the list
  if (["score", "best", "steps", "minutes"].includes(name)) return line[name];
  const isIt = (key) => [key, lastPart(key)].includes(name);
  const changed = Object.keys(line.settings).find(isIt);
  if (changed) return line.settings[changed];
  for (const [section, inner] of Object.entries(table || {})) {
    if (section === name) return inner;
    const chosen = line.settings[`${section}.name`], values = (chosen && inner ? inner[chosen] : inner) || {};
    for (const key of Object.keys(Object(values))) if (isIt(`${section}.${key}`)) return values[key];
  }
  return undefined;
}

function lastPart(name) { // of the name of a setting; of "algorithm.name" and "environment.id" the first one
  const [section, inner] = name.split(".");
  return ["name", "id"].includes(inner) ? section : inner || section;
}

function differing(some) { // names of the settings in which these lines differ
  const names = [...new Set(some.flatMap((line) => Object.keys(line.settings)))];
  return names.filter((name) => new Set(some.map((line) => written(settingOf(line, name)))).size > 1).sort();
}

function written(value) {
  if (value === undefined || value === null) return "–";
  return typeof value === "number" ? String(Number(value.toPrecision(4))) : typeof value === "object" ? JSON.stringify(value) : String(value);
}

function groupName(line) { // a group that is named after the environment says it once
  const group = line.group === line.environment.split(/[:/]/).pop() ? "" : line.group;
  return [line.environment, group].filter(Boolean).join(" · ") || "without settings";
}

function grouped(all) { // in the order of each group's first run
  const groups = new Map();
  for (const line of all) groups.set(groupName(line), [...(groups.get(groupName(line)) || []), line]);
  return groups;
}

// -- drawing ------------------------------------------------------------------------------------------------------------

function drawList() {
  by("browser").hidden = lines.length < 2;
  if (lines.length < 2) return;
  const filter = view.get("filter"), order = ORDERS[view.get("sort")] ? view.get("sort") : "";
  if (by("filter") !== document.activeElement) by("filter").value = filter;
  by("sort").value = order;
  const found = lines.filter((line) => passes(line, filter)).sort(ORDERS[order]), ticked = new Set(tickedIds());
  by("runs-count").textContent = found.length === lines.length ? `${lines.length}` : `${found.length} of ${lines.length}`;
  drawCompared(lines.filter((line) => ticked.has(line.id)).sort(ORDERS[order]));
  const open = (runs.get(chosen) || {}).id, drawn = JSON.stringify([found, [...ticked], open]);
  if (drawn === listed) return;
  listed = drawn;
  by("runs").replaceChildren(...[...grouped(found)].map(([name, group]) => groupOf(name, group, ticked, open)));
}

function groupOf(name, group, ticked, open) {
  const section = document.createElement("section"), head = document.createElement("div"), title = document.createElement("h3");
  head.className = "group";
  title.textContent = `${name} (${group.length})`;
  head.append(title, button("only this group", () => tickOnly(group.map((line) => line.id))));
  section.append(head, ...group.map((line) => rowOf(line, ticked, open)));
  return section;
}

function rowOf(line, ticked, open) {
  const row = document.createElement("div"), box = document.createElement("input"), rest = document.createElement("div"), facts = document.createElement("span");
  row.className = "run-row";
  box.type = "checkbox";
  box.checked = ticked.has(line.id);
  box.setAttribute("aria-label", `Show ${line.name}`);
  box.onchange = () => tick(box.checked ? [...ticked, line.id] : [...ticked].filter((id) => id !== line.id));
  const name = button("", () => openRun(line.id));
  name.className = "run-name";
  name.setAttribute("aria-pressed", line.id === open);
  name.append(dot(colour(line.id)), line.name);
  facts.className = line.failed && !line.live ? "lost" : "quiet";
  facts.textContent = [line.live ? "live" : line.failed ? "failed" : "", line.score === null ? "" : short(line.score), line.steps ? `${short(line.steps)} steps` : ""].filter(Boolean).join(" · ");
  rest.append(name, facts);
  row.append(box, rest);
  return row;
}

function button(text, act) {
  const found = document.createElement("button");
  found.type = "button";
  found.textContent = text;
  found.onclick = act;
  return found;
}

function drawCompared(ticked) { // the settings in which the ticked runs differ, beside their scores
  by("compared-section").hidden = ticked.length < 2;
  const names = differing(ticked), heads = ["run", "return", "best", "steps", "minutes", ...names.map(lastPart)];
  const cell = (text, isHead, scope) => {
    const place = document.createElement(isHead ? "th" : "td");
    if (isHead) place.scope = scope;
    place.textContent = text;
    return place;
  };
  const headOf = (line) => { const found = cell("", true, "row"); found.append(dot(colour(line.id)), line.name); return found; };
  const row = (cells) => { const found = document.createElement("tr"); found.append(...cells); return found; };
  by("compared").tHead.replaceChildren(row(heads.map((head) => cell(head, true, "col"))));
  by("compared").tBodies[0].replaceChildren(...ticked.map((line) => row([
    headOf(line), cell(short(line.score)), cell(short(line.best)), cell(short(line.steps)), cell(short(line.minutes)),
    ...names.map((name) => cell(written(settingOf(line, name)))),
  ])));
}

by("filter").oninput = () => { view.set("filter", by("filter").value.trim()); drawList(); };
by("sort").onchange = () => { view.set("sort", by("sort").value); drawList(); };
setInterval(look, 1000 * LOOK_SECONDS);
