"""`ps-server` before it serves: mistakes about folders end in one sentence, and leave no thread behind."""

import os
import resource
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from ps_common.errors import CheckpointError, PsRlError, SettingsError
from ps_common.program.number_flags import LEAST_MIB, LEAST_SECONDS, MOST_MIB, MOST_SECONDS, MOST_THREADS
from ps_common.run_folder.folder_lock import FolderLocks
from ps_common.run_folder.paths import LINEAGE, LOCK, METRICS
from ps_common.sockets.zmq_sockets import take_every_descriptor_allowed
from ps_server import cli, serving
from tests.ps_server.stops import NoSignal, StopAtOnce

Serve = Callable[..., None]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Starts ps-server, which must stop before it serves."""
    before = set(threading.enumerate())
    monkeypatch.setattr(serving, "StopSignal", NoSignal)  # it would take over the signals of this process

    def start(*flags: str | Path) -> None:
        what = [] if "--standby-of" in flags else ["--environment", "CartPole-v1"]
        cli.serve([*what, "--host", "127.0.0.1", "--port", "0", *map(str, flags)])

    yield start
    assert set(threading.enumerate()) == before


@pytest.mark.parametrize("flags", ["--run-dir {0}/old", "--checkpoint-dir {0}/old/checkpoints --run-dir {0}/new"])
def test_a_new_run_does_not_go_where_another_has_left_checkpoints(serve: Serve, tmp_path: Path, flags: str) -> None:
    """A new run has fewer steps: its checkpoints would be removed first, and a resume would take the old run."""
    folder = tmp_path / "old" / "checkpoints"
    folder.mkdir(parents=True)
    (folder / "checkpoint-000000001000.safetensors").touch()
    with pytest.raises(SettingsError, match=f"{folder}: holds the checkpoints of a run.*--resume"):
        serve(*flags.format(tmp_path).split())


def test_a_run_folder_that_takes_no_records_is_named_and_every_thread_ends(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / METRICS).mkdir()
    with pytest.raises(SettingsError, match=f"{tmp_path}: the run's records cannot be kept there"):
        serve("--run-dir", tmp_path)


def test_a_standby_receives_its_run_from_the_primary(serve: Serve, tmp_path: Path) -> None:
    with pytest.raises(
        SettingsError, match=r"--standby-of: the settings of the run come from 127\.0\.0\.1:5; leave out --environment"
    ):
        serve("--standby-of", "127.0.0.1:5", "--run-dir", tmp_path, "--environment", "CartPole-v1")


REFUSED = [
    "--resume {0}/empty",
    "--resume {0}/empty --shard 1/2 --shards a:1 b:1",
    "--run-dir {0}/empty --host 203.0.113.1",
    "--run-dir {0}/new/inside --checkpoint-dir {0}/elsewhere/inside --host 203.0.113.1",
    "--host 203.0.113.1 --experiment named",
    "--standby-of 127.0.0.1:9 --host 203.0.113.1",
    "--run-dir {0}/other --checkpoint-dir {0}/old",
    "--run-dir {0}/other --start-from {0}/old",
]


@pytest.mark.parametrize("flags", REFUSED)
def test_a_command_that_is_refused_changes_no_file(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "checkpoint-000000001000.safetensors").touch()
    (tmp_path / "old" / "settings.toml").write_text("kept")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(PsRlError):
        serve(*flags.format(tmp_path).split())
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ([], "it is not the folder of a run: no server has served there"),
        ([LINEAGE], r"it has no checkpoints: its server never had weights, or keeps them in another place \(--checkp"),
        (["checkpoints/checkpoint-000000000007.safetensors"], "each of its 1 checkpoints is damaged"),
        (
            ["checkpoints/checkpoint-000000000007.safetensors.aside"],
            "its checkpoints were damaged, and are moved aside",
        ),
        (["checkpoints/best.safetensors"], "it has no checkpoints that can be resumed, only best.safetensors"),
    ],
)
def test_a_run_without_checkpoints_is_not_resumed_and_the_cause_is_named(
    serve: Serve, tmp_path: Path, files: list[str], why: str
) -> None:
    (tmp_path / "checkpoints").mkdir()
    for name in files:
        (tmp_path / name).touch()
    with pytest.raises(CheckpointError, match=f"^{tmp_path}/checkpoints: {why}"):
        serve("--resume", tmp_path)


def test_a_server_may_have_as_many_connections_as_the_system_allows() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1] - 1, before[1]))
    try:
        take_every_descriptor_allowed()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


WAYS = [
    "--run-dir {0}/run",
    "--resume {0}/run",
    "--resume {0}/run/checkpoints",
    "--run-dir {0}/other --checkpoint-dir {0}/run/checkpoints",
    "--run-dir {0}/other --checkpoint-dir {0}/run",
    "--run-dir {0}/run --checkpoint-dir {0}/other",
    "--standby-of 127.0.0.1:9 --run-dir {0}/run",
]


@pytest.mark.parametrize("flags", WAYS)
def test_a_folder_that_another_server_uses_is_refused_by_whatever_flag(
    serve: Serve, tmp_path: Path, flags: str
) -> None:
    """Of two runs in one folder, the checkpoints of the one with fewer steps would be removed at once."""
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    locks = FolderLocks([tmp_path / "run", tmp_path / "run" / "checkpoints"])
    with pytest.raises(SettingsError, match=f"{tmp_path}/run.*another ps-server keeps a run there .pid {os.getpid()} "):
        serve(*flags.format(tmp_path).split())
    locks.close()


def test_the_loser_of_a_race_for_a_folder_leaves_the_files_of_the_winner(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The winner locks the folder after the loser has seen that nothing is there."""
    won: list[FolderLocks] = []

    def wins(folder: Path, _: object) -> None:
        won.append(FolderLocks([folder]))
        (folder / LINEAGE).write_text("of the winner")

    monkeypatch.setattr(serving, "check_no_others", wins)
    with pytest.raises(SettingsError, match="another ps-server keeps a run there"):
        serve("--run-dir", tmp_path / "run")
    assert (tmp_path / "run" / LINEAGE).read_text() == "of the winner"
    assert (tmp_path / "run" / LOCK).exists()
    won[0].close()


EXTREMES = {
    "--checkpoint-seconds": (LEAST_SECONDS, MOST_SECONDS),
    "--lease-seconds": (LEAST_SECONDS, MOST_SECONDS),
    "--takeover-seconds": (LEAST_SECONDS, MOST_SECONDS),
    "--receive-mib": (LEAST_MIB, MOST_MIB),
    "--threads": (1, MOST_THREADS),
    "--port": (0, 0),
}


@pytest.mark.parametrize("flag", EXTREMES)
def test_a_server_serves_with_the_least_and_with_the_most_of_each_number(
    flag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "StopSignal", StopAtOnce)
    threads = torch.get_num_threads()
    try:
        for number, value in enumerate(EXTREMES[flag]):
            flags = ["--host", "127.0.0.1", "--port", "0", "--run-dir", str(tmp_path / str(number))]
            assert cli.serve([*flags, flag, str(value)]) == 0
    finally:
        torch.set_num_threads(threads)
