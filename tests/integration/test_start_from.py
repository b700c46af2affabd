"""A run that starts from trained weights, as a user has it: with shards, and resumed when the source is gone."""

import shutil
from pathlib import Path

import pytest

from ps_common.run_folder.run_rows import read_episodes
from ps_common.settings.run_files import SETTINGS, load_config
from tests.integration.processes import Programs

ZOO = Path(__file__).parents[2] / "zoo" / "cartpole-a3c"


@pytest.mark.nightly  # tests/ps_rl has a run without shards
@pytest.mark.timeout(400)  # programs that import torch
def test_shards_start_from_a_policy_and_a_resumed_run_does_without_it(programs: Programs, tmp_path: Path) -> None:
    policy, run = tmp_path / "policy", tmp_path / "run"
    shutil.copytree(ZOO, policy)
    few = ["--workers", "1", "--no-web", "--envs", "2", "--until-return", "None"]
    first = programs.start(
        "rl-cluster", "--preset", "cartpole-a3c", *few, "--shards", "2", "--start-from", str(policy),
        "--max-steps", "1500", "--run-dir", str(run),
    )  # fmt: skip
    assert first.wait(200) == 0, first.output
    games = read_episodes(run / "shard-1-of-2")
    assert min(game.episode_return for game in games[:2]) > 100, "chance plays 22"
    for log in ("server.log", "server-2.log"):
        assert f"starts from the weights of {policy}/model.safetensors" in (run / log).read_text()
    shutil.rmtree(policy)
    again = programs.start("rl-cluster", "--resume", str(run), *few, "--max-steps", "2000")
    assert again.wait(200) == 0, again.output
    assert load_config(run / "shard-1-of-2" / SETTINGS).start_from == str(policy)
    assert "max_steps 2000 reached" in again.output


@pytest.mark.nightly  # tests/ps_rl has it in one process
def test_a_network_that_does_not_fit_ends_the_run_by_the_name_of_a_tensor(programs: Programs, tmp_path: Path) -> None:
    flags = ["--environment", "Acrobot-v1", "--separate", "--normalization", "none", "--start-from", str(ZOO)]
    program = programs.start("rl-cluster", *flags, "--workers", "1", "--no-web", "--run-dir", str(tmp_path / "run"))
    assert program.wait(200) == 1, program.output
    assert f"--start-from {ZOO}: tensor 'branch.torso.1.weight' [64, 6] of this run does not fit" in program.output
