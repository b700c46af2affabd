"""Credit for pushes: even shares while a share holds a vector, and grants in order of request when it does not."""

import pytest

from ps_common.protocol import messages
from ps_server.machine.flow_control import GRANT_SECONDS, PushBudget
from ps_server.machine.membership import Member, Membership
from ps_server.state.effects import PeerId
from tests.ps_server.transcripts import SCHEMA, Transcript, encoded, sends
from tests.rows import row

VECTOR_BYTES = 4 * SCHEMA.size


def members(*workers: str) -> Membership:
    """Their connections have their names."""
    membership = Membership(lease_seconds=5.0, now=0.0)
    for number, worker in enumerate(workers):
        hello = messages.Hello(request=1, worker_id=worker, secret=16 * "s", protocols=(1, 1))
        membership.join(hello, worker.encode(), number=number, now=0.0)
    return membership


WORKERS = members("a", "b", "c")


def budget_of(budget_bytes: int) -> PushBudget:
    """With workers a, b and c."""
    return PushBudget(budget_bytes, WORKERS)


def arrived(budget: PushBudget, worker: str) -> None:
    """A push of this worker is here."""
    budget.arrived(worker.encode())


def test_a_credit_is_an_even_share_that_holds_a_vector_or_nothing() -> None:
    for workers, credit in [(0, 100), (1, 100), (2, 50), (10, 10), (11, 0)]:
        with row(workers, credit):
            assert PushBudget(100, members(*(f"w{number}" for number in range(workers)))).credit(10) == credit


def test_credit_is_granted_in_the_order_of_requests_until_the_budget_is_spent() -> None:
    budget = budget_of(25)
    for number, peer in enumerate((b"b", b"a", b"c")):
        budget.ask(peer, number, 10)
    assert budget.next_grants(now=0.0) == [(b"b", 0), (b"a", 1)]
    assert budget.next_grants(now=0.0) == []
    arrived(budget, "a")
    assert budget.next_grants(now=0.0) == [(b"c", 2)]


def test_a_push_larger_than_the_budget_goes_alone() -> None:
    budget = budget_of(25)
    budget.ask(b"a", 1, 1000)
    budget.ask(b"b", 2, 1)
    assert budget.next_grants(now=0.0) == [(b"a", 1)]
    arrived(budget, "a")
    assert budget.next_grants(now=0.0) == [(b"b", 2)]


def test_the_dead_keep_nobody_waiting() -> None:
    membership = members("a", "b", "c")
    budget = PushBudget(10, membership)
    for peer in (b"a", b"b", b"c"):
        budget.ask(peer, 1, 10)
    assert budget.next_grants(now=0.0) == [(b"a", 1)]
    for member in membership.alive()[:2]:
        membership.leave(member)
    assert budget.next_grants(now=0.0) == [(b"c", 1)]


def test_a_grant_that_is_not_used_ends() -> None:
    budget = budget_of(10)
    budget.ask(b"a", 1, 10)
    budget.ask(b"b", 2, 10)
    assert budget.next_grants(now=0.0) == [(b"a", 1)]
    assert budget.next_grants(now=GRANT_SECONDS) == []
    budget.ask(b"a", 3, 10)
    assert budget.next_grants(now=GRANT_SECONDS + 0.1) == [(b"b", 2)], (
        "who has left a grant unused asks again, and waits"
    )


def test_credit_for_more_waits_while_pushes_of_the_same_worker_wait_for_the_gate() -> None:
    budget = budget_of(25)
    budget.ask(b"a", 1, 10)
    budget.ask(b"b", 2, 10)
    assert budget.next_grants(waiting_bytes=20, has_waiting=lambda worker: worker == "a", now=0.0) == [(b"b", 2)]
    arrived(budget, "b")
    assert budget.next_grants(waiting_bytes=10, has_waiting=lambda worker: worker == "a", now=0.0) == [(b"a", 1)]


@pytest.mark.parametrize("rule", ["sync", "ssp"])
def test_pushes_that_wait_for_the_gate_stay_within_the_budget_and_one_of_each_living_worker(rule: str) -> None:
    """Ten workers push all that their windows hold, and one that lives never does: nothing can be settled."""
    pushers = [f"w{number}" for number in range(10)]
    server = Transcript.seeded(
        workers=("idle", *pushers), receive_bytes=64 * VECTOR_BYTES, consistency={"rule": rule, "slack": 1}
    )
    server.pull("idle")
    refused = 0
    for sequence in range(1, 65):
        for worker in pushers:
            push = server.push_of(sequence, computed_on=1)
            told = [one.message for one in sends(server.say(worker, push, encoded([1, 1, 1])))]
            refused += sum(isinstance(one, messages.Refused) and one.code == "outside_window" for one in told)
    assert refused > 300
    assert server.machine.pushes.gate.waiting_bytes <= (64 + len(pushers)) * VECTOR_BYTES


