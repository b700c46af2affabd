"""Requests without a reply: their order, how many pushes are in flight, and what later replies prove."""

from ps_client.machine.effects import Transmit
from ps_client.machine.outbox import MOST_PUSHES_IN_FLIGHT, Outbox, Request
from ps_common.protocol import messages
from ps_common.protocol.messages import ToServer
from tests.ps_client.client_transcripts import vector


def push(sequence: int) -> messages.Push:
    """A push whose request number is ten times its sequence."""
    return messages.Push(request=10 * sequence, sequence=sequence, computed_on=1, epoch=1, schema_hash="s")


def pull(request: int) -> messages.Pull:
    return messages.Pull(request=request)


def send_all(outbox: Outbox) -> list[ToServer]:
    """Send everything that may go now."""
    sent = []
    while (message := outbox.next()) is not None:
        transmit = outbox.send_next()
        assert transmit.message == message
        sent.append(message)
    return sent


def outbox_of(*messages: ToServer) -> Outbox:
    outbox = Outbox(lambda: 1)
    for message in messages:
        outbox.put(Request(message))
    return outbox


def test_only_some_pushes_are_in_flight_and_a_reply_lets_the_next_go() -> None:
    outbox = outbox_of(*(push(sequence) for sequence in range(1, 100)))
    assert len(send_all(outbox)) == MOST_PUSHES_IN_FLIGHT
    outbox.take(10)
    assert send_all(outbox) == [push(MOST_PUSHES_IN_FLIGHT + 1)]


def test_an_oldest_push_that_is_lost_again_and_again_keeps_the_others_pending() -> None:
    """The server would refuse pushes that are too far beyond it."""
    outbox = outbox_of(*(push(sequence) for sequence in range(1, 100)))
    send_all(outbox)
    for sequence in range(2, MOST_PUSHES_IN_FLIGHT + 1):
        request = outbox.take(10 * sequence)
        assert request is not None
        outbox.resend_before(request.order)
    assert send_all(outbox) == []
    outbox.take(10)
    assert len(send_all(outbox)) == MOST_PUSHES_IN_FLIGHT


def test_a_reply_proves_that_what_was_sent_before_its_request_is_lost() -> None:
    outbox = outbox_of(pull(1), pull(2), pull(3))
    send_all(outbox)
    second = outbox.take(2)
    assert second is not None
    assert outbox.resend_before(second.order) == [Transmit(pull(1))]
    third = outbox.take(3)
    assert third is not None
    assert outbox.resend_before(third.order) == [], "it was sent again after that"


def test_a_request_sent_now_goes_before_all_that_are_pending() -> None:
    outbox = outbox_of(*(push(sequence) for sequence in range(1, 100)))
    send_all(outbox)
    assert outbox.send_now(messages.Goodbye(request=5)) == Transmit(messages.Goodbye(request=5))


def test_on_another_connection_everything_but_heartbeats_is_sent_again_in_order() -> None:
    outbox = outbox_of(push(3), pull(31), push(4))
    send_all(outbox)
    outbox.send_now(messages.Heartbeat(request=41))
    outbox.put(Request(push(5)))
    outbox.start_over([(push(1), vector(1)), (push(2), vector(2))])
    assert send_all(outbox) == [push(1), push(2), push(3), pull(31), push(4), push(5)]


def test_a_reply_of_a_former_connection_proves_nothing() -> None:
    outbox = outbox_of(pull(1), pull(2))
    send_all(outbox)
    outbox.start_over(())
    late = outbox.take(2)
    assert late is not None
    assert outbox.resend_before(late.order) == []
    assert send_all(outbox) == [pull(1)]


def test_pushes_wait_when_the_credit_is_used_up() -> None:
    outbox = Outbox(lambda: 1)
    outbox.credit = 20
    for sequence in (1, 2, 3):
        outbox.put(Request(push(sequence), vector(1, 2)))
    for _ in range(2):
        assert outbox.has_credit()
        outbox.send_next()
    assert not outbox.has_credit()
    assert outbox.credit_to_request() == 0, "replies will come, and return credit"
    outbox.take(10)
    assert outbox.has_credit()


def test_credit_for_a_larger_push_is_requested_once_and_granted() -> None:
    outbox = Outbox(lambda: 1)
    outbox.credit = 0
    outbox.put(Request(push(1), vector(1, 2)))
    outbox.put(Request(push(2), vector(3, 4)))
    assert not outbox.has_credit()
    assert outbox.credit_to_request() == 8
    outbox.send_now(messages.CreditRequest(request=99, bytes=8))
    assert outbox.credit_to_request() == 0
    outbox.take(99)
    outbox.credit_granted(8)
    assert outbox.has_credit()
    outbox.send_next()
    assert not outbox.has_credit(), "the grant is for one push"
    assert outbox.credit_to_request() == 8


def test_a_grant_of_a_former_connection_is_void() -> None:
    outbox = Outbox(lambda: 1)
    outbox.credit = 0
    outbox.put(Request(push(1), vector(1, 2)))
    outbox.credit_granted(8)
    outbox.send_now(messages.CreditRequest(request=99, bytes=8))
    outbox.start_over(())
    assert outbox.next() == push(1)
    assert not outbox.has_credit()
    assert outbox.credit_to_request() == 8


def test_a_push_names_whenever_it_is_sent_the_oldest_that_may_still_come() -> None:
    oldest = 1
    outbox = Outbox(lambda: oldest)
    for sequence in (1, 2):
        outbox.put(Request(push(sequence)))
    first = outbox.send_next().message
    assert isinstance(first, messages.Push)
    oldest = 2
    outbox.start_over([])
    again = outbox.send_next().message
    assert isinstance(again, messages.Push)
    assert (first.oldest, again.oldest) == (1, 2)
