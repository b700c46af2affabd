"""Random play and held actions beside a score: what they play, where they are told, and that they verify."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_agent.environments.interface import Environments
from rl_agent.environments.spaces import BoxActions, MultiDiscreteActions, packed_space
from rl_agent.rollouts import Actor
from rl_eval import scores as baselines
from rl_eval.cli import evaluate
from rl_eval.games import play
from rl_eval.scores import HELD_GAMES, RANDOM_GAMES, HeldAction, RandomPlay, measure_baselines
from tests.rl_agent.scripted_environments import Bandit, Target
from tests.rl_eval.test_cli import CARTPOLE, VALUES, checkpoint
from tests.rl_eval.test_receipt import verified

ARMS = [1.0, 5.0, -2.0]


def measured(monkeypatch: pytest.MonkeyPatch, make: Callable[[int], Environments], epsilon: float) -> dict[str, float]:
    """The means of the baselines in other environments than those of the settings."""
    monkeypatch.setattr(baselines, "make_environments", lambda settings, count: make(count))
    found = measure_baselines(CARTPOLE.environment, epsilon=epsilon, seed=1)
    means = [baseline.mean for baseline in found]
    assert means == sorted(means, reverse=True), "the best first"
    for baseline in found:
        assert baseline.episodes == (RANDOM_GAMES if baseline.name == "random play" else HELD_GAMES)
    return {baseline.name: baseline.mean for baseline in found}


def a_bandit(count: int) -> Bandit:
    bandit = Bandit(ARMS, count=count)
    bandit.actions = baselines.DiscreteActions(3, ("LEFT", "FIRE", "RIGHT"))
    return bandit


def test_each_action_is_held_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    means = measured(monkeypatch, a_bandit, 0.0)
    assert means.pop("random play") == pytest.approx(np.mean(ARMS), abs=1.5)
    assert means == {"FIRE": 5.0, "LEFT": 1.0, "RIGHT": -2.0}


def shares(actor: Actor, environments: Environments, games: int) -> dict[int, float]:
    """The share of each action in games of one step."""
    played = play(actor, environments, episodes=games, greedy=False, seed=3)
    counted = Counter(action for game in played for action in game.actions)
    return {action: count / games for action, count in counted.items()}  # type: ignore[misc]


def test_a_held_action_has_the_policy_s_share_of_random_ones() -> None:
    found = shares(HeldAction(a_bandit(50), 1, epsilon=0.3, seed=0), a_bandit(50), 5000)
    assert found[1] == pytest.approx(0.7 + 0.1, abs=0.02)
    assert found[0] == pytest.approx(0.1, abs=0.02)
    assert sum(shares(RandomPlay(a_bandit(50), seed=0), a_bandit(50), 300).values()) == pytest.approx(1)


def test_a_forbidden_action_is_neither_held_nor_drawn() -> None:
    """The mask, in the observation, allows actions 0 and 2."""
    environments: Any = a_bandit(10)
    environments.observations = packed_space([("mask", (3,), np.uint8)])
    environments._observations = lambda: np.tile(np.array([1, 0, 1, 0], np.uint8), (10, 1))
    held = shares(HeldAction(environments, 1, epsilon=0.5, seed=0), environments, 500)
    assert held.keys() <= {0, 2}
    assert shares(RandomPlay(environments, seed=0), environments, 500).keys() == {0, 2}


@pytest.mark.parametrize("kind", ["box", "several"])
def test_other_actions_have_random_play_alone(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    def make(count: int) -> Environments:
        target = Target([0.0, 0.0], count=count)
        if kind == "several":
            target.actions = MultiDiscreteActions((2, 2))
        else:
            assert isinstance(target.actions, BoxActions)
        return target

    assert measured(monkeypatch, make, 0.0).keys() == {"random play"}


def test_baselines_are_printed_written_and_verified(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """CartPole falls after about nine steps of one action; chance keeps it up for twenty."""
    path, files = checkpoint(tmp_path / "x.safetensors", VALUES, steps=0), tmp_path / "files"
    files.mkdir()
    flags = ["--checkpoint", path, "--episodes", "4", "--baselines", "--json", files / "result.json"]
    assert evaluate([*map(str, flags), "--export", str(files / "policy")]) == 0
    rows = json.loads((files / "result.json").read_text())["baselines"]
    assert rows[0]["name"] == "random play"
    assert {row["name"] for row in rows[1:]} == {"0", "1"}
    assert 15 < rows[0]["mean"] < 30
    assert all(8 < row["mean"] < 13 and row["low"] < row["mean"] for row in rows[1:])
    printed = capsys.readouterr().out
    card, receipt = (files / "policy" / "README.md").read_text(), files / "policy" / "receipt.json"
    for name in ("this policy", "random play"):
        assert name in printed
        assert f"| {name} | " in card
    assert "the same share of random actions (0.05)" in card
    verified(receipt)
    assert "random play" in capsys.readouterr().out
