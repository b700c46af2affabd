"""The contact sheet shows the best game, which is replayed for it."""

from pathlib import Path

import numpy as np
import pytest

from ps_common.errors import SettingsError
from ps_common.run_folder.policy_file import MODEL
from rl_agent.environments.make import make_environments
from rl_eval import film
from rl_eval.cli import evaluate
from rl_eval.film import write_contact_sheet
from rl_eval.games import Game
from tests.rl_eval.test_cli import CARTPOLE, checkpoint


def test_the_best_game_is_shown_from_its_first_to_its_last_step(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Environment 1 plays two games of all left, which last about ten steps; the second is made the best."""
    environments = make_environments(CARTPOLE.environment, count=2)
    environments.reset(5)
    lengths, started = [], 0
    for step in range(1, 40):
        stepped = environments.step(np.zeros(2, dtype=np.int64))
        if stepped.terminated[1]:
            lengths.append(step - started)
            started = step
    environments.close()
    games = [
        Game(environment=1, score=score, actions=[0] * length, trace="")
        for score, length in zip((1, 2), lengths, strict=False)
    ]
    shown: list[str] = []
    captioned = film.captioned
    monkeypatch.setattr(
        film, "captioned", lambda screen, caption, *size: (shown.append(caption), captioned(screen, caption, *size))[1]
    )
    write_contact_sheet(tmp_path / "sheet.png", CARTPOLE.environment, games, seed=5)
    assert shown[:-1] == [f"step {step}: {step}" for step in range(lengths[1])]
    assert shown[-1] == f"CartPole-v1: the best of 2 games, score 2 in {lengths[1]} steps"


def test_a_sheet_that_cannot_be_drawn_costs_no_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise SettingsError("there is no screen")

    monkeypatch.setattr("rl_eval.cli.write_contact_sheet", fails)
    path, files = checkpoint(tmp_path / "some.safetensors"), ["--contact-sheet", str(tmp_path / "sheet.png")]
    with pytest.raises(SettingsError, match="there is no screen"):
        evaluate(["--checkpoint", str(path), "--episodes", "1", *files, "--export", str(tmp_path / "policy")])
    assert (tmp_path / "policy" / MODEL).is_file()
