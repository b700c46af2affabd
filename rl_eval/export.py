"""
`rl-eval --export`: everything that an exported policy consists of, in a new folder.

The model card says what the policy plays, how well, how that was measured, and how to use it. Some words on it are the
user's own, such as the name of a preset, and a run may be a stranger's: whatever they are, YAML reads them as they are,
and Markdown shows them, without a link and without HTML.
"""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

from torch import nn

from ps_common.errors import SettingsError
from ps_common.protocol.names import module_of, printable
from ps_common.release import release
from ps_common.run_folder.policy_file import MODEL
from ps_common.run_folder.trained import Trained
from ps_common.settings.run_settings import shown_run
from rl_agent.environments.interface import Environments
from rl_agent.environments.spaces import ObservationSpace
from rl_eval.card_program import onnx_program, program
from rl_eval.games import Result
from rl_eval.onnx_file import write_onnx
from rl_eval.policy_folder import CARD, ONNX, RECEIPT, SETTINGS, write_model
from rl_eval.receipt import Receipt, write_receipt
from rl_eval.scores import actions_of, copies_in, interval_of, scores_beside

MARKED = re.compile(r"([\\`*_\[<>|&~$@:])")  # what Markdown, or one of its dialects, may take for more than text
SPACE = re.compile(r"\s+")
TEMPLATE = """\
---
license: mit
library_name: ps-rl
pipeline_tag: reinforcement-learning
tags: [reinforcement-learning, ps-rl, {id}]
model-index:
- name: {name}
  results:
  - task: {{type: reinforcement-learning}}
    dataset: {{name: {id}, type: {id}}}
    metrics: [{{type: mean_return, value: {mean:.2f}}}]
---

# {environment}, trained with ps-rl

A policy of the preset {preset} ({algorithm}), after {steps:,} steps and {minutes:.1f} minutes of training.{own}

## Score

**{mean:.2f}** (95 % interval: {interval}; standard deviation {std:.2f}): the mean true, unclipped return of
{episodes} full games, {how}. `receipt.json` replays each of them: `rl-eval --verify receipt.json`.
{baselines}

| Protocol | |
|---|---|
{protocol}

## Use

This program, run in this folder, plays a game and shows the policy what it saw in its run: {observations}.

```python
{program}
```
{raw}{onnx}
{evaluate} plays full games with it. `settings.toml` has every setting of the run: {train} trains it again.

The weights are those of the checkpoint with SHA-256 `{sha256}`. ps-rl {release} exported them.
"""
ONNX_USE = """
`model.onnx` acts without ps-rl. This program takes the most probable action, of real numbers the mean:

```python
{program}
```
"""


def write_policy(
    path: Path,
    trained: Trained,
    network: nn.Module,
    environments: Environments,
    receipt: Receipt,
    result: Result,
    *,
    has_onnx: bool,
) -> None:
    """Write the folder, which appears whole or not at all, and has no secret in it. Raises SettingsError."""
    trained = replace(trained, run=shown_run(trained.run))
    card = model_card(trained, environments, result, network if has_onnx else None)
    try:
        with NewFolder(path) as folder:
            write_model(
                folder / MODEL,
                trained.run,
                trained.schema,
                trained.weights,
                environments,
                global_steps=trained.global_steps,
                minutes=trained.minutes,
            )
            (folder / SETTINGS).write_text(trained.run.to_toml(), encoding="utf-8")
            (folder / CARD).write_text(card, encoding="utf-8")
            write_receipt(folder / RECEIPT, receipt)
            if has_onnx:
                write_onnx(folder / ONNX, network, environments.observations, environments.actions)
    except OSError as error:
        raise SettingsError(f"--export {path}: cannot be written: {error.strerror or error}") from error


def model_card(trained: Trained, environments: Environments, result: Result, network: nn.Module | None) -> str:
    """Markdown with the front matter that model hubs read; `network`: the one that is exported as ONNX, too."""
    run, modules = trained.run, sorted(set(map(module_of, trained.run.parts)))
    parts, flags = ", ".join(map(as_code, run.parts)), f" --import {' '.join(modules)}" if modules else ""
    onnx = "" if network is None else onnx_program(environments, network)
    return TEMPLATE.format(
        environment=in_markdown(run.environment.id),
        id=in_yaml(run.environment.id),
        name=in_yaml(run.preset),
        own=f" It needs code that is not part of ps-rl: {parts}." if parts else "",
        evaluate=as_code(f"rl-eval --checkpoint .{flags}"),
        train=as_code(f"rl-cluster --config settings.toml{flags}"),
        preset=as_code(run.preset),
        algorithm=in_markdown(run.algorithm_name),
        steps=trained.global_steps,
        minutes=trained.minutes,
        mean=result.mean,
        interval=interval_of(result),
        std=result.std,
        episodes=result.episodes,
        how=actions_of(result) + copies_in(result),
        baselines=_baselines(result),
        protocol="\n".join(f"| {name} | {in_markdown(str(one))} |" for name, one in environments.description.items()),
        observations=in_markdown(str(environments.observations)),
        raw=_raw(environments.observations),
        program=program(run, is_greedy=result.greedy),
        onnx=ONNX_USE.format(program=onnx) if onnx else "",
        sha256=trained.sha256,
        release=release(),
    )


def _raw(space: ObservationSpace) -> str:
    """A paragraph about observations of several keys as the environment shows them; "" of others."""
    native = space.native
    if native is None or not native.leaves[0].path:
        return ""
    shown = ", ".join(f"{as_code(leaf.key)} {list(leaf.shape)}" for leaf in native.leaves)
    mask = "; its `action_mask` is the one of `info`" if native.mask is not None and native.mask.in_info else ""
    return (
        f"\nElsewhere, as on a robot, `policy.act` takes what the environment shows, or a batch of it: {shown}{mask}.\n"
    )


def in_yaml(text: str) -> str:
    """A scalar in quotes."""
    quoted = json.dumps(printable(text), ensure_ascii=False)
    return "".join(one if one.isprintable() else f"\\U{ord(one):08x}" for one in quoted)


def in_markdown(text: str) -> str:
    """Plain text on one line, also in a table."""
    return MARKED.sub(r"\\\1", SPACE.sub(" ", printable(text)))


def as_code(text: str) -> str:
    """A code span on one line."""
    shown = SPACE.sub(" ", printable(text))
    fence = "`" * (1 + max(map(len, re.findall("`+", shown)), default=0))
    return f"{fence} {shown} {fence}" if "`" in shown or not shown.strip() else f"{fence}{shown}{fence}"


def _baselines(result: Result) -> str:
    """A table of the score among its baselines; "" if none were measured."""
    if not result.baselines:
        return ""
    rows = [f"| {name} | {row.mean:.2f} | {interval_of(row)} |" for name, row in scores_beside(result)]
    head = "Beside it random play, and each action held all the time"
    share = f", but for the same share of random actions ({result.epsilon:g})" if result.epsilon else ""
    return "\n".join([f"\n{head}{share}:\n", "| | mean | 95 % |", "|---|---|---|", *rows])


class NewFolder:
    """A folder that takes its name when it is complete: `with NewFolder(path) as place` writes into `place`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._place = path.with_name(f".{path.name}.unfinished")

    def __enter__(self) -> Path:
        shutil.rmtree(self._place, ignore_errors=True)
        self._place.mkdir(parents=True)
        return self._place

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if kind is None:
            self._place.rename(self._path)
        else:
            shutil.rmtree(self._place, ignore_errors=True)
