"""A standby that cannot keep up: its lag is measured, it delays no worker for long, and it may try again later."""

from typing import Any

import pytest

from ps_common.protocol import messages
from ps_common.protocol.status import StandbyStatus
from ps_server.replication import replication
from ps_server.replication.replication import (
    LATE_SECONDS,
    LEASE_SECONDS,
    PAUSE_SECONDS,
)
from ps_server.replication.standby_copy import OVERHEAD_BYTES
from tests.ps_server.replication.test_replication import Primary, followed_server
from tests.ps_server.standby_transcripts import STANDBY
from tests.ps_server.transcripts import notes

TOO_LONG = LATE_SECONDS + 0.5


def standby_of(server: Primary) -> StandbyStatus:
    status = server.machine.status(now=server.now).standby
    assert status is not None
    return status


def pass_time(server: Primary, seconds: float) -> list[Any]:
    """In which the standby says that it lives and has nothing more; the server's notes."""
    logged = []
    for _ in range(round(seconds / 0.25)):
        server.after(0.25)
        logged += notes(server.effects)
        server.followed(0)
    return logged


def save_anew(server: Primary) -> None:
    """Complete a checkpoint with everything that has been pushed."""
    if server.machine.checkpoints.is_writing:
        server.machine.checkpoint_saved("an older one")
    server.save_and_complete()


def presses(server: Primary, worker: str = "a") -> list[str]:
    """The worker's resend buffer fills up; the server's notes."""
    server.heartbeat(worker, save_soon=True)
    return notes(server.effects)


def lagging_server(sequence: int = 1) -> Primary:
    """A checkpoint has a push that the standby lacks, for too long."""
    server = followed_server()
    server.push("a", sequence)
    server.save_and_complete()
    pass_time(server, TOO_LONG)
    return server


def dropped_server() -> Primary:
    server = lagging_server()
    presses(server)
    assert standby_of(server).phase == "dropped"
    return server


# -- the lag ----------------------------------------------------------------------------------------------------------


# -- in sync ----------------------------------------------------------------------------------------------------------


def test_a_standby_that_has_the_state_and_lags_holds_nothing_back_until_it_has_caught_up() -> None:
    server = Primary.seeded()
    assert isinstance(server, Primary)
    (state,) = server.follow()
    server.push("a", 1)
    pass_time(server, TOO_LONG)
    server.followed(state.number)
    assert standby_of(server).phase == "catching up"
    save_anew(server)
    assert server.durable() == 1
    assert presses(server) == [], "no worker waits for it"
    server.push("a", 2)
    save_anew(server)
    server.followed(state.number + 1)
    server.push("a", 3)
    save_anew(server)
    assert server.durable() == 2
    assert standby_of(server).phase == "catching up", "it does not know that it may take over"
    (leading,) = server.followed(state.number + 1, request=7)
    assert leading.durable_through == state.number + 2
    server.followed(state.number + 2)
    assert standby_of(server).phase == "catching up", "the reply may be lost"
    server.followed(state.number + 1, through=state.number + 2)
    assert standby_of(server).phase == "catching up", "it lacks what may be durable without it"
    assert notes(server.effects) == []
    server.followed(state.number + 2, through=state.number + 2)
    assert standby_of(server).phase == "in sync"
    assert notes(server.effects) == [f"{STANDBY} follows as the standby"]
    server.followed(state.number + 3)
    assert server.durable() == 3


# -- who is dropped ---------------------------------------------------------------------------------------------------


def test_a_standby_that_would_delay_a_worker_is_dropped_refused_counted_and_logged() -> None:
    server = lagging_server()
    (note,) = presses(server)
    assert f"the standby {STANDBY} cannot keep up and is dropped: 1 updates" in note
    assert "the resend buffer of a fills up" in note
    (refused,) = server.sent(server.effects)
    assert refused.code == "fell_behind"
    assert (standby_of(server).phase, standby_of(server).drops) == ("dropped", 1)


@pytest.mark.parametrize("is_in_sync", [True, False])
def test_a_backlog_that_takes_too_much_memory_drops_the_standby(
    is_in_sync: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replication, "BACKLOG_BYTES", 8 * 1024)
    server = followed_server()
    if not is_in_sync:
        server.follow(request=2)
    logged = []
    for sequence in range(1, 9):
        server.push("a", sequence)
        logged += notes(server.effects)
    assert any("too much memory" in note for note in logged)
    assert standby_of(server).phase == "dropped"


def test_a_state_of_any_size_is_not_held_against_the_standby(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replication, "BACKLOG_BYTES", 4 * OVERHEAD_BYTES)
    state = messages.State(request=1, number=1, record_bytes=0, vectors=())
    monkeypatch.setattr(replication, "state_of", lambda *_, **__: (state, [bytes(10**6)]))
    server = Primary.seeded()
    assert isinstance(server, Primary)
    server.follow()
    for sequence in range(1, 4):
        server.push("a", sequence)
    assert standby_of(server).phase == "state transfer"


# -- what was durable_through
# ------------------------------------------------------------------------------------------------


def test_pushes_wait_for_a_dropped_standby_to_be_durable_until_its_lease_ends() -> None:
    server = dropped_server()
    assert server.durable() == 0, "it may take over with what it has until it knows"
    assert [message.code for message in server.followed(1)] == ["fell_behind"]
    server.after(LEASE_SECONDS + 0.25)
    assert server.durable() == 1


# -- again ------------------------------------------------------------------------------------------------------------


def state_after_pause(server: Primary, request: int) -> None:
    """Not sooner."""
    assert [message.code for message in server.follow(request=request)] == ["fell_behind"]
    server.after(PAUSE_SECONDS - 0.5)
    assert [message.code for message in server.follow(request=request)] == ["fell_behind"]
    server.after(0.75)
    (state,) = server.follow(request=request)
    assert isinstance(state, messages.State)
    server.followed(state.number, through=state.number, follow=request)
    assert standby_of(server).phase == "in sync"


def drop_again(server: Primary, request: int, sequence: int) -> None:
    server.push("a", sequence)
    save_anew(server)
    for _ in range(16):
        server.after(0.25)
        server.followed(0, follow=request)
    presses(server)
    assert standby_of(server).phase == "dropped"


def test_a_dropped_standby_is_sent_the_run_again_after_each_pause() -> None:
    server = dropped_server()
    for request in range(2, 5):
        state_after_pause(server, request)
        drop_again(server, request, sequence=request)
    assert standby_of(server).drops == 4
