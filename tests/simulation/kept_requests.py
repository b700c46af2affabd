"""What cannot be among a worker's requests and the pushes that it keeps; a simulated cluster looks at each step."""

from collections.abc import Iterator

from ps_client.machine.requests import Requests
from ps_client.machine.resend_buffer import ResendBuffer
from ps_common.protocol.messages import NO_LIMIT, Push


def violations_of(requests: Requests) -> str:
    """The violations, as one sentence; "" if there are none."""
    return "; ".join((*_of_requests(requests), *_of_kept_pushes(requests.resend_buffer)))


def _of_requests(requests: Requests) -> Iterator[str]:
    pending, in_flight, buffer = requests._pending, requests._in_flight, requests.resend_buffer
    if both := pending.keys() & in_flight.keys():
        yield f"request {min(both)} is pending and in flight"
    flying = [one.message for one in in_flight.values() if isinstance(one.message, Push)]
    pushes = [*flying, *(one.message for one in pending.values() if isinstance(one.message, Push))]
    if flying and max(one.request for one in flying) > min(pending, default=NO_LIMIT):
        yield f"request {min(pending)} is pending, and a later push is in flight"
    # One that is durable need not be kept, though it may have been sent again before.
    if lost := [one.sequence for one in pushes if one.sequence not in buffer._kept and one.sequence > buffer._durable]:
        yield f"push {min(lost)} has no reply, and is not kept"


def _of_kept_pushes(buffer: ResendBuffer) -> Iterator[str]:
    sizes = [kept.size for sequence, kept in buffer._kept.items() if sequence <= buffer._admitted]
    if sum(sizes) != buffer._bytes:
        yield f"{buffer._bytes} bytes count as kept, and {sum(sizes)} are"
    if sum(sizes) > buffer._budget_bytes > 0 and len(sizes) > 1:
        yield f"{sum(sizes)} bytes are kept, and the resend buffer has {buffer._budget_bytes}"
    if any(kept.settled and not kept.replied for kept in buffer._kept.values()):
        yield "a push without a reply is settled"
    if list(buffer._kept) != sorted(buffer._kept):
        yield "pushes are kept out of order"
