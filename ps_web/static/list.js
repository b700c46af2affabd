"use strict";
// The list of all runs: words to find one, groups, ticks. What is ticked, and the run that is open, stands in the address.

const LOOK_SECONDS = 5, SHOWN_AT_FIRST = 8, MOST_SHOWN = 50;
const newestFirst = (one, other) => other.live - one.live || other.written - one.written;
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
  const sorted = [...lines].sort(newestFirst), first = sorted[0];
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

// -- words, settings and groups ------------------------------------------------------------------------------------------

function passes(line, text) { // each word
  const said = [line.name, line.group, line.environment].join(" ").toLowerCase();
  return text.toLowerCase().split(/\s+/).every((word) => said.includes(word));
}

function settingsById(id) { // of a run that is shown: its settings by their whole names
  const run = [...runs.values()].find((one) => one.id === id);
  return Object.fromEntries(flat(run ? run.settings : {}).map(([section, name, value]) => [section ? `${section}.${name}` : name, value]));
}

function lastPart(name) { // of the name of a setting; of "algorithm.name" and "environment.id" the first one
  const [section, inner] = name.split(".");
  return ["name", "id"].includes(inner) ? section : inner || section;
}

function differing(all) { // names of the settings in which these settings differ
  const names = [...new Set(all.flatMap(Object.keys))];
  return names.filter((name) => new Set(all.map((settings) => written(settings[name]))).size > 1).sort();
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
  const filter = view.get("filter");
  if (by("filter") !== document.activeElement) by("filter").value = filter;
  const found = lines.filter((line) => passes(line, filter)).sort(newestFirst), ticked = new Set(tickedIds());
  by("runs-count").textContent = found.length === lines.length ? `${lines.length}` : `${found.length} of ${lines.length}`;
  drawCompared(lines.filter((line) => ticked.has(line.id)).sort(newestFirst));
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
  const settings = ticked.map((line) => settingsById(line.id));
  const names = differing(settings), heads = ["run", "return", "best", "steps", "minutes", ...names.map(lastPart)];
  const cell = (text, isHead, scope) => {
    const place = document.createElement(isHead ? "th" : "td");
    if (isHead) place.scope = scope;
    place.textContent = text;
    return place;
  };
  const headOf = (line) => { const found = cell("", true, "row"); found.append(dot(colour(line.id)), line.name); return found; };
  const row = (cells) => { const found = document.createElement("tr"); found.append(...cells); return found; };
  by("compared").tHead.replaceChildren(row(heads.map((head) => cell(head, true, "col"))));
  by("compared").tBodies[0].replaceChildren(...ticked.map((line, k) => row([
    headOf(line), cell(short(line.score)), cell(short(line.best)), cell(short(line.steps)), cell(short(line.minutes)),
    ...names.map((name) => cell(written(settings[k][name]))),
  ])));
}

by("filter").oninput = () => { view.set("filter", by("filter").value.trim()); drawList(); };
setInterval(look, 1000 * LOOK_SECONDS);
