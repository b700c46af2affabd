"""Requests on their way: their order, how many pushes at a time, and what later replies prove."""

from common.protocol import messages
from common.protocol.messages import ToServer
from rl_worker.machine.effects import Transmit
from rl_worker.machine.outbox import PUSHES_UNDER_WAY, Outbox
from tests.rl_worker.client_transcripts import vector


def push(sequence: int) -> messages.Push:
    """Its request number is ten times its sequence."""
    return messages.Push(request=10 * sequence, sequence=sequence, computed_on=1, epoch=1, schema_hash="s")


def pull(request: int) -> messages.Pull:
    return messages.Pull(request=request)


def send_all(outbox: Outbox) -> list[ToServer]:
    """Everything that may go now."""
    sent = []
    while (message := outbox.next()) is not None:
        transmit = outbox.send_next()
        assert transmit.message == message
        sent.append(message)
    return sent


def an_outbox(*messages: ToServer) -> Outbox:
    outbox = Outbox(lambda: 1)
    for message in messages:
        outbox.put(message)
    return outbox


def test_requests_go_out_in_order() -> None:
    requests = [pull(1), push(1), pull(11), push(2)]
    assert send_all(an_outbox(*requests)) == requests


def test_a_vector_travels_with_its_request() -> None:
    outbox = Outbox(lambda: 1)
    outbox.put(push(1), vector(1, 2))
    assert outbox.next() == push(1)
    assert outbox.send_next() == Transmit(push(1), vector(1, 2))
    assert outbox.bytes_under_way == 8
    outbox.answered(10)
    assert outbox.bytes_under_way == 0


def test_only_some_pushes_are_under_way_and_an_answer_lets_the_next_go() -> None:
    outbox = an_outbox(*(push(sequence) for sequence in range(1, 100)))
    assert len(send_all(outbox)) == PUSHES_UNDER_WAY
    outbox.answered(10)
    assert send_all(outbox) == [push(PUSHES_UNDER_WAY + 1)]


def test_an_oldest_push_that_is_lost_again_and_again_holds_the_others_back() -> None:
    """The server would refuse what is too far beyond it."""
    outbox = an_outbox(*(push(sequence) for sequence in range(1, 100)))
    send_all(outbox)
    for sequence in range(2, PUSHES_UNDER_WAY + 1):
        request = outbox.answered(10 * sequence)
        assert request is not None
        outbox.send_again_before(request.order)
    assert send_all(outbox) == []
    outbox.answered(10)
    assert len(send_all(outbox)) == PUSHES_UNDER_WAY


def test_a_request_is_answered_once() -> None:
    outbox = an_outbox(pull(1))
    send_all(outbox)
    answered = outbox.answered(1)
    assert answered is not None
    assert answered.message == pull(1)
    assert outbox.answered(1) is None
    assert len(outbox) == 0


def test_an_answer_proves_that_what_was_sent_before_it_is_lost() -> None:
    outbox = an_outbox(pull(1), pull(2), pull(3))
    send_all(outbox)
    second = outbox.answered(2)
    assert second is not None
    assert outbox.send_again_before(second.order) == [Transmit(pull(1))]
    third = outbox.answered(3)
    assert third is not None
    assert outbox.send_again_before(third.order) == [], "it was sent again after that"


def test_a_lost_heartbeat_is_forgotten() -> None:
    outbox = Outbox(lambda: 1)
    outbox.overtake(messages.Heartbeat(request=1))
    outbox.put(pull(2))
    send_all(outbox)
    answered = outbox.answered(2)
    assert answered is not None
    assert outbox.send_again_before(answered.order) == []
    assert len(outbox) == 0


def test_what_overtakes_goes_before_all_that_waits() -> None:
    outbox = an_outbox(*(push(sequence) for sequence in range(1, 100)))
    send_all(outbox)
    assert outbox.overtake(messages.Goodbye(request=5)) == Transmit(messages.Goodbye(request=5))


def test_on_another_connection_everything_goes_again_in_order_but_heartbeats() -> None:
    outbox = an_outbox(push(3), pull(31), push(4))
    send_all(outbox)
    outbox.overtake(messages.Heartbeat(request=41))
    outbox.put(push(5))
    outbox.start_over([(push(1), vector(1)), (push(2), vector(2))])
    assert send_all(outbox) == [push(1), push(2), push(3), pull(31), push(4), push(5)]


def test_an_answer_from_before_proves_nothing_on_another_connection() -> None:
    outbox = an_outbox(pull(1), pull(2))
    send_all(outbox)
    outbox.start_over(())
    late = outbox.answered(2)
    assert late is not None
    assert outbox.send_again_before(late.order) == []
    assert send_all(outbox) == [pull(1)]


def test_a_cleared_outbox_has_nothing() -> None:
    outbox = an_outbox(pull(1), pull(2))
    outbox.send_next()
    outbox.clear()
    assert (len(outbox), outbox.next(), outbox.answered(1)) == (0, None, None)


def test_pushes_wait_when_the_credit_is_used_up() -> None:
    outbox = Outbox(lambda: 1)
    outbox.credit = 20
    for sequence in (1, 2, 3):
        outbox.put(push(sequence), vector(1, 2))
    for _ in range(2):
        assert outbox.has_space()
        outbox.send_next()
    assert not outbox.has_space()
    assert outbox.credit_to_ask_for() == 0, "answers will come, and make room"
    outbox.answered(10)
    assert outbox.has_space()


def test_a_push_larger_than_the_credit_asks_once_and_goes_when_room_is_given() -> None:
    outbox = Outbox(lambda: 1)
    outbox.credit = 0
    outbox.put(push(1), vector(1, 2))
    outbox.put(push(2), vector(3, 4))
    assert not outbox.has_space()
    assert outbox.credit_to_ask_for() == 8
    outbox.overtake(messages.CreditRequest(request=99, bytes=8))
    assert outbox.credit_to_ask_for() == 0
    outbox.answered(99)
    outbox.credit_granted(8)
    assert outbox.has_space()
    outbox.send_next()
    assert not outbox.has_space(), "room is for one push"
    assert outbox.credit_to_ask_for() == 8


def test_what_has_no_vector_needs_no_room() -> None:
    outbox = an_outbox(pull(1))
    outbox.credit = 0
    assert outbox.has_space()


def test_room_of_a_former_connection_is_not_room_on_this_one() -> None:
    outbox = Outbox(lambda: 1)
    outbox.credit = 0
    outbox.put(push(1), vector(1, 2))
    outbox.credit_granted(8)
    outbox.overtake(messages.CreditRequest(request=99, bytes=8))
    outbox.start_over(())
    assert outbox.next() == push(1)
    assert not outbox.has_space()
    assert outbox.credit_to_ask_for() == 8


def test_a_push_says_whenever_it_is_sent_which_may_still_come() -> None:
    oldest = 1
    outbox = Outbox(lambda: oldest)
    for sequence in (1, 2):
        outbox.put(push(sequence))
    first = outbox.send_next().message
    assert isinstance(first, messages.Push)
    oldest = 2
    outbox.start_over([])
    again = outbox.send_next().message
    assert isinstance(again, messages.Push)
    assert (first.oldest, again.oldest) == (1, 2)
