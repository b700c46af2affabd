"use strict";
// The live game of one worker: which one is chosen, its newest frame, value estimate, action probabilities.

function drawGame(run) { // who can be watched; the game itself is drawn by drawFrame
  const names = run.status ? run.status.workers.filter((worker) => worker.alive || worker.worker_id === run.watched).map((worker) => worker.worker_id) : [];
  by("watch-choice").hidden = !names.length || !(steering || run.watched);
  by("game-card").hidden = !run.watched || !run.status;
  by("charts").classList.toggle("with-game", !by("game-card").hidden);
  const lives = run.status && run.status.workers.some((worker) => worker.alive && worker.worker_id === run.watched);
  by("game-title").textContent = `Game of ${run.watched}, ${lives ? "live" : "which is gone: its last frame"}`;
  by("game-wait").hidden = by("game").children.length > 0;
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
      label.append(name, meter, document.createElement("span"));
      return label;
    }));
    game.replaceChildren(image, side);
  }
  by("game-wait").hidden = true;
  const [image, side] = game.children;
  image.hidden = !frame.image;
  if (frame.image) image.src = `data:image/jpeg;base64,${frame.image}`;
  side.firstChild.textContent = `score ${short(frame.score)} · value ${short(frame.value)} · action ${frame.taken}`;
  frame.probabilities.forEach((share, k) => {
    const label = side.children[k + 1];
    label.children[0].value = share;
    label.children[1].textContent = `${(100 * share).toFixed(0)} %`;
    label.classList.toggle("taken", frame.actions[k] === frame.taken);
  });
}

by("watch").onchange = () => post("watch", { worker_id: by("watch").value || null });
