"""How long a worker asks again whose name another process has."""

import pytest

from ps_client.machine.handshake import NAME_TAKEN_SECONDS, Handshake


def refusals(*times: float) -> list[bool]:
    """Whether the worker gives up at each of these refusals."""
    handshake = Handshake(addresses=1, now=0.0)
    return [handshake.refused("name_taken", "another process has it", now=now) == "give up" for now in times]


@pytest.mark.parametrize("every", [0.1, 2.0, 17.0])
def test_a_name_that_stays_taken_ends_the_worker_after_a_minute(every: float) -> None:
    ends = refusals(*(number * every for number in range(round(2 * NAME_TAKEN_SECONDS / every))))
    assert ends.index(True) * every == pytest.approx(NAME_TAKEN_SECONDS, abs=2 * every)
