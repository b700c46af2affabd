"""A peer with many offences is in quarantine for a while, and no other peer notices."""

import math

import pytest

from ps_common.protocol import messages
from ps_server.machine.refusals import (
    FIRST_SECONDS,
    LONGEST_SECONDS,
    MOST_RECORDS,
    OFFENCES,
    STRIKES,
    Quarantine,
)
from tests.ps_server.transcripts import Transcript, encoded, notes, sends

TOO_SHORT = [1, 1]


def offended(times: int, *, now: float = 0.0) -> Quarantine:
    quarantine = Quarantine()
    for _ in range(times):
        quarantine.offence("x", now=now)
    return quarantine


def test_many_are_not_and_nobody_else_pays() -> None:
    quarantine = offended(STRIKES)
    assert quarantine.seconds_left("x", now=0.0) == FIRST_SECONDS
    assert quarantine.seconds_left("y", now=0.0) == 0
    assert quarantine.seconds_left("x", now=FIRST_SECONDS) == 0


def test_it_takes_longer_each_time_up_to_a_limit() -> None:
    quarantine, now, pauses = Quarantine(), 0.0, []
    while len(pauses) < 12:
        quarantine.offence("x", now=now)
        if (left := quarantine.seconds_left("x", now=now)) > 0:
            pauses.append(left)
            now += left
    assert pauses[:4] == [1, 2, 4, 8]
    assert pauses[-1] == LONGEST_SECONDS


def test_strangers_in_great_numbers_cost_little_memory() -> None:
    quarantine = Quarantine()
    for number in range(MOST_RECORDS + 50):
        quarantine.offence(number, now=0.0)
    assert len(quarantine._records) == MOST_RECORDS


def test_those_whose_next_offence_would_be_a_first_one_are_forgotten() -> None:
    quarantine = offended(STRIKES)
    for number in range(10):
        quarantine.offence(number, now=1.0)
    quarantine.offence("later", now=LONGEST_SECONDS)
    assert len(quarantine._records) == 12
    quarantine.offence("later", now=LONGEST_SECONDS + 1.5)
    assert list(quarantine._records) == ["later"]


@pytest.mark.parametrize("gradient", [[math.nan, 0, 0], [math.inf, 0, 0], [3e38, 0, 0]])
def test_numbers_that_cannot_be_applied_are_no_offence(server: Transcript, gradient: list[float]) -> None:
    """A bad number of an environment, or a step size that is too large: the worker's next gradient may be good."""
    for sequence in range(1, 5 * STRIKES + 1):
        assert server.push("a", sequence, gradient).verdict == "discarded"
    assert server.push("a", 5 * STRIKES + 1).verdict == "applied"


def test_a_worker_with_broken_vectors_is_quarantined_and_the_others_go_on(server: Transcript) -> None:
    for sequence in range(1, STRIKES + 1):
        assert server.push("a", sequence, TOO_SHORT).code == "wrong_size"
    refused = server.refusal("a", server.push_of(STRIKES + 1), encoded([1, 1, 1]))
    assert refused.code == "quarantined"
    assert server.push("b", 1).verdict == "applied"
    workers = {one.worker_id: one.refused for one in server.machine.status(now=server.now).workers}
    assert workers == {"a": {"wrong_size": STRIKES, "quarantined": 1}, "b": {}}
    server.after(FIRST_SECONDS)
    assert server.push("a", STRIKES + 1).verdict == "applied", "the push was not settled while nobody listened"


def test_another_connection_does_not_help(server: Transcript) -> None:
    for sequence in range(1, STRIKES + 1):
        server.push("a", sequence, TOO_SHORT)
    server.machine.receive(b"elsewhere", server.hello_of("a"), now=server.now)
    assert server.refusal("elsewhere", server.push_of(11), encoded([1, 1, 1])).code == "quarantined"


def test_the_lease_of_a_quarantined_worker_is_not_renewed(server: Transcript) -> None:
    for sequence in range(1, STRIKES + 1):
        server.push("a", sequence, TOO_SHORT)
    before = server.machine.membership.known_at(b"a")
    assert before is not None
    heard = before.last_heard
    server.now += FIRST_SECONDS / 2
    server.refusal("a", messages.Heartbeat(request=1))
    assert before.last_heard == heard


def test_a_stranger_that_sends_nonsense_gets_a_few_replies(server: Transcript) -> None:
    answers = [sends(server.machine.unreadable(b"junk", "no", now=server.now)) for _ in range(2 * STRIKES)]
    assert [len(answer) for answer in answers] == [1] * STRIKES + [0] * STRIKES
    assert server.push("a", 1).verdict == "applied"


@pytest.mark.parametrize("code", ["outside_window", "unknown_worker", "no_weights", "contradiction"])
def test_refusals_that_honest_workers_may_get_are_no_offence(code: str) -> None:
    assert code not in OFFENCES


def test_a_worker_that_is_refused_again_and_again_is_named_in_the_log(server: Transcript) -> None:
    told = []
    for _ in range(100):
        effects = server.say("a", server.push_of(1000), encoded([1, 1, 1]))
        told += notes(effects)
    assert [line.partition(":")[0] for line in told] == [
        "a was refused 10 times (outside_window)",
        "a was refused 100 times (outside_window)",
    ]
