"""The model card of an exported policy: what it plays, how well, how that was measured, and how to use it."""

from common.settings.run_spec import RunSpec
from rl_worker.environments.interface import Environments
from rl_worker.play.games import Result

LICENCE = "mit"


def model_card(
    run: RunSpec, environments: Environments, result: Result, *, global_steps: int, minutes: float, sha256: str
) -> str:
    """Markdown with the front matter that model hubs read."""
    how = "the most probable action" if result.greedy else "actions sampled from the policy"
    described = "\n".join(f"| {name} | {value} |" for name, value in environments.description.items())
    return f"""---
license: {LICENCE}
library_name: ps-rl
pipeline_tag: reinforcement-learning
tags: [reinforcement-learning, ps-rl, {run.environment.id}]
model-index:
- name: {run.preset}
  results:
  - task: {{type: reinforcement-learning}}
    dataset: {{name: {run.environment.id}, type: {run.environment.id}}}
    metrics: [{{type: mean_return, value: {result.mean:.2f}}}]
---

# {run.environment.id}, trained with ps-rl

A policy of the preset `{run.preset}` ({type(run.algorithm).__struct_config__.tag}), after {global_steps:,} steps and
{minutes:.1f} minutes of training.

## Score

**{result.mean:.2f}** (95 % {result.low:.2f} to {result.high:.2f}; standard deviation {result.std:.2f}): the mean true,
unclipped return of {result.episodes} full games, {how}. `receipt.json` replays each of them:
`rl-eval --verify receipt.json`.

| Protocol | |
|---|---|
{described}

## Use

```python
from rl_worker.export.policy import load_policy

policy = load_policy(".")
policy.reset()
action = policy.act(observation)  # {environments.observations}
```

`rl-eval --checkpoint .` plays full games with it. `settings.toml` has every setting of the run:
`rl-cluster --config settings.toml` trains it again.

Weights are of the checkpoint with SHA-256 `{sha256}`.
"""
