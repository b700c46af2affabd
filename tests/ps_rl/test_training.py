"""The command line of rl-cluster that `train` makes of its arguments; no process is started."""

import atexit
import gc
import os
import socket
import threading
import time
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ps_common.errors import SettingsError
from ps_common.program import objects
from ps_common.program.flags import parse_with_run
from ps_common.run_folder.folder_lock import FolderLocks
from ps_common.settings.run_spec import A3CSettings
from ps_rl import Run, cluster_process, train
from ps_rl.cluster_process import ClusterProcess
from ps_web.index import RunIndex
from ps_web.viewers import Viewers
from rl_cluster.settings import ClusterSettings
from tests.rows import row


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Sequence[str]]:
    """The flags of each run that would start."""
    flags: list[Sequence[str]] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(objects, "_given", {})
    monkeypatch.setattr(Run, "started", lambda run, given, *_: flags.append(given) or run)
    return flags


CARTPOLE: dict[str, Any] = {"environment": "CartPole-v1"}
SEVERAL = {"imports": "my_env", "hook": "my_env:Hook"}


@pytest.mark.parametrize(
    ("given", "same"),
    [
        ({"run_dir": None, "resume": None, "config": None, "preset": None, "device": None}, {}),
        ({"workers": np.int64(3), "port": np.int32(0)}, {"workers": 3, "port": 0}),
        ({"run_dir": "with space/run"}, {"run_dir": Path("with space/run")}),
        ({"max_minutes": np.float32(0.5), "hidden": np.array([8])}, {"max_minutes": 0.5, "hidden": [8]}),
        (SEVERAL, {name: [one] for name, one in SEVERAL.items()}),
        (SEVERAL, {name: (one,) for name, one in SEVERAL.items()}),
    ],
    ids=lambda one: str(one)[:50],
)
def test_equal_arguments_give_equal_runs(
    given: dict[str, Any], same: dict[str, Any], started: list[Sequence[str]]
) -> None:
    train(**CARTPOLE | given)
    train(**CARTPOLE | same)
    one, other = (parse_with_run(ClusterSettings, flags, prog="rl-cluster") for flags in started)
    assert one.overrides == other.overrides
    place = {"run_dir": None}
    assert vars(one.program) | place == vars(other.program) | place


def test_a_value_of_another_kind_is_refused_by_the_name_of_its_keyword(started: list[Sequence[str]]) -> None:
    for name, value in {"gang": 1, "device": "gpu", "threads": "x", "port": 70000, "track": 3}.items():
        with row(name), pytest.raises(SettingsError, match=f"^train: {name}={value!r}: "):
            train(**CARTPOLE | {name: value})
    with pytest.raises(SettingsError, match=r"^train: device='gpu': "):
        train(**CARTPOLE | {"device": "gpu", "workers": 0})
    assert not started


def test_a_run_whose_server_was_killed_is_over(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as place:
        endpoint = f"127.0.0.1:{place.getsockname()[1]}"
    for name, content in (("endpoint", endpoint), ("metrics.jsonl", ""), ("settings.toml", "")):
        (tmp_path / name).write_text(content)
    run, server = Run.open(tmp_path), FolderLocks([tmp_path])
    for time_of_files in (0, time.time(), time.time() + 1e6):
        for name in ("endpoint", "metrics.jsonl"):
            os.utime(tmp_path / name, (time_of_files, time_of_files))
        assert run.is_live, "whatever the clocks of this host and of the files say"
    server.close()
    assert not run.is_live
    assert list(run) == []
    assert RunIndex([tmp_path], [], Viewers()).lines()[0].live is False


class Began:
    """A process of rl-cluster that has begun, and goes on until it is ended."""

    def __init__(self, *_: Any) -> None:
        self.exit_status: int | None = None
        self.has_died = False
        self.ended = threading.Event()

    def wait(self, *, within_seconds: float) -> bool:
        return self.ended.wait(within_seconds)

    def end(self, *, within_seconds: float) -> None:
        self.exit_status = 0
        self.ended.set()


def test_ctrl_c_while_a_run_starts_leaves_no_process_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it comes before the process has begun, which then nobody else could end."""
    began = Began()
    may_begin = threading.Event()

    def begin(*_: Any) -> Began:
        assert may_begin.wait(20)
        return began

    class Interrupted(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            raise KeyboardInterrupt

    monkeypatch.setattr(cluster_process, "Child", begin)
    monkeypatch.setattr(cluster_process.threading, "Event", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        ClusterProcess([], tmp_path, b"")
    assert not began.ended.is_set()
    may_begin.set()
    assert began.ended.wait(20)


def test_a_run_that_is_over_can_be_collected_and_is_not_stopped_at_the_exit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_process, "Child", Began)
    monkeypatch.setattr(ClusterProcess, "wait_for_server", lambda _: None)
    exits: list[Any] = []
    monkeypatch.setattr(atexit, "register", exits.append)
    monkeypatch.setattr(atexit, "unregister", lambda call: exits.remove(call) if call in exits else None)
    for end in (lambda run: run.wait(20), list, Run.stop, lambda run: None):
        run = Run(tmp_path).started([])
        assert len(exits) == 1
        child: Any = run._child
        if end is not Run.stop:
            child.end(within_seconds=0)
        end(run)
        deadline = time.monotonic() + 20
        while exits or any(thread.name == "run" for thread in threading.enumerate()):
            assert time.monotonic() < deadline
        collected = weakref.ref(run)
        del run, child
        gc.collect()
        assert collected() is None


class Warm(A3CSettings, frozen=True, kw_only=True):
    temperature: float = 2.0


def test_objects_stand_in_the_flags_by_name_and_their_keywords_are_settings(started: list[Sequence[str]]) -> None:
    class Rooms: ...

    class Method:
        settings = Warm

    train(
        environment=Rooms,
        environment_kwargs={"size": np.int64(5)},
        wrappers=[lambda inner: inner, "my_env:wrap"],
        network=Rooms,
        network_kwargs={"width": 3},
        algorithm=Method,
        temperature=3.0,
        hooks=[Rooms],
    )
    (flags,) = started
    for flag, *values in [
        ("--environment", "__main__:Rooms"),
        ("--environment-kwargs", '{"size": 5}'),
        ("--wrapper", "__main__:lambda", "my_env:wrap"),
        ("--network", "__main__:Rooms"),
        ("--network-kwargs", '{"width": 3}'),
        ("--algorithm", "__main__:Method"),
        ("--temperature", "3.0"),
        ("--hook", "__main__:Rooms"),
    ]:
        with row(flag):
            place = flags.index(flag) + 1
            assert flags[place : place + len(values)] == values
