"""What the worker's machine wants done. The shell does it, in order."""

from collections.abc import Sequence
from dataclasses import dataclass

from common.errors import PsRlError
from common.protocol.messages import ToServer, ToWorker, Welcome
from common.protocol.wire import Buffer


@dataclass(frozen=True)
class Transmit:
    """Hand a message, with the bytes of a vector, to the connection. May be lost."""

    message: ToServer
    vector: Sequence[Buffer] = ()


@dataclass(frozen=True)
class Reconnect:
    """Throw the connection away and make a new one, to the next address if there are several."""


@dataclass(frozen=True)
class Joined:
    """The first WELCOME is here."""

    welcome: Welcome


@dataclass(frozen=True)
class Resolve:
    """The call with this ticket has its reply."""

    ticket: int
    reply: ToWorker
    vector: Sequence[Buffer]


@dataclass(frozen=True)
class Fail:
    """The call with this ticket has failed; all calls, now and later, when the ticket is 0."""

    ticket: int
    error: PsRlError


@dataclass(frozen=True)
class Note:
    """Something the person watching the worker wants to know, in one line."""

    text: str


Effect = Transmit | Reconnect | Joined | Resolve | Fail | Note
