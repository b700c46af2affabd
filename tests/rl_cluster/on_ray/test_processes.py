"""Programs that an actor keeps running on its node, without Ray: real servers and workers where it matters."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ps_common.errors import SettingsError
from ps_common.program.supervision import SupervisedProcess
from ps_common.run_folder.endpoint_file import read_endpoint
from ps_common.settings.run_files import load_preset
from rl_cluster.on_ray.processes import RunPlan, ServerProcess, worker_process
from tests.integration.processes import wait_for


@pytest.fixture
def plan(tmp_path: Path) -> RunPlan:
    preset = load_preset("cartpole-a3c")
    flags = ("--max-steps", "1000000000", "--until-return", "None")
    folder = str(tmp_path / "run")
    return RunPlan(folder=folder, settings=preset.to_toml(), flags=flags, checkpoint_seconds=0.5, has_keys=True)


@pytest.fixture
def ended() -> Iterator[list[SupervisedProcess]]:
    processes: list[SupervisedProcess] = []
    yield processes
    for process in processes:
        process.child.end(within_seconds=10.0)


def test_a_server_and_a_worker_with_keys_train_and_the_server_is_replaced(
    plan: RunPlan, ended: list[SupervisedProcess]
) -> None:
    server = ServerProcess(plan, host="127.0.0.1", has_run=False)
    ended.append(server.process)
    endpoint = server.folder / "endpoint"
    worker = worker_process(3, server.folder, server.worker_flags)
    ended.append(worker)

    def updates() -> int:
        server.process.look()
        worker.look()
        status = server.status()
        return 0 if status is None or not status.checkpoint_version else status.updates

    assert "--curve-secret" in server.worker_flags
    before, address = wait_for(updates), read_endpoint(endpoint)
    os.kill(server.process.child.pid, signal.SIGKILL)
    wait_for(lambda: updates() and read_endpoint(endpoint) != address)
    wait_for(lambda: updates() > before)
    server.stop_run("the test is over")
    wait_for(lambda: server.process.child.is_over)
    assert server.process.look() is None


def test_keys_that_cannot_be_made_are_one_sentence_with_its_reason(plan: RunPlan, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "keys").symlink_to(tmp_path / "nowhere" / "keys")
    with pytest.raises(SettingsError, match=r"(?s)--run-dir .*run: keys cannot be made: .*keys"):
        ServerProcess(plan, host="127.0.0.1", has_run=False)
