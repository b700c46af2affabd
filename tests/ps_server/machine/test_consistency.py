"""Which pushes wait for which: bounded lead, rounds. The weights are sums of integers and exact."""

import sys
from collections.abc import Sequence
from typing import Any

import pytest

from ps_common.protocol import messages
from ps_common.protocol.messages import Settlement, settlement_of
from ps_common.settings.run_spec import Consistency
from ps_server.machine.consistency import ConsistencyGate, WaitingPush
from ps_server.machine.membership import Membership
from ps_server.state.effects import Effect, LogLine
from tests.ps_server.transcripts import LEASE_SECONDS, Transcript, encoded, sends
from tests.simulation.violations import violations_at

Answers = list[tuple[str, int, str]]  # worker, sequence, verdict


def a_server(rule: str, workers: Sequence[str] = ("a", "b"), **settings: Any) -> Transcript:
    return Transcript.seeded(workers=workers, consistency={"rule": rule, **settings})


def answers(effects: Sequence[Effect]) -> Answers:
    """The peers, sequences and verdicts of settled pushes, in order."""
    said = [(send.to.decode(), settlement_of(send.message)) for send in sends(effects)]
    return [(peer, settled.sequence, settled.verdict) for peer, settled in said if isinstance(settled, Settlement)]


def push(
    server: Transcript, worker: str, sequence: int, gradient: Sequence[float] = (1, 1, 1), **fields: Any
) -> Answers:
    """Push; the replies to anybody that it causes."""
    peer = fields.pop("peer", worker)
    message = server.push_of(sequence, **fields)
    return answers(server.machine.receive(peer.encode(), message, encoded(gradient), now=server.now))


def notes(server: Transcript) -> list[str]:
    """The notes for people that the last message caused."""
    return [effect.text for effect in server.effects if isinstance(effect, LogLine)]


def silent(server: Transcript, *talkative: str) -> Answers:
    """Enough time passes to end the leases of all others; the replies in it."""
    said: Answers = []
    for _ in range(3):
        said += answers(server.after(LEASE_SECONDS / 2.5))
        for worker in talkative:
            server.heartbeat(worker)
    return said


def test_pushes_that_their_worker_gives_up_take_no_memory_and_are_not_applied() -> None:
    server = a_server("sync")
    for sequence in range(1, 200):
        assert push(server, "a", sequence, oldest=sequence) == []
        assert server.machine.pushes.gate.waiting_bytes == 12, sequence
        assert violations_at(server.machine) == ""
    assert push(server, "b", 1) == [("a", 199, "applied"), ("b", 1, "applied")]
    server.after(0.25)


# -- cost -------------------------------------------------------------------------------------------------------------


def calls_of_a_push(workers: int, *, others_wait: bool) -> int:
    """
    The calls that a push of the last worker makes in the gate. The first worker pushes nothing, so that all others
    have a push that waits, or has just been settled.
    """
    settings = Consistency(rule="ssp", slack=2 if others_wait else 1000)
    gate = ConsistencyGate(settings, lambda _: 0, budget_bytes=10**9)
    members = Membership(LEASE_SECONDS, now=0.0)
    names = [f"w{number}" for number in range(workers)]
    for number, name in enumerate(names):
        hello = messages.Hello(request=1, worker_id=name, secret="s" * 32, protocols=(1, 1), incarnation=1)
        members.join(hello, name.encode(), number=number, now=0.0)

    def arrives(name: str, sequence: int) -> None:
        member = members.living(name)
        assert member is not None
        message = messages.Push(request=1, sequence=sequence, computed_on=1, epoch=7, schema_hash="s")
        gate.admit(WaitingPush(member, member.peer, message, (), 4), is_alive=members.is_alive)
        while gate.next(members):
            pass

    for sequence in range(1, 5 if others_wait else 2):
        for name in names[1:-1]:
            arrives(name, sequence)
    if others_wait:
        assert all(gate.has_waiting(name) for name in names[1:-1])
        for sequence in range(1, 4):
            arrives(names[-1], sequence)
    calls = [0]

    def count(*_: object) -> None:
        calls[0] += 1

    sys.setprofile(count)
    try:
        arrives(names[-1], 9)
    finally:
        sys.setprofile(None)
    return calls[0]


@pytest.mark.parametrize("others_wait", [False, True])
def test_a_push_is_judged_without_a_look_at_each_worker(others_wait: bool) -> None:
    few, many = (calls_of_a_push(workers, others_wait=others_wait) for workers in (10, 100))
    assert many <= 1.5 * few


# -- stale synchronous parallel ---------------------------------------------------------------------------------------


def test_no_worker_is_further_ahead_than_the_slack() -> None:
    server = a_server("ssp", slack=2)
    assert push(server, "a", 1) == [("a", 1, "applied")]
    assert push(server, "a", 2) == [("a", 2, "applied")]
    assert push(server, "a", 3) == [], "it would be three ahead"
    assert push(server, "b", 1) == [("b", 1, "applied"), ("a", 3, "applied")]
    assert server.weights() == [-4, -4, -4]


def test_a_late_worker_starts_as_far_as_the_slowest() -> None:
    """And not at 0, which would stop all others until it has caught up."""
    server = a_server("ssp", workers=("a",), slack=1)
    for sequence in range(1, 6):
        assert push(server, "a", sequence) == [("a", sequence, "applied")]
    server.hello("late")
    assert push(server, "a", 6) == [("a", 6, "applied")]
    assert push(server, "a", 7) == []
    assert push(server, "late", 1) == [("late", 1, "applied"), ("a", 7, "applied")]


