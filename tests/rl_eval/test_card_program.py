"""The programs on model cards, as they stand there, in processes of their own: they see and act as the run does."""

import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from ps_common.settings.run_files import load_preset
from ps_common.settings.run_settings import run_from_dict, with_settings
from ps_common.settings.run_spec import Environment
from rl_agent.environments.make import make_environments
from rl_agent.environments.spaces import DiscreteActions
from rl_eval.card_program import program
from rl_eval.cli import evaluate
from rl_eval.policy_folder import read_model
from rl_eval.receipt import read_receipt
from tests.extras import skip_without_package
from tests.rl_eval.test_cli import checkpoint, weights_of
from tests.rows import nightly

ROOT = Path(__file__).parents[2]
ZOO = ROOT / "zoo"
STEPS = 500
ONE_THREAD = {"OMP_NUM_THREADS": "1"}  # torch's threads wait for each other where others use the cores

# Runs program.py with a policy that takes given actions, and keeps what it is shown.
SHOWN = """
import itertools, runpy, sys
import numpy as np
import ps_rl

actions, shown = iter(np.load("actions.npy")), []

class Given:
    def reset(self):
        pass

    def act(self, observation):
        shown.append(np.array(observation))
        action = next(actions, None)
        return sys.exit() if action is None else action[None]

ps_rl.load_policy = lambda source: Given()
try:
    runpy.run_path("program.py")
finally:
    np.save("shown.npy", shown)
"""
# Runs program.py and prints what its game is given.
TAKEN = """
import gymnasium, json, runpy
import numpy as np

taken, made, made_vectors = [], gymnasium.make, gymnasium.make_vec

def noted(environment):
    step = environment.step
    environment.step = lambda action: taken.append(np.asarray(action).tolist()) or step(action)
    return environment

gymnasium.make = lambda *given, **named: noted(made(*given, **named))
gymnasium.make_vec = lambda *given, **named: noted(made_vectors(*given, **named))
runpy.run_path("program.py")
print(json.dumps(taken))
"""


def programs_on(policy: Path) -> list[str]:
    """The Python blocks of a card."""
    return re.findall(r"```python\n(.*?)\n```", (policy / "README.md").read_text(), re.DOTALL)


def ran(text: str, folder: Path, *, around: str | None = None, more: str = "") -> str:
    """What the program prints, run in the folder by itself, or with a program around it."""
    (folder / "program.py").write_text(text + more)
    command = [sys.executable, "-W", "error", *(("program.py",) if around is None else ("-c", around))]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, env=os.environ | ONE_THREAD)
    assert run.returncode == 0, run.stderr
    return run.stdout


def score_in(output: str) -> float:
    found = re.search(r"score: (-?[\d.]+)", output)
    assert found is not None, output
    return float(found[1])


def copied(name: str, folder: Path) -> Path:
    """A policy of the zoo, as somebody has fetched it."""
    return shutil.copytree(ZOO / name, folder / "policy")


def shown_by_the_run(settings: Environment, actions: NDArray[np.int64]) -> NDArray[Any]:
    """What a run shows its policy until the first game of seed 0 ends; `actions` are the policy's."""
    with closing(make_environments(settings, count=1)) as environments:
        shown = [environments.reset(0).copy()]
        for action in actions:
            stepped = environments.step(action[None])
            if stepped.terminated[0] or stepped.truncated[0]:
                break
            shown.append(stepped.observations.copy())
        return np.stack(shown)


def check_shown(text: str, settings: Environment, folder: Path) -> None:
    """The program shows its policy, bit by bit, what the run shows."""
    with closing(make_environments(settings, count=1)) as environments:
        space = environments.actions
        assert isinstance(space, DiscreteActions)
        actions = np.random.default_rng(1).integers(0, space.count, STEPS)
    np.save(folder / "actions.npy", space.native(actions))
    ran(text, folder, around=SHOWN)
    shown, expected = np.load(folder / "shown.npy"), shown_by_the_run(settings, actions)
    assert len(expected) > 100, "much is compared"
    assert shown.dtype == expected.dtype
    np.testing.assert_array_equal(shown, expected)


def test_the_program_on_the_card_of_pong_shows_the_frames_of_the_run(tmp_path: Path) -> None:
    policy = copied("pong", tmp_path)
    (text,) = programs_on(policy)
    check_shown(text, read_model(policy).run.environment, policy)


