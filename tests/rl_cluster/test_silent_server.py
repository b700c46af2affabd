"""A server that does not reply though its process runs: when that is said, and when it is started again."""

from collections.abc import Callable
from typing import Any

import pytest

from ps_common.program.supervision import SupervisedProcess
from rl_cluster import silent_server
from rl_cluster.silent_server import NOTED_SECONDS, SilentServer
from tests.rl_cluster.test_supervision import ScriptedChild, started_in_turn

STALL, START = 60.0, 300.0


class SilentChild(ScriptedChild):
    pid, log = 7, "server.log"  # type: ignore[assignment]
    is_paused = False

    def __init__(self, *, can_be_killed: bool = True) -> None:
        super().__init__(age_seconds=0.0)
        self._can_be_killed = can_be_killed

    def end(self, *, within_seconds: float) -> None:
        self.exit_status = -9 if self._can_be_killed else None


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the clock."""
    now = [0.0]
    monkeypatch.setattr(silent_server.time, "monotonic", lambda: now[0])
    return lambda seconds: now.__setitem__(0, seconds)


def a_server(*children: ScriptedChild) -> SilentServer:
    process = SupervisedProcess("the server", started_in_turn(*children), counts_work=True)
    return SilentServer(process, stall_seconds=STALL, start_seconds=START)


def looks(silence: SilentServer, at: Callable[[float], None], *times: float) -> list[tuple[str, str]]:
    found = []
    for seconds in times:
        at(seconds)
        found.append(silence.look())
    return found


def test_a_silence_is_said_once_and_ends_with_another_process(at: Callable[[float], None]) -> None:
    silence = a_server(SilentChild(), SilentChild())
    silence.has_replied()
    short, noted, again, ended = looks(silence, at, 1.0, NOTED_SECONDS + 1, NOTED_SECONDS + 2, STALL + 1)
    assert short == again == ("", "")
    assert noted[0].startswith("the server has not replied for 11 s, though its process 7 runs; after 60 s")
    assert ended[1].startswith("the server died: it hangs: no reply for 61 s, though its process runs")
    assert looks(silence, at, STALL + 20) == [("", "")], "the next one is coming up, and may take its time"


def test_what_replies_now_and_then_is_never_ended(at: Callable[[float], None]) -> None:
    silence = a_server(SilentChild())
    for minute in range(60):
        at(minute * 50.0)
        silence.has_replied()
        assert looks(silence, at, minute * 50.0 + 5.0) == [("", "")]


def test_a_process_that_somebody_has_stopped_is_named_and_left_alone(at: Callable[[float], None]) -> None:
    child: Any = SilentChild()
    child.is_paused = True
    silence = a_server(child)
    silence.has_replied()
    (note, death), later = looks(silence, at, 30.0, 10_000.0)
    assert "kill -CONT 7 lets it go on" in note
    assert death == ""
    assert later == ("", "")
    assert child.exit_status is None


def test_a_process_that_cannot_be_killed_is_not_given_a_second_beside_it(at: Callable[[float], None]) -> None:
    silence = a_server(SilentChild(can_be_killed=False))
    silence.has_replied()
    assert [death for _, death in looks(silence, at, STALL + 1, STALL + 5)] == ["", ""]
