"""The requests of a worker: their order, how many pushes are in flight, credit, and what later replies prove."""

from collections.abc import Sequence
from typing import Any

from ps_client.machine.effects import Resolve, Transmit
from ps_client.machine.requests import MOST_PUSHES_IN_FLIGHT, Requests
from ps_common.protocol import messages
from ps_common.protocol.messages import NO_LIMIT, CreditGrant, CreditRequest, Push, ToServer, ToWorker
from ps_common.protocol.wire import Buffer
from tests.ps_client.client_transcripts import alive, vector, welcome


def push(sequence: int, *, oldest: int = 1) -> Push:
    """A push whose request number is ten times its sequence."""
    return Push(request=10 * sequence, sequence=sequence, computed_on=1, epoch=1, schema_hash="s", oldest=oldest)


def pull(request: int) -> messages.Pull:
    return messages.Pull(request=request)


def requests_of(*given: ToServer, values: Sequence[Buffer] = (), credit: int = NO_LIMIT) -> Requests:
    """Of a worker that has joined; each of these has the vector."""
    requests = Requests(10**6)
    requests.last_ticket = 10_000
    join(requests, credit=credit)
    for message in given:
        requests.add(message, values)
    return requests


def join(requests: Requests, *, is_another_epoch: bool = False, **given: Any) -> None:
    requests.joined(welcome(1, **given), is_another_epoch=is_another_epoch)


def send(requests: Requests) -> list[ToServer]:
    """Send everything that may go now."""
    return [effect.message for effect in requests.send_pending() if isinstance(effect, Transmit)]


def replied(requests: Requests, reply: ToWorker) -> tuple[list[ToServer], list[int]]:
    """What is sent again at this reply, and the tickets of the calls that have theirs."""
    effects = requests.received(reply, (), is_joined=True)
    again = [effect.message for effect in effects if isinstance(effect, Transmit)]
    return again, [effect.ticket for effect in effects if isinstance(effect, Resolve)]


def settled(sequence: int, *, credit: int = NO_LIMIT) -> messages.Settled:
    settlement = messages.Settlement(sequence=sequence, verdict="applied", version=2, credit=credit)
    return messages.Settled(request=10 * sequence, epoch=1, settlement=settlement, global_steps=0)


def not_modified(request: int) -> messages.NotModified:
    return messages.NotModified(request=request, epoch=1, version=1, global_steps=0)


def test_requests_go_out_in_order_and_so_they_do_again_on_another_connection() -> None:
    given = [pull(1), push(1), pull(11), push(2)]
    requests = requests_of(*given)
    assert send(requests) == given
    assert send(requests) == []
    join(requests)
    assert send(requests) == given


def test_a_vector_travels_with_its_request_and_counts_as_in_flight_until_the_reply() -> None:
    requests = requests_of(push(1), values=vector(1, 2))
    assert requests.send_pending() == [Transmit(push(1), vector(1, 2))]
    assert requests.bytes_in_flight == 8
    replied(requests, settled(1))
    assert requests.bytes_in_flight == 0


def test_only_some_pushes_are_in_flight_and_a_reply_lets_the_next_go() -> None:
    requests = requests_of(*(push(sequence) for sequence in range(1, 100)))
    assert len(send(requests)) == MOST_PUSHES_IN_FLIGHT
    replied(requests, settled(1))
    assert send(requests) == [push(MOST_PUSHES_IN_FLIGHT + 1)]


def test_an_oldest_push_that_is_lost_again_and_again_keeps_the_others_pending() -> None:
    """The server would refuse pushes that are too far beyond it."""
    requests = requests_of(*(push(sequence) for sequence in range(1, 100)))
    send(requests)
    for sequence in range(2, MOST_PUSHES_IN_FLIGHT + 1):
        replied(requests, settled(sequence))
    assert send(requests) == []
    replied(requests, settled(1))
    assert len(send(requests)) == MOST_PUSHES_IN_FLIGHT


def test_a_push_that_the_server_keeps_waiting_is_not_lost() -> None:
    requests = requests_of(push(1))
    send(requests)
    heartbeat = requests.heartbeat(stalled=False, is_held_elsewhere=False).message.request
    waiting = messages.Alive(request=heartbeat, epoch=1, version=1, global_steps=0, durable=0, waiting=True)
    assert replied(requests, waiting) == ([], [])
    heartbeat = requests.heartbeat(stalled=False, is_held_elsewhere=False).message.request
    assert replied(requests, alive(heartbeat)) == ([push(1)], [])


def test_a_reply_of_a_former_connection_proves_nothing() -> None:
    requests = requests_of(pull(1), pull(2))
    send(requests)
    join(requests)
    assert replied(requests, not_modified(2)) == ([], [2])
    assert send(requests) == [pull(1)]


def test_in_another_epoch_pushes_that_had_replies_go_out_again_before_all_others() -> None:
    requests = requests_of(push(1), push(2), pull(21), push(3))
    send(requests)
    for sequence in (1, 2):
        replied(requests, settled(sequence))
    requests.add(push(4), ())
    join(requests, is_another_epoch=True, settled_through=1)
    assert send(requests) == [push(2), pull(21), push(3), push(4)]


def test_pushes_wait_when_the_credit_is_used_up() -> None:
    requests = requests_of(push(1), push(2), push(3), pull(31), values=vector(1, 2), credit=20)
    assert send(requests) == [push(1), push(2)], "replies will come, and return credit: none is requested"
    replied(requests, settled(1, credit=20))
    assert send(requests) == [push(3, oldest=1), pull(31)]


def test_credit_for_a_larger_push_is_requested_once_and_granted_for_one() -> None:
    requests = requests_of(push(1), push(2), values=vector(1, 2), credit=0)
    (first,) = send(requests)
    assert first == CreditRequest(request=first.request, bytes=8)
    assert send(requests) == []
    assert replied(requests, CreditGrant(request=first.request)) == ([], [])
    sent, another = send(requests)
    assert (sent, another) == (push(1), CreditRequest(request=another.request, bytes=8))


def test_a_push_names_whenever_it_is_sent_the_oldest_that_may_still_come() -> None:
    requests = requests_of(push(1), push(2))
    assert send(requests) == [push(1), push(2)]
    replied(requests, settled(1))
    requests.resend_buffer.durable_through(1)
    join(requests)
    assert send(requests) == [push(2, oldest=2)]


def test_after_the_end_there_are_none() -> None:
    requests = requests_of(pull(1), push(1), pull(11))
    send(requests)
    requests.add(pull(12), ())
    requests.clear()
    assert (len(requests), send(requests), replied(requests, not_modified(1))) == (0, [], ([], []))
