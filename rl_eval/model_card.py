"""The model card of an exported policy: what it plays, how well, how that was measured, and how to use it."""

from ps_common.protocol.names import module_of
from ps_common.settings.run_spec import RunSpec
from rl_agent.environments.interface import Environments
from rl_eval.games import Result
from rl_eval.report import actions_of, copies_in, interval_of, scores_beside

CARD = """\
---
license: mit
library_name: ps-rl
pipeline_tag: reinforcement-learning
tags: [reinforcement-learning, ps-rl, {environment}]
model-index:
- name: {preset}
  results:
  - task: {{type: reinforcement-learning}}
    dataset: {{name: {environment}, type: {environment}}}
    metrics: [{{type: mean_return, value: {mean:.2f}}}]
---

# {environment}, trained with ps-rl

A policy of the preset `{preset}` ({algorithm}), after {steps:,} steps and {minutes:.1f} minutes of training.{own}

## Score

**{mean:.2f}** (95 % interval: {interval}; standard deviation {std:.2f}): the mean true, unclipped return of
{episodes} full games, {how}. `receipt.json` replays each of them: `rl-eval --verify receipt.json`.
{baselines}

| Protocol | |
|---|---|
{protocol}

## Use

```python
from ps_rl import load_policy

policy = load_policy("."{imports})
policy.reset()  # before the first observation of each game
action = policy.act(observation)  # {observations}; the action is what the environment's step takes
```

`rl-eval --checkpoint .{flags}` plays full games with it. `settings.toml` has every setting of the run:
`rl-cluster --config settings.toml{flags}` trains it again.

The weights are those of the checkpoint with SHA-256 `{sha256}`.
"""


def model_card(
    run: RunSpec, environments: Environments, result: Result, *, global_steps: int, minutes: float, sha256: str
) -> str:
    """Markdown with the front matter that model hubs read."""
    modules, agent_modules = (sorted(set(map(module_of, parts))) for parts in (run.parts, run.agent_parts))
    parts = ", ".join(f"`{part}`" for part in run.parts)
    return CARD.format(
        environment=run.environment.id,
        own=f" It needs code that is not part of ps-rl: {parts}." if parts else "",
        imports=f", imports={agent_modules}" if agent_modules else "",
        flags=f" --import {' '.join(modules)}" if modules else "",
        preset=run.preset,
        algorithm=run.algorithm_name,
        steps=global_steps,
        minutes=minutes,
        mean=result.mean,
        interval=interval_of(result),
        std=result.std,
        episodes=result.episodes,
        how=actions_of(result) + copies_in(result),
        baselines=_baselines(result),
        protocol="\n".join(f"| {name} | {value} |" for name, value in environments.description.items()),
        observations=environments.observations,
        sha256=sha256,
    )


def _baselines(result: Result) -> str:
    """A table of the score among its baselines; "" if none were measured."""
    if not result.baselines:
        return ""
    rows = [f"| {name} | {row.mean:.2f} | {interval_of(row)} |" for name, row in scores_beside(result)]
    head = "Beside it random play, and each action held all the time"
    share = f", but for the same share of random actions ({result.epsilon:g})" if result.epsilon else ""
    return "\n".join([f"\n{head}{share}:\n", "| | mean | 95 % |", "|---|---|---|", *rows])