@pytest.mark.parametrize(
    ("preset", "changes"),
    [
        ("atari", {"environment": "ALE/Breakout-v5", "sticky_actions": 0.25}),
        nightly("atari-a3c-lstm", {"max_episode_steps": 200}),
        nightly("breakout-a3c", {"preprocessing": "breakout-crop", "life_loss_ends_episode": True}),
        nightly("pong-mlp", {"frame_stack": 3, "frame_skip": 3, "noop_max": 0, "fire_on_reset": False}),
    ],
)
def test_the_program_of_a_preset_of_atari_shows_the_frames_of_its_run(
    preset: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    changes = {f"environment.{'id' if name == 'environment' else name}": value for name, value in changes.items()}
    run = with_settings(load_preset(preset), changes, source="test")
    with closing(make_environments(run.environment, count=1)) as environments:
        text = program(run, environments, is_greedy=False)
    check_shown(text, run.environment, tmp_path)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("name", "least"), [("pong", 15.0), nightly("cartpole-a3c", 500.0), nightly("inverted-pendulum", 1000.0)]
)
def test_a_policy_of_the_zoo_plays_a_game_from_its_card_alone(name: str, least: float, tmp_path: Path) -> None:
    """Pong ends at -7 where frames are the last ones of a step, not the maximum of two."""
    policy = copied(name, tmp_path)
    skip_without_package(read_model(policy).run)
    (text,) = programs_on(policy)
    assert score_in(ran(text, policy)) >= least


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_games_of_pong_from_the_card_alone_fit_its_score(tmp_path: Path) -> None:
    policy = copied("pong", tmp_path)
    (text,) = programs_on(policy)
    five = "\nprint([float(play(seed)) for seed in range(1, 6)])"
    scores = json.loads(ran(text, policy, more=five).splitlines()[-1])
    card = [game.score for game in read_receipt(policy / "receipt.json").games]
    error = np.std(card, ddof=1) * np.sqrt(1 / len(scores) + 1 / len(card))
    print(f"{scores}: mean {np.mean(scores):.2f} ± {1.96 * error:.2f}; on the card {np.mean(card):.2f}")
    assert abs(np.mean(scores) - np.mean(card)) <= 3.3 * error  # beyond it by chance once in a thousand times
    greedy = text.replace("policy.act(seen(observation))", "policy.act(seen(observation), greedy=True)")
    assert greedy != text
    assert score_in(ran(greedy, policy)) >= 18


@pytest.mark.parametrize("name", sorted(path.parent.name for path in ZOO.glob("*/receipt.json")))
def test_a_card_of_the_zoo_has_the_program_of_its_run(name: str) -> None:
    run = read_model(ZOO / name).run
    skip_without_package(run)
    with closing(make_environments(run.environment, count=1)) as environments:
        assert programs_on(ZOO / name) == [program(run, environments, is_greedy=False)]


PONG: Any = {"id": "ALE/Pong-v5", "preprocessing": "field40", "frame_stack": 2, "actions": [0, 2, 3]}
MEMORY: Any = {"hidden": [8], "lstm": 6}


@pytest.mark.parametrize(
    "sections",
    [
        {"environment": PONG | {"max_episode_steps": 60}, "network": MEMORY | {"name": "shallow40"}},
        nightly({"environment": {"id": "CartPole-v1"}, "network": MEMORY}),
        nightly({"environment": {"id": "CartPole-v1"}, "network": {"hidden": [8]}, "algorithm": {"name": "n_step_q"}}),
        nightly({"environment": {"id": "Pendulum-v1", "max_episode_steps": 50}, "network": {"hidden": [8]}}),
    ],
    ids=["pixels, memory, some actions", "memory", "action values", "real actions"],
)
def test_both_programs_of_a_card_act_as_the_evaluated_game_did(sections: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="needs the extra onnx")
    run = run_from_dict({"seed": 1, **sections}, source="test")
    torch.manual_seed(1)
    drawn = weights_of(run_from_dict(sections, source="test"))
    normal = {name: torch.randn_like(one) if one.dim() > 1 else 0 * one for name, one in drawn.items()}
    source, policy = str(checkpoint(tmp_path / "run.safetensors", run, normal)), tmp_path / "policy"
    evaluate(["--checkpoint", source, "--episodes", "1", "--seed", "0", "--greedy", "--onnx", "--export", str(policy)])
    (game,) = read_receipt(policy / "receipt.json").games
    with_ps_rl, with_onnx = programs_on(policy)
    assert "ps_rl" not in with_onnx
    native = read_model(policy).spaces.actions.native(np.array(game.actions))
    assert len(np.unique(native)) > 1, "the policy decides something"
    for text in (with_ps_rl, with_onnx):
        output = ran(text, policy, around=TAKEN)
        assert score_in(output) == pytest.approx(game.score, rel=1e-3)
        taken = json.loads(output.splitlines()[-1])
        np.testing.assert_allclose(np.reshape(taken, native.shape), native, atol=1e-3)