# -- rounds -----------------------------------------------------------------------------------------------------------


def test_a_round_is_one_update_with_the_mean() -> None:
    server = a_server("sync")
    assert push(server, "b", 1, [4, 0, 2]) == []
    assert server.machine.version == 1
    assert push(server, "a", 1, [2, 2, 0]) == [("a", 1, "applied"), ("b", 1, "applied")]
    assert (server.machine.version, server.weights()) == (2, [-3, -1, -1])
    assert server.run.progress.global_steps == 40


def test_an_unsound_gradient_is_left_out_of_the_mean() -> None:
    server = a_server("sync")
    push(server, "a", 1, [float("nan"), 0, 0])
    assert push(server, "b", 1, [4, 4, 4]) == [("a", 1, "discarded"), ("b", 1, "applied")]
    assert server.weights() == [-4, -4, -4]


def test_a_push_of_a_worker_that_died_waiting_counts_in_the_round() -> None:
    server = a_server("sync")
    push(server, "a", 1, [2, 2, 2])
    silent(server, "b")
    assert push(server, "b", 1, [4, 4, 4]) == [("a", 1, "applied"), ("b", 1, "applied")]
    assert server.weights() == [-3, -3, -3]


def test_a_push_waits_for_the_one_before_it_which_the_network_lost() -> None:
    server = a_server("sync")
    assert push(server, "a", 2, [8, 8, 8]) == []
    assert push(server, "b", 1, [4, 4, 4]) == [], "a's first push is still to come"
    assert not server.heartbeat("a").waiting, "or a would take it for safe here"
    assert server.heartbeat("b").waiting
    assert push(server, "a", 1, [2, 2, 2]) == [("a", 1, "applied"), ("b", 1, "applied")]


# -- both -------------------------------------------------------------------------------------------------------------

each_rule = pytest.mark.parametrize("rule", ["ssp", "sync"])


def waiting(rule: str) -> Transcript:
    """A server with a push of `a` that waits for `b`."""
    server = a_server(rule, slack=1)
    server.pull("b")
    push(server, "a", 1)
    if rule != "sync":
        push(server, "a", 2)
    return server


@each_rule
def test_a_waiting_push_that_is_repeated_on_a_new_connection_is_answered_there_and_once(rule: str) -> None:
    server, sequence = waiting(rule), 1 if rule == "sync" else 2
    server.hello("a", peer="again")
    assert push(server, "a", sequence, peer="again") == []
    assert push(server, "a", sequence, peer="again") == []
    assert sorted(push(server, "b", 1)) == [("again", sequence, "applied"), ("b", 1, "applied")]


@each_rule
def test_a_worker_that_stands_still_keeps_nobody_waiting_though_it_lives(rule: str) -> None:
    server, sequence = waiting(rule), 1 if rule == "sync" else 2
    for _ in range(3):
        server.heartbeat("a")
        server.heartbeat("b")
        assert answers(server.after(LEASE_SECONDS / 2)) == [], "it lives and moves"
    server.heartbeat("b", stalled=True)
    assert notes(server) == ["b has made no step for much longer than ever before; nobody waits for it"]
    assert answers(server.after(0.1)) == [("a", sequence, "applied")]
    assert push(server, "a", sequence + 1) == [("a", sequence + 1, "applied")]
    assert [(worker.alive, worker.stalled) for worker in server.machine.status(now=server.now).workers] == [
        (True, False),
        (True, True),
    ]


@each_rule
@pytest.mark.parametrize("how", ["push", "heartbeat"])
def test_a_worker_that_goes_on_is_waited_for_again(rule: str, how: str) -> None:
    server, sequence = waiting(rule), 1 if rule == "sync" else 2
    server.heartbeat("b", stalled=True)
    assert answers(server.after(0.1)) == [("a", sequence, "applied")]
    if how == "push":
        push(server, "b", 1)
    else:
        server.heartbeat("b", stalled=False)
        assert notes(server) == ["b goes on"]
    assert not any(worker.stalled for worker in server.machine.status(now=server.now).workers)
    server.pull("b")
    lead = sequence
    while push(server, "a", lead + 1):
        lead += 1
        assert lead < 10, "a runs away"


def test_a_worker_that_stands_still_is_not_counted_into_a_quorum() -> None:
    server = a_server("sync", workers=("a", "b"), quorum=2)
    server.heartbeat("b", stalled=True)
    assert push(server, "a", 1) == []
    assert answers(server.after(0.1)) == []
    server.heartbeat("b", stalled=False)
    push(server, "b", 1)
    assert server.run.ledger.accounts["a"].through == 1


def test_nobody_waits_for_a_worker_that_waits_at_another_shard_until_it_pushes() -> None:
    server = a_server("sync")
    push(server, "a", 1)
    server.heartbeat("b", waits_elsewhere=True)
    assert answers(server.after(0.1)) == [("a", 1, "applied")]
    assert not any(worker.stalled for worker in server.machine.status(now=server.now).workers)
    assert push(server, "b", 1) == []
    assert {peer for peer, _, _ in push(server, "a", 2)} == {"a", "b"}


@each_rule
def test_nothing_is_applied_before_the_quorum(rule: str) -> None:
    server = a_server(rule, workers=("a", "b"), quorum=3)
    assert push(server, "a", 1) == push(server, "b", 1) == []
    server.hello("c")
    released = [*answers(server.after(0.1)), *push(server, "c", 1)]
    assert sorted(released) == [("a", 1, "applied"), ("b", 1, "applied"), ("c", 1, "applied")]
