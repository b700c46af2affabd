"""The programs on model cards, as they stand there, in processes of their own."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ps_common.settings.run_settings import run_from_dict
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


def programs_on(policy: Path) -> list[str]:
    """The Python blocks of a card."""
    return re.findall(r"```python\n(.*?)\n```", (policy / "README.md").read_text(), re.DOTALL)


def ran(text: str, folder: Path, *, more: str = "") -> str:
    """What the program prints, run in the folder by itself."""
    (folder / "program.py").write_text(text + more)
    command = [sys.executable, "-W", "error", "program.py"]
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


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("name", "least"), [("pong", 15.0), nightly("cartpole-a3c", 500.0), nightly("inverted-pendulum", 1000.0)]
)
def test_a_policy_of_the_zoo_plays_a_game_from_its_card_alone(name: str, least: float, tmp_path: Path) -> None:
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
    greedy = text.replace("policy.act(observation)", "policy.act(observation, greedy=True)")
    assert greedy != text
    assert score_in(ran(greedy, policy)) >= 18


@pytest.mark.parametrize("name", sorted(path.parent.name for path in ZOO.glob("*/receipt.json")))
def test_a_card_of_the_zoo_has_the_program_of_its_run(name: str) -> None:
    assert programs_on(ZOO / name) == [program(read_model(ZOO / name).run, is_greedy=False)]


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
def test_the_program_of_a_card_plays_the_evaluated_game(sections: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="needs the extra onnx")
    run = run_from_dict({"seed": 1, **sections}, source="test")
    torch.manual_seed(1)
    drawn = weights_of(run_from_dict(sections, source="test"))
    normal = {name: torch.randn_like(one) if one.dim() > 1 else 0 * one for name, one in drawn.items()}
    source, policy = str(checkpoint(tmp_path / "run.safetensors", run, normal)), tmp_path / "policy"
    evaluate(["--checkpoint", source, "--episodes", "1", "--seed", "0", "--greedy", "--onnx", "--export", str(policy)])
    (game,) = read_receipt(policy / "receipt.json").games
    with_ps_rl, with_onnx = programs_on(policy)
    assert score_in(ran(with_ps_rl, policy)) == pytest.approx(game.score, rel=1e-3)
    assert "ps_rl" not in with_onnx
    assert ran(with_onnx, policy).startswith("actions: ")
