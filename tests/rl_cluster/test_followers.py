"""Followers of a run: those that die are started again, or given up in the end; all leave at the same time."""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from ps_common.program import supervision
from ps_common.program.child_processes import Child
from rl_cluster import followers as followers_module
from rl_cluster.followers import Follower, Followers, followers_of
from tests.ps_client.loopback_server import wait_until

ROOT = Path(__file__).parents[2]
PROGRAMS = {
    "follows": """
import threading
from ps_common.program.reasons import answer_to_parent, report_reason
from ps_common.program.stop_signals import StopSignal
answer_to_parent()
stop = StopSignal()
print("ready", flush=True)
while not stop.is_set():
    threading.Event().wait(0.01)
report_reason("left", "7 rows sent")
""",
    "fails": """
from ps_common.errors import SettingsError
from ps_common.program.reasons import answer_to_parent
from ps_common.program.run_program import run_program
def main():
    raise SettingsError("--track: no such place")
answer_to_parent()
run_program(main, "it")
""",
    "stays": """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
while True:
    signal.pause()
""",
}


@pytest.fixture(autouse=True)
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, source in PROGRAMS.items():
        (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}:{ROOT / 'common'}")
    monkeypatch.setattr(supervision, "BACKOFF_SECONDS", 0.0)


Start = Callable[..., Followers]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts programs as followers; they end with the test."""
    started: list[Followers] = []

    def start(*names: str, report: Callable[[str], None] = print) -> Followers:
        all_of_them = [
            Follower(name, partial(Child, name, [], tmp_path / f"{name}.log"), ". Do it by hand") for name in names
        ]
        started.append(Followers(tmp_path, all_of_them, report=report))
        return started[-1]

    yield start
    for followers in started:
        followers.end()


def child_of(followers: Followers) -> Child:
    return followers._all[0].child


def looked(followers: Followers, *, until: Callable[[list[str]], bool]) -> list[str]:
    lines: list[str] = []
    deadline = time.monotonic() + 60
    while not until(lines):
        assert time.monotonic() < deadline, lines
        lines += followers.look()
        threading.Event().wait(0.01)
    return lines


@pytest.mark.parametrize(
    ("number", "why"),
    [(signal.SIGKILL, "killed by SIGKILL"), (signal.SIGTERM, "a signal from elsewhere asked it to leave")],
)
def test_a_follower_that_is_killed_is_started_again_and_mentioned(
    start: Start, tmp_path: Path, number: int, why: str
) -> None:
    followers, log = start("follows"), tmp_path / "follows.log"
    wait_until(lambda: log.read_text() == "ready\n", "it follows")
    assert followers.look() == []
    first = child_of(followers).pid
    os.kill(first, number)
    lines = looked(followers, until=bool)
    assert lines == [f"follows died: {why} (its log: {log}); it is started again"]
    wait_until(lambda: log.read_text() == "ready\nready\n", "another one follows")
    assert child_of(followers).pid != first


def test_a_follower_that_keeps_dying_is_given_up_and_ends_no_run(start: Start, tmp_path: Path) -> None:
    lines = looked(start("fails"), until=lambda lines: len(lines) == 3)
    why = f"--track: no such place (its log: {tmp_path / 'fails.log'})"
    assert lines[:2] == [f"fails died: {why}; it is started again"] * 2
    assert lines[2] == (
        f"fails died 3 times in a row, each within 60 s of work: {why}; it is not started again. Do it by hand"
    )


def test_all_leave_at_the_same_time_and_say_what_they_did(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followers_module, "LEAVE_SECONDS", 2.0)
    lines: list[str] = []
    followers = start("stays", "follows", report=lines.append)
    logs = [tmp_path / "stays.log", tmp_path / "follows.log"]
    wait_until(lambda: all(log.read_text() == "ready\n" for log in logs), "both follow")
    followers.end()
    late = f"stays: was not done within 2 s (its log: {logs[0]}). Do it by hand"
    assert lines == [late, "follows: 7 rows sent"]


@pytest.mark.parametrize("is_given", [False, True])
def test_a_page_that_is_killed_is_shown_again_at_its_address(tmp_path: Path, is_given: bool) -> None:
    """With the same token, also where its port is one that the user has given."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1] if is_given else 0
    with followers_of(tmp_path, track=[], web_port=port, report=print) as followers:
        address = tmp_path / "page"
        wait_until(address.exists, "the page is served")
        before = address.read_text()
        child_of(followers).kill()
        assert looked(followers, until=bool)[0].startswith("page died: killed by SIGKILL")
        wait_until(lambda: _is_served(before), "the page is served again")
        assert address.read_text() == before


def _is_served(address: str) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", urlsplit(address).port or 0)) == 0
