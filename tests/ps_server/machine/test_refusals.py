"""Who is refused gets a reply, again and again, and no other peer notices."""

import math

import pytest

from ps_server.machine.allowances import LIMITS
from tests.ps_server.transcripts import Transcript, sends

TOO_SHORT = [1, 1]


@pytest.mark.parametrize("gradient", [TOO_SHORT, [math.nan, 0, 0], [math.inf, 0, 0], [3e38, 0, 0]], ids=str)
def test_bad_gradients_without_end_cost_their_worker_nothing_but_themselves(
    server: Transcript, gradient: list[float]
) -> None:
    for sequence in range(1, 101):
        assert server.push("a", sequence, gradient).verdict == "discarded"
    assert server.push("b", 1).verdict == "applied"
    assert server.push("a", 101).verdict == "applied"
    workers = {one.worker_id: sum(one.refused.values()) for one in server.machine.status(now=server.now).workers}
    assert workers == {"a": 100, "b": 0}


def test_who_sends_nonsense_gets_a_few_replies_and_all_of_it_is_counted(server: Transcript) -> None:
    at_once, per_second = LIMITS["nonsense"]
    answers = [sends(server.machine.unreadable(b"junk", "no", now=server.now)) for _ in range(2 * at_once)]
    assert [len(answer) for answer in answers] == [1] * at_once + [0] * at_once
    assert server.machine.refusals.counts == {"bad_message": 2 * at_once}
    assert len(sends(server.machine.unreadable(b"another", "no", now=server.now))) == 1
    server.now += 1 / per_second
    assert len(sends(server.machine.unreadable(b"junk", "no", now=server.now))) == 1
    assert server.push("a", 1).verdict == "applied"