def test_what_the_dead_have_left_at_the_gate_goes_first_when_memory_is_short() -> None:
    server = Transcript.seeded(workers=("idle",), receive_bytes=4 * VECTOR_BYTES, consistency={"rule": "sync"})
    for number in range(50):
        server.hello(f"w{number}")
        server.say(f"w{number}", server.push_of(1), encoded([1, 1, 1]))
        server.goodbye(f"w{number}")
    assert server.machine.pushes.gate.waiting_bytes <= 5 * VECTOR_BYTES


def test_a_push_that_was_refused_for_lack_of_memory_is_applied_when_it_is_retried() -> None:
    server = Transcript.seeded(workers=("a", "b"), receive_bytes=VECTOR_BYTES, consistency={"rule": "sync"})
    server.say("a", server.push_of(1), encoded([1, 1, 1]))
    refused = server.refusal("a", server.push_of(2), encoded([1, 1, 1]))
    assert refused.code == "outside_window"
    server.push("b", 1)
    assert server.run.progress.updates == 1
    server.say("a", server.push_of(2), encoded([1, 1, 1]))
    server.push("b", 2)
    assert server.run.progress.updates == 2


def test_replies_carry_the_credit_as_it_is_now() -> None:
    server = Transcript.seeded(receive_bytes=2 * VECTOR_BYTES)
    assert server.push("a", 1).credit == 2 * VECTOR_BYTES
    assert server.hello("b").credit == VECTOR_BYTES
    assert server.push("b", 1).credit == VECTOR_BYTES
    assert server.heartbeat("a").credit == VECTOR_BYTES
    assert server.hello("c").credit == 0
    assert server.push("a", 2).credit == 0
    server.goodbye("c")
    assert server.heartbeat("a").credit == VECTOR_BYTES


class CountingMembership(Membership):
    """Counts the members that were looked for."""

    looks = 0

    def known_at(self, peer: PeerId) -> Member | None:
        self.looks += 1
        return super().known_at(peer)


def test_a_push_costs_the_same_however_many_workers_wait_for_credit() -> None:
    membership = CountingMembership(lease_seconds=5.0, now=0.0)
    for number in range(1000):
        hello = messages.Hello(request=1, worker_id=f"w{number}", secret=16 * "s", protocols=(1, 1))
        membership.join(hello, b"%d" % number, number=number, now=0.0)
    for member in membership.alive():
        member.pushes = 1
    budget = PushBudget(25, membership)
    for number in range(1000):
        budget.ask(b"%d" % number, number, 10)
    assert budget.next_grants(now=0.0) == [(b"0", 0), (b"1", 1)]
    membership.looks = 0
    assert budget.next_grants(now=0.1) == []
    assert membership.looks < 5


def test_a_push_that_arrives_grants_credit_to_the_next_in_the_queue() -> None:
    server = Transcript.seeded(workers=("a", "b"), receive_bytes=VECTOR_BYTES)
    assert (
        server.answer(messages.CreditGrant, "a", messages.CreditRequest(request=50, bytes=VECTOR_BYTES)).request == 50
    )
    assert server.say("b", messages.CreditRequest(request=60, bytes=VECTOR_BYTES)) == []
    assert not server.heartbeat("b").waiting, "a push of b that is lost must be sent again"
    server.push("a", 1)
    assert [(send.to, send.message) for send in sends(server.effects)][1:] == [(b"b", messages.CreditGrant(request=60))]


@pytest.mark.parametrize("others", [0, 1, 3])
def test_a_retry_of_a_request_whose_grant_was_lost_is_granted_however_many_wait(others: int) -> None:
    names = [f"w{number}" for number in range(others)]
    server = Transcript.seeded(workers=("a", *names), receive_bytes=VECTOR_BYTES)
    for request in (50, 51):
        granted = server.answer(messages.CreditGrant, "a", messages.CreditRequest(request=request, bytes=VECTOR_BYTES))
        assert granted.request == request
        for name in names:
            assert server.say(name, messages.CreditRequest(request=request, bytes=VECTOR_BYTES)) == []
    server.push("a", 1)
    grants = [send.to for send in sends(server.effects) if isinstance(send.message, messages.CreditGrant)]
    assert grants == [name.encode() for name in names[:1]], "one grant of two requests holds one place"
