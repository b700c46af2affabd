"""Receipts of evaluated games: a replay needs no weights, and each edit is named."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ps_common.errors import ReceiptError, SettingsError
from ps_common.release import release
from ps_common.settings.run_settings import run_from_dict
from ps_common.settings.run_spec import RunSpec
from rl_eval import receipt as receipts
from rl_eval.cli import evaluate
from tests.rl_eval.test_cli import CARTPOLE, checkpoint

Content = dict[str, Any]
PONG = run_from_dict(
    {"environment": {"id": "ALE/Pong-v5", "max_episode_steps": 90, "sticky_actions": 0.25, "actions": [0, 2, 3]}},
    source="test",
)
PENDULUM = run_from_dict(
    {"environment": {"id": "Pendulum-v1", "max_episode_steps": 7}, "network": {"hidden": [8]}}, source="test"
)


def receipt_in(tmp_path: Path, run: RunSpec = CARTPOLE, *, episodes: int = 5) -> Path:
    """A receipt of sampled games. Its checkpoint is elsewhere when this returns."""
    path = checkpoint(tmp_path / "some.safetensors", run)
    receipt = tmp_path / "receipt.json"
    flags = ["--checkpoint", path, "--episodes", episodes, "--seed", 7, "--receipt", receipt]
    assert evaluate([str(flag) for flag in flags]) == 0
    path.rename(tmp_path / "moved")
    return receipt


def verified(path: Path) -> None:
    assert evaluate(["--verify", str(path)]) == 0


def edited(path: Path, edit: Callable[[Content], object], *, forged: bool = False) -> Path:
    """The receipt with an edit; if it is `forged`, with new checksums too."""
    content = json.loads(path.read_text())
    edit(content)
    if forged:
        content["checksums"] = receipts.checksums(content)
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize(
    ("run", "episodes"), [(CARTPOLE, 20), (PONG, 3), (PENDULUM, 2)], ids=["CartPole", "Pong", "Pendulum"]
)
def test_a_receipt_verifies_without_its_checkpoint(
    run: RunSpec, episodes: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = receipt_in(tmp_path, run, episodes=episodes)
    printed = capsys.readouterr().out.splitlines()
    verified(path)
    again = capsys.readouterr().out.splitlines()
    assert again[0] == f"{path}: verified: each of {episodes} games has its score again"
    assert again[1] == printed[0], "the same figures"


def test_a_receipt_of_a_version_with_fewer_settings_verifies(tmp_path: Path) -> None:
    def without_the_newest(content: Content) -> None:
        del content["environment"]["action_mask"], content["environment"]["noop_max"]

    verified(edited(receipt_in(tmp_path, episodes=2), without_the_newest, forged=True))


def flip(content: Content) -> None:
    actions = content["games"][1]["actions"]
    actions[len(actions) // 2] ^= 1


def raise_score(content: Content) -> None:
    content["games"][2]["score"] += 1


def other_seed(content: Content) -> None:
    content["seed"] += 1


def longer(content: Content) -> None:
    content["games"][0]["actions"] += [0, 1, 0]


def shorter(content: Content) -> None:
    content["games"][0]["actions"].pop()


def worst_left_out(content: Content) -> None:
    del content["games"][0]


def other_limit(content: Content) -> None:
    content["environment"]["max_episode_steps"] = 31


@pytest.mark.parametrize("forged", [False, True], ids=["edited", "forged"])
@pytest.mark.parametrize(
    ("edit", "sentence", "part"),
    [
        (flip, "in the replay", "game 2"),
        (raise_score, r"game 3 of 5: its score is \d+, and \d+ in the replay", "game 3"),
        (other_seed, r"game \d of 5: it .* in the replay", "seed"),
        (longer, r"game 1 of 5: it has \d+ actions, and ends after \d+ in the replay", "game 1"),
        (shorter, r"game 1 of 5: it has not ended after its \d+ actions in the replay", "game 1"),
        (worst_left_out, r"environment \d has 0 games, and its share of 5 is 1", "game 1"),
        (other_limit, "environment card: time limit is 30, and 31 here", "environment"),
    ],
)
def test_an_edited_receipt_fails_and_the_sentence_says_what_differs(
    edit: Callable[[Content], object], sentence: str, part: str, forged: bool, tmp_path: Path
) -> None:
    path = edited(receipt_in(tmp_path), edit, forged=forged)
    with pytest.raises(ReceiptError, match=f"^{path}: does not verify: .*{sentence}") as raised:
        verified(path)
    assert (f"edited after it was written: {part}" in str(raised.value)) is not forged
    assert "\n" not in str(raised.value)


def test_an_action_without_effect_on_the_score_cannot_be_edited_either(tmp_path: Path) -> None:
    """Actions 0 and 1 of Pong, no-op and fire, do the same."""
    run = run_from_dict({"environment": {"id": "ALE/Pong-v5", "max_episode_steps": 20, "actions": [0, 1]}}, source="")
    path = edited(receipt_in(tmp_path, run, episodes=2), flip)
    with pytest.raises(ReceiptError, match=r"does not verify: it was edited after it was written: game 2$"):
        verified(path)


def test_other_versions_are_named_when_games_differ_and_only_then(tmp_path: Path) -> None:
    def older(content: Content) -> None:
        content["versions"]["gymnasium"] = "0.1"

    path = edited(receipt_in(tmp_path), older, forged=True)
    verified(path)
    with pytest.raises(ReceiptError, match=r"in the replay; it was written with gymnasium 0\.1, this is \d"):
        verified(edited(path, raise_score, forged=True))


def test_a_receipt_imports_no_module_that_the_command_line_does_not_name(tmp_path: Path) -> None:
    path = edited(receipt_in(tmp_path), lambda content: content["environment"].update(id="os:Some-v0"))
    with pytest.raises(SettingsError, match="add --import os"):
        verified(path)


def test_the_program_ends_with_status_1_and_one_sentence(tmp_path: Path) -> None:
    path = edited(receipt_in(tmp_path), raise_score)
    program = [sys.executable, "-m", "rl_eval", "--verify", str(path)]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1].startswith(f"rl-eval: {path}: does not verify: game 3 of 5: its score is ")
    assert "Traceback" not in ended.stderr


def test_a_receipt_names_its_release_and_no_setting_that_a_release_has_added_and_nobody_has_set(tmp_path: Path) -> None:
    """So earlier releases verify it."""
    path = receipt_in(tmp_path, episodes=1)
    content = json.loads(path.read_text())
    assert content["versions"]["ps-rl"] == release()
    assert "step_in" not in content["environment"]
    verified(path)
