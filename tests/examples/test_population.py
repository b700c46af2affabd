"""Population-based training in short: a loser takes over the winner's weights and settings, and all get better."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from ps_common.run_folder.checkpoint_file import read_checkpoint
from ps_common.run_folder.paths import CHECKPOINTS, checkpoint_name
from ps_common.run_folder.run_rows import read_episodes
from ps_common.run_folder.trained import trained_as
from ps_common.settings.run_files import SETTINGS, load_config
from ps_common.settings.run_spec import A3CSettings

ROOT = Path(__file__).parents[2]
MEMBERS, STEPS = 3, 2000


def population(folder: Path, generations: int) -> list[list[dict[str, Any]]]:
    """All generations so far, of three runs of CartPole, by the command that its page shows."""
    command = [sys.executable, "-m", "examples.population", "CartPole-v1", "--folder", str(folder)]
    command += ["--members", str(MEMBERS), "--steps", str(STEPS), "--generations", str(generations)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    history: list[list[dict[str, Any]]] = json.loads((folder / "population.json").read_text())
    assert f"generation {generations - 1}\n" in done.stdout
    return history


@pytest.mark.nightly
@pytest.mark.timeout(400)
def test_losers_take_over_weights_and_settings_and_the_best_get_better(tmp_path: Path) -> None:
    first = population(tmp_path, 1)[0]
    number = Path(min(first, key=lambda one: one["score"])["folder"]).name.partition("-")[0]
    interrupted = tmp_path / f"{number}-1"  # which has no checkpoint yet
    interrupted.mkdir()
    (interrupted / SETTINGS).touch()
    history = population(tmp_path, 2)
    assert history[0] == first, "it goes on after the generations that it has"
    before, after = history
    winner, loser = (choice(before, key=lambda one: one["score"]) for choice in (max, min))
    assert len({one["folder"] for one in before} & {one["folder"] for one in after}) == MEMBERS - 1
    (new,) = [one for one in after if one["steps"] == STEPS]
    assert loser["folder"] not in {one["folder"] for one in after}
    assert new["parent"] == winner["folder"]
    for setting in ("learning_rate", "entropy_weight"):
        assert new[setting] / winner[setting] in (pytest.approx(0.8), pytest.approx(1.25))
    folder = Path(new["folder"])
    spec = load_config(folder / SETTINGS)
    assert isinstance(spec.algorithm, A3CSettings)
    assert (spec.schedule.learning_rate, spec.algorithm.entropy_weight, spec.start_from) == (
        new["learning_rate"], new["entropy_weight"], new["start_from"],
    )  # fmt: skip
    begins, taken = (trained_as(path) for path in (folder / CHECKPOINTS / checkpoint_name(0, 1), Path(spec.start_from)))
    assert torch.equal(begins.weights, taken.weights)
    assert taken.global_steps >= winner["steps"]
    name = checkpoint_name(taken.global_steps, read_checkpoint(Path(spec.start_from))[1].version)
    assert torch.equal(trained_as(Path(winner["folder"]) / CHECKPOINTS / name).weights, taken.weights)
    games = read_episodes(folder)
    assert games[-1].global_steps > STEPS // 2, "it was trained"
    assert max(one["score"] for one in after) >= max(one["score"] for one in before)
