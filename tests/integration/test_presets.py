"""Every preset learns for some thousand steps by night, and one with all that can be recorded in every test."""

import json
from pathlib import Path

import pytest

from ps_common.settings.run_files import load_preset, presets
from tests.extras import skip_without_package
from tests.integration.processes import Programs
from tests.ps_server.records.test_event_file import loaded

NIGHT_STEPS, LEARNED_STEPS = 5_000, 500  # the second: after the first update of a preset that waits for it
NIGHT_SECONDS, DAY_SECONDS = 900, 90


def train(programs: Programs, folder: Path, preset: str, *, steps: int, within_seconds: float) -> None:
    """With rl-cluster as a user would, until that many steps are counted."""
    skip_without_package(load_preset(preset))
    summary = folder / "summary.json"
    flags = ["--max-steps", str(steps), "--workers", "2", "--run-dir", str(folder / "run"), "--json", str(summary)]
    cluster = programs.start("rl-cluster", "--preset", preset, *flags)
    status = cluster.wait(within_seconds)
    logs = "".join(f"\n== {log.name}\n{log.read_text()[-2000:]}" for log in (folder / "run").glob("*.log"))
    assert status == 0, f"preset {preset} failed:\n{cluster.output}{logs}"
    result = json.loads(summary.read_text())
    assert result["preset"] == preset
    assert result["global_steps"] >= steps, f"preset {preset} ended early: {result}"
    assert result["updates"] > 0, f"preset {preset} learned nothing: {result}"


@pytest.mark.nightly
@pytest.mark.timeout(NIGHT_SECONDS + 60)
@pytest.mark.parametrize("preset", presets())
def test_a_preset_learns_at_night(preset: str, programs: Programs, tmp_path: Path) -> None:
    steps = max(NIGHT_STEPS, load_preset(preset).replay.learning_starts + LEARNED_STEPS)
    train(programs, tmp_path, preset, steps=steps, within_seconds=NIGHT_SECONDS)


def test_a_run_leaves_what_its_settings_ask_for(programs: Programs, tmp_path: Path) -> None:
    """A whole run through all processes, with everything that can be recorded."""
    flags = [
        "--preset", "cartpole", "--max-steps", "4000", "--workers", "2", "--experiment", "everything", "--seed", "1",
        "--summaries", "perf",
        "--checkpoint-every-episodes", "20", "--keep-checkpoints", "2",
    ]  # fmt: skip
    run = tmp_path / "run"
    cluster = programs.start("rl-cluster", *flags, "--run-dir", str(run))
    assert cluster.wait(DAY_SECONDS) == 0, cluster.output
    games = [json.loads(line) for line in (run / "episodes.jsonl").read_text().splitlines()]
    assert [game["episode"] for game in games] == list(range(1, len(games) + 1))
    assert {game["worker"] for game in games} == {"worker-0", "worker-1"}
    assert 1 <= len(list((run / "checkpoints").glob("episodes-*.safetensors"))) <= 2
    tags = loaded(run).Tags()
    assert {"Perf/Reward", "Perf/Value", "Losses/Entropy", "Losses/Var Norm"} <= set(tags["scalars"])
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    assert (last["experiment"], last["episodes"]) == ("everything", len(games))
    assert (run / "curve.png").stat().st_size > 1000
