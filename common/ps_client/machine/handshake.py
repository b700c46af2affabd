"""
The timing of HELLO: when it is sent, and what a refusal leads to.

HELLO is sent at growing intervals, because a message may be lost before its connection is up. Some refusals are
temporary: a standby has not taken over yet, a server belongs to another run, the name is taken by a process that has
just died. The worker then sends HELLO again, and goes to the next address if it has several.

A server without weights may have been started anew beside a standby that holds the run, so a worker with several
addresses begins no run before it has tried the others.
"""

from dataclasses import dataclass

from ps_common.protocol.messages import Refused, Welcome

FIRST_HELLO_SECONDS = 0.05  # until HELLO is sent again; doubles up to the next number
SLOWEST_HELLO_SECONDS = 2.0
REFUSED_HELLO_SECONDS = 0.1  # until HELLO is sent again to a server that will soon serve the run
REFUSED_SECONDS = 1.0  # after this long with nothing but temporary refusals, the next address is tried
NAME_TAKEN_SECONDS = 60.0  # until a worker whose name another process has gives up; leases of the dead are shorter
BRIEF = {"standby", "lacking", "fenced"}  # refusals of moments: a standby takes over
TEMPORARY = {*BRIEF, "other_run", "name_taken", "drained"}


@dataclass(frozen=True)
class Consequence:
    """The effects of a temporary refusal, besides another HELLO."""

    is_final: bool  # the worker gives up
    is_news: bool  # the log should have it
    is_next_address: bool  # the worker tries the next one


class Handshake:
    """The HELLOs of one worker, from one WELCOME to the next."""

    def __init__(self, *, addresses: int, now: float) -> None:
        self.due = now  # when HELLO is to be sent
        self.refusal = ""  # why HELLO was refused last, since the server last served this worker
        self._addresses = addresses
        self._untried: int | None = None  # other addresses, since a server without weights; None before there was one
        self._interval = FIRST_HELLO_SECONDS
        self._first_request = self._last_request = 0  # numbers of HELLOs since the worker has had to join
        self._refused_since: float | None = None  # on this connection
        self._name_taken_since: float | None = None

    def begin(self, *, next_request: int, now: float) -> None:
        """The worker has to join. Its HELLOs are numbered from `next_request` on."""
        self._first_request = next_request
        self._send_often_from(now)

    def begin_on_new_connection(self, *, now: float) -> None:
        """The worker has to join on another connection, which will take a moment to be up."""
        self._refused_since = None
        self._untried = self._untried and self._untried - 1
        self._send_often_from(now)

    def sent(self, request: int, *, now: float) -> None:
        """HELLO was sent with this number."""
        self._last_request = request
        self.due = now + self._interval
        self._interval = min(2 * self._interval, SLOWEST_HELLO_SECONDS)

    def completes(self, welcome: Welcome) -> bool:
        """Whether this WELCOME is a reply to a HELLO since `begin`."""
        return welcome.request >= self._first_request

    def is_premature(self, welcome: Welcome) -> bool:
        """Whether the server has no weights, and another address may have the run."""
        if not welcome.schema and self._untried is None:
            self._untried = self._addresses - 1
        return not welcome.schema and self._untried != 0

    def is_refusal(self, message: Refused) -> bool:
        """Whether this refusal is of the newest HELLO."""
        return message.request == self._last_request

    def completed(self) -> None:
        """The worker has joined."""
        self._refused_since = self._name_taken_since = self._untried = None

    def refused(self, code: str, why: str, *, now: float) -> Consequence:
        """HELLO was refused with a temporary code."""
        is_final = False
        if code == "name_taken":
            self._name_taken_since = now if self._name_taken_since is None else self._name_taken_since
            is_final = now - self._name_taken_since > NAME_TAKEN_SECONDS
        if code in BRIEF:
            self._send_often_from(now + REFUSED_HELLO_SECONDS)
        if self._refused_since is None:
            self._refused_since = now
        is_news = code not in BRIEF and why != self.refusal
        self.refusal = why
        is_enough = code == "fenced" or now - self._refused_since > REFUSED_SECONDS
        return Consequence(is_final, is_news, is_next_address=is_enough and self._addresses > 1)

    def _send_often_from(self, due: float) -> None:
        self._interval, self.due = FIRST_HELLO_SECONDS, due
