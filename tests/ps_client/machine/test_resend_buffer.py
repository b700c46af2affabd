"""Pushes are kept until they are durable, within a budget, and sent again to a restored server without them."""

from ps_client.machine.resend_buffer import OVERHEAD_BYTES, ResendBuffer
from ps_common.protocol import messages
from ps_common.protocol.messages import Push

VECTOR_BYTES = 1000
ONE = VECTOR_BYTES + OVERHEAD_BYTES


def push(sequence: int) -> messages.Push:
    return Push(request=10 * sequence, sequence=sequence, computed_on=7, epoch=3, schema_hash="s", steps=5)


def buffer_with(count: int, *, budget: int = 100 * ONE, settled: int = 0) -> ResendBuffer:
    """A buffer with so many pushes, all admitted, the first of them settled."""
    buffer = ResendBuffer(budget)
    for sequence in range(1, count + 1):
        buffer.keep(push(sequence), [bytes(VECTOR_BYTES)])
        assert buffer.admit(sequence)
    for sequence in range(1, settled + 1):
        assert buffer.settled(sequence)
    return buffer


def sequences(lost: list[tuple[Push, object]]) -> list[int]:
    return [push.sequence for push, _ in lost]


def test_a_push_is_kept_until_it_is_durable() -> None:
    buffer = buffer_with(3, settled=3)
    assert (buffer.oldest, len(buffer)) == (1, 3)
    buffer.durable_through(2)
    assert (buffer.oldest, len(buffer)) == (3, 1)
    buffer.durable_through(3)
    assert (buffer.oldest, len(buffer)) == (None, 0)


def test_a_restored_server_gets_what_its_ledger_lacks_in_order() -> None:
    buffer = buffer_with(5, settled=4)
    lost = buffer.lost_after(2)
    assert sequences(lost) == [3, 4], "5 has no reply: the outbox sends it in any case"
    assert lost[0] == (push(3), [bytes(VECTOR_BYTES)])


def test_a_push_that_was_durable_is_kept_until_the_server_that_lacks_it_has_it_on_disk() -> None:
    buffer = buffer_with(1)
    for sequence in (2, 3):
        buffer.keep(push(sequence), [b"1234"])
        buffer.admit(sequence)
    buffer.settled(3)
    buffer.durable_through(3)  # 2 has no reply yet, so all are kept from there on
    buffer.settled(1)
    assert sequences(buffer.lost_after(1)) == [3]
    buffer.settled(2)
    assert (buffer.oldest, len(buffer)) == (2, 2)
    buffer.settled(3)
    buffer.durable_through(3)
    assert buffer.oldest is None


def test_a_full_budget_makes_the_next_push_wait_for_a_checkpoint() -> None:
    buffer = buffer_with(3, budget=3 * ONE, settled=3)
    buffer.keep(push(4), [bytes(VECTOR_BYTES)])
    assert not buffer.admit(4)
    buffer.durable_through(1)
    assert buffer.admit(4)
    assert buffer.admit(4), "once admitted, it stays so"
    buffer.keep(push(5), [bytes(VECTOR_BYTES)])
    assert not buffer.admit(5)


def test_a_checkpoint_is_wanted_long_before_the_budget_is_used() -> None:
    buffer = buffer_with(2, budget=20 * ONE, settled=2)
    assert not buffer.wants_checkpoint
    buffer.keep(push(3), [bytes(VECTOR_BYTES)])
    buffer.admit(3)
    assert buffer.wants_checkpoint
    buffer.durable_through(2)
    assert not buffer.wants_checkpoint


def test_while_checkpoints_fail_the_oldest_settled_pushes_are_dropped() -> None:
    buffer = buffer_with(3, budget=3 * ONE, settled=2)
    buffer.durable_through(0, checkpoints_succeed=False)
    for sequence in (4, 5):
        buffer.keep(push(sequence), [bytes(VECTOR_BYTES)])
        assert buffer.admit(sequence)
    assert buffer.oldest == 3
    buffer.keep(push(6), [bytes(VECTOR_BYTES)])
    assert not buffer.admit(6), "3 is not settled: the server does not have it"
    buffer.settled(3)
    assert buffer.admit(6)
    buffer.durable_through(0, checkpoints_succeed=True)
    buffer.settled(4)
    buffer.keep(push(7), [bytes(VECTOR_BYTES)])
    assert not buffer.admit(7)


def test_a_refused_push_is_dropped_and_reported_once() -> None:
    buffer = buffer_with(2)
    assert buffer.refused(1)
    assert not buffer.refused(1)
    assert buffer.oldest == 2
    buffer.settled(2)
    assert not buffer.refused(2), "the trainer had its reply"


def test_without_a_budget_nothing_is_kept_after_its_reply_and_nothing_waits() -> None:
    buffer = buffer_with(3, budget=0)
    assert (buffer.oldest, buffer.wants_checkpoint) == (1, False)
    buffer.settled(2)
    buffer.settled(1)
    assert (buffer.oldest, buffer.lost_after(0)) == (3, [])
