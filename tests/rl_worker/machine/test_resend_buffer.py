"""Pushes are kept until they are durable, within a budget, and given to a server that came back without them."""

from common.protocol import messages
from common.protocol.messages import Push
from rl_worker.machine.resend_buffer import OVERHEAD_BYTES, ResendBuffer

VECTOR_BYTES = 1000
ONE = VECTOR_BYTES + OVERHEAD_BYTES


def push(sequence: int) -> messages.Push:
    return Push(request=10 * sequence, sequence=sequence, computed_on=7, epoch=3, schema_hash="s", steps=5)


def push_pull(sequence: int) -> messages.Push:
    return messages.Push(
        request=10 * sequence,
        sequence=sequence,
        computed_on=7,
        epoch=3,
        schema_hash="s",
        steps=5,
        weight_codec="float32",
    )


def unsaved(count: int, *, budget: int = 100 * ONE, settled: int = 0) -> ResendBuffer:
    """With so many pushes kept and admitted, the first of them settled."""
    kept = ResendBuffer(budget)
    for sequence in range(1, count + 1):
        kept.keep(push(sequence), [bytes(VECTOR_BYTES)])
        assert kept.admit(sequence)
    for sequence in range(1, settled + 1):
        assert kept.settled(sequence)
    return kept


def sequences(again: list[tuple[Push, object]]) -> list[int]:
    return [push.sequence for push, _ in again]


def test_a_push_is_kept_until_it_is_durable() -> None:
    kept = unsaved(3, settled=3)
    assert (kept.oldest, len(kept)) == (1, 3)
    kept.saved(2)
    assert (kept.oldest, len(kept)) == (3, 1)
    kept.saved(3)
    assert (kept.oldest, len(kept)) == (None, 0)


def test_a_push_that_is_durable_before_its_answer_comes_is_let_go_with_the_answer() -> None:
    kept = unsaved(2)
    kept.saved(2)
    assert kept.oldest == 1
    assert kept.settled(1)
    assert kept.oldest == 2


def test_late_news_of_durability_takes_nothing_back() -> None:
    kept = unsaved(3, settled=3)
    kept.saved(2)
    kept.saved(1)
    assert kept.oldest == 3


def test_only_the_first_answer_is_for_the_trainer() -> None:
    kept = unsaved(1)
    assert kept.settled(1)
    assert not kept.settled(1)
    kept.saved(1)
    assert not kept.settled(1)


def test_a_server_that_came_back_gets_what_its_ledger_lacks_in_order() -> None:
    kept = unsaved(5, settled=4)
    again = kept.lacking(2)
    assert sequences(again) == [3, 4], "5 is unanswered, and on its way in any case"
    assert again[0] == (push(3), [bytes(VECTOR_BYTES)])


def test_what_is_sent_again_asks_for_no_weights() -> None:
    kept = ResendBuffer(10**6)
    kept.keep(push_pull(1), [b"1234"])
    kept.settled(1)
    assert kept.lacking(0) == [(push(1), [b"1234"])]


def test_a_server_that_came_back_twice_gets_it_twice() -> None:
    kept = unsaved(3, settled=3)
    assert sequences(kept.lacking(1)) == [2, 3]
    assert not kept.settled(2), "the trainer had its answer"
    assert sequences(kept.lacking(1)) == [2, 3]
    assert sequences(kept.lacking(2)) == [3]


def test_a_full_budget_makes_the_next_push_wait_until_a_checkpoint_makes_room() -> None:
    kept = unsaved(3, budget=3 * ONE, settled=3)
    kept.keep(push(4), [bytes(VECTOR_BYTES)])
    assert not kept.admit(4)
    kept.saved(1)
    assert kept.admit(4)
    assert kept.admit(4), "asked again, it still has its place"
    kept.keep(push(5), [bytes(VECTOR_BYTES)])
    assert not kept.admit(5)


def test_a_single_push_larger_than_the_budget_may_go() -> None:
    kept = unsaved(1, budget=10, settled=1)
    kept.keep(push(2), [bytes(VECTOR_BYTES)])
    assert not kept.admit(2)
    kept.saved(1)
    assert kept.admit(2)


def test_a_checkpoint_is_wanted_when_the_budget_is_half_used() -> None:
    kept = unsaved(2, budget=4 * ONE, settled=2)
    assert not kept.should_be_saved
    kept.keep(push(3), [bytes(VECTOR_BYTES)])
    kept.admit(3)
    assert kept.should_be_saved
    kept.saved(2)
    assert not kept.should_be_saved


def test_a_checkpoint_is_wanted_when_a_push_waits_for_room() -> None:
    kept = unsaved(1, budget=10 * ONE, settled=1)
    kept.keep(push(2), [bytes(10 * VECTOR_BYTES * 2)])
    assert not kept.admit(2)
    assert kept.should_be_saved


def test_while_checkpoints_fail_the_oldest_settled_pushes_are_let_go() -> None:
    kept = unsaved(3, budget=3 * ONE, settled=2)
    kept.saved(0, saving=False)
    for sequence in (4, 5):
        kept.keep(push(sequence), [bytes(VECTOR_BYTES)])
        assert kept.admit(sequence)
    assert kept.oldest == 3
    kept.keep(push(6), [bytes(VECTOR_BYTES)])
    assert not kept.admit(6), "3 is not settled: nobody else has it"
    kept.settled(3)
    assert kept.admit(6)
    kept.saved(0, saving=True)
    kept.settled(4)
    kept.keep(push(7), [bytes(VECTOR_BYTES)])
    assert not kept.admit(7)


def test_a_push_that_a_server_which_came_back_lacks_is_not_let_go() -> None:
    kept = unsaved(2, budget=2 * ONE, settled=2)
    kept.lacking(0)
    kept.saved(0, saving=False)
    kept.keep(push(3), [bytes(VECTOR_BYTES)])
    assert not kept.admit(3)


def test_a_refused_push_is_let_go_and_told_once() -> None:
    kept = unsaved(2)
    assert kept.refused(1)
    assert not kept.refused(1)
    assert kept.oldest == 2
    kept.settled(2)
    assert not kept.refused(2), "the trainer had its answer"


def test_weights_that_hold_the_answered_pushes_make_keeping_them_a_mistake() -> None:
    kept = unsaved(3, settled=2)
    kept.forget_answered()
    assert (kept.oldest, kept.lacking(0)) == (3, [])


def test_without_a_budget_nothing_is_kept_after_its_answer_and_nothing_waits() -> None:
    kept = unsaved(3, budget=0)
    assert (kept.oldest, kept.should_be_saved) == (1, False)
    kept.settled(2)
    kept.settled(1)
    assert (kept.oldest, kept.lacking(0)) == (3, [])


def test_nothing_is_kept_when_the_run_is_over() -> None:
    kept = unsaved(3, settled=2)
    kept.clear()
    assert (kept.oldest, len(kept)) == (None, 0)
