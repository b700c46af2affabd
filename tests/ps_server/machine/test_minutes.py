"""The minutes of a run: they begin with its first weights, and stand still while nobody trains."""

import pytest

from ps_server.machine.membership import ALONE_SECONDS
from tests.ps_server.machine.test_adjusting import adjust
from tests.ps_server.standby_transcripts import TAKEOVER_SECONDS, WithStandby
from tests.ps_server.transcripts import LEASE_SECONDS, Transcript, a_run, notes

WAITS = "no worker is alive: the run waits for one, and its minutes stand still"


def minutes(server: Transcript) -> float:
    return server.machine.status(now=server.now).minutes


def live(server: Transcript, seconds: float, worker: str = "a") -> None:
    """The worker sends a heartbeat each second; the server ticks before and after."""
    for _ in range(round(seconds)):
        server.heartbeat(worker)
        server.after(1.0)


def test_minutes_begin_with_the_first_weights() -> None:
    server = Transcript(a_run(budget={"max_minutes": 1.0}))
    server.after(600.0)
    server.hello("a")
    live(server, 600.0)
    assert (minutes(server), server.machine.status(now=server.now).ending) == (0.0, "")
    server.seed("a")
    live(server, 30.0)
    assert (minutes(server), server.machine.status(now=server.now).ending) == (0.5, "")
    live(server, 30.0)
    assert server.machine.status(now=server.now).ending == "max_minutes 1 reached"


def test_minutes_stand_still_while_no_worker_is_alive(server: Transcript) -> None:
    server.goodbye("b")
    live(server, 60.0)
    server.goodbye("a")
    server.after(600.0)
    assert minutes(server) == 1.0, "all have left"
    server.hello("b")
    live(server, 60.0, "b")
    assert minutes(server) == 2.0
    server.after(LEASE_SECONDS + 1.0)
    lost = minutes(server)
    server.after(600.0)
    assert minutes(server) == lost == pytest.approx(2.0 + (LEASE_SECONDS + 1.0) / 60), "all are lost"


def test_minutes_stand_still_while_the_run_is_paused(server: Transcript) -> None:
    live(server, 60.0)
    adjust(server, paused=True)
    live(server, 600.0)
    assert minutes(server) == 1.0
    adjust(server, paused=False)
    live(server, 60.0)
    assert minutes(server) == 2.0


def test_a_standby_takes_over_with_the_minutes_of_the_primary_and_waits_for_a_worker() -> None:
    server = WithStandby.following()
    for _ in range(90):
        server.heartbeat("a")
        server.pass_time(1.0)
    trained = minutes(server)
    assert trained > 1.4
    server.silence(600.0 + TAKEOVER_SECONDS)
    assert server.standby.status(now=server.now).minutes == pytest.approx(trained, abs=1 / 60)
    server.ask_standby(server.witness("a"))
    assert server.standby.server is not None
    assert server.standby.status(now=server.now).minutes == pytest.approx(trained, abs=1 / 60)
    server.standby.tick(now=server.now + LEASE_SECONDS)
    assert server.standby.status(now=server.now + LEASE_SECONDS).minutes > trained + (LEASE_SECONDS - 1) / 60


@pytest.mark.parametrize("server", [Transcript(), Transcript(a_run())], ids=["undecided", "decided"])
def test_a_server_says_once_that_it_waits_for_a_worker_and_again_when_all_are_gone(server: Transcript) -> None:
    assert WAITS not in notes(server.after(ALONE_SECONDS))
    assert WAITS in notes(server.after(1.0))
    assert WAITS not in notes(server.after(600.0))
    server.hello("a")
    server.seed("a")
    live(server, 2 * ALONE_SECONDS)
    server.goodbye("a")
    assert WAITS not in notes(server.after(ALONE_SECONDS))
    assert WAITS in notes(server.after(1.0))
