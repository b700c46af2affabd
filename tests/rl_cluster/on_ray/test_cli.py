"""`python -m rl_cluster.on_ray` without Ray: its flags, the plan of a run, its actors, and the error without Ray."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from ps_common.errors import PsRlError, SettingsError
from ps_common.program.flags import parse_with_run
from ps_server.settings import ServerSettings
from rl_cluster.on_ray.cli import RaySettings, RunActors, plan_of
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


class Cluster:
    """A Ray cluster in whose place the test is: the names of the run's actors, and the state of its server."""

    exceptions = SimpleNamespace(RayError=RuntimeError)

    def __init__(self, folder: Path, names: Sequence[str], state: Mapping[str, Any]) -> None:
        self.names, self.state = list(names), state
        named = [{"name": name, "namespace": f"ps-rl:{folder}"} for name in names]
        self.util = SimpleNamespace(list_named_actors=lambda **_: [one for one in named if one["name"] in self.names])

    def get_actor(self, name: str, namespace: str) -> Any:
        if name not in self.names:
            raise ValueError(namespace)
        return Mock(actor=name)

    def get(self, _: object, timeout: float) -> Mapping[str, Any]:
        assert timeout > 0
        return self.state

    def kill(self, actor: Any, *, no_restart: bool) -> None:
        assert no_restart
        self.names.remove(actor.actor)


NOT_ASKED = Mock(is_set=lambda: False)


@pytest.mark.parametrize(("state", "goes_on"), [({"over": True}, False), ({"over": False, "status": b"{}"}, True)])
def test_a_run_that_is_over_when_it_is_resumed_is_not_waited_for_and_gets_no_workers(
    tmp_path: Path, state: dict[str, Any], goes_on: bool
) -> None:
    actors = RunActors(Cluster(tmp_path, ["server"], {"failure": ""} | state), tmp_path)
    assert actors.wait_until_served(NOT_ASKED) is goes_on


def test_workers_whose_server_is_gone_are_ended(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, ["worker-0", "worker-1"], {})
    actors = RunActors(cluster, tmp_path)
    actors.stop(NOT_ASKED)
    assert cluster.names == []
    with pytest.raises(PsRlError, match="no run of this folder"):
        actors.stop(NOT_ASKED)
