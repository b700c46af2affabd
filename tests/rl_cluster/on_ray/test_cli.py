"""`python -m rl_cluster.on_ray` without Ray: its flags, the plan of a run, and the error where Ray is missing."""

import importlib.util
from pathlib import Path

import pytest

from ps_common.errors import SettingsError
from ps_common.program.flags import parse_with_run
from ps_server.settings import ServerSettings
from rl_cluster.on_ray.cli import RaySettings, plan_of, train_on_ray
from rl_cluster.on_ray.processes import RunPlan


def plan(*flags: str) -> RunPlan:
    return plan_of(parse_with_run(RaySettings, ["--run-dir", "runs/one", *flags], prog="p"))


def test_a_plan_names_the_run_and_the_flags_that_may_change_it_later() -> None:
    made = plan("--preset", "cartpole-a3c", "--max-steps", "5000", "--seed", "4", "--checkpoint-seconds", "2")
    assert Path(made.folder) == Path("runs/one").absolute()
    assert 'preset = "cartpole-a3c"' in made.settings
    assert "max_steps = 5000" in made.settings
    resumed = parse_with_run(ServerSettings, list(made.flags), prog="ps-server")
    assert resumed.overrides["budget.max_steps"] == 5000
    assert made.checkpoint_seconds == 2.0
    assert made.has_keys


def test_a_plan_without_a_preset_leaves_the_run_to_the_first_worker() -> None:
    made = plan("--no-keys")
    assert (made.settings, made.flags, made.has_keys) == ("", (), False)


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        (["--workers", "-1"], "--workers -1"),
        (["--device", "cuda"], "--device cuda: Ray hides GPUs that no actor has asked for; add --worker-gpus 1"),
    ],
    ids=str,
)
def test_flags_that_cannot_work_are_refused(flags: list[str], error: str) -> None:
    with pytest.raises(SettingsError, match=error):
        plan(*flags)


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="Ray is installed")
def test_who_has_no_ray_is_told_what_to_install() -> None:
    with pytest.raises(SettingsError, match=r"pip install -c constraints.txt '\.\[ray\]'"):
        train_on_ray(["--run-dir", "runs/one"])
