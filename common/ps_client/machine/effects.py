"""Effects of the worker's machine. The shell carries them out, in order."""

import enum
from collections.abc import Sequence

from msgspec import Struct

from ps_common.errors import PsRlError
from ps_common.protocol.messages import ToServer, ToWorker, Welcome
from ps_common.protocol.wire import Buffer


class Transmit(Struct, frozen=True):
    """Send a message, with the bytes of a vector. It may be lost."""

    message: ToServer
    vector: Sequence[Buffer] = ()


class Reconnect(Struct, frozen=True):
    """Close the connection and open another one, to the next address if there are several."""


class Joined(Struct, frozen=True):
    """The first WELCOME has come."""

    welcome: Welcome


class Resolve(Struct, frozen=True):
    """The call with this ticket has its reply."""

    ticket: int
    reply: ToWorker
    vector: Sequence[Buffer]


class Fail(Struct, frozen=True):
    """The call with this ticket has failed; with ticket 0 all calls, pending and later."""

    ticket: int
    error: PsRlError


class LogLine(Struct, frozen=True):
    """A line for the log."""

    text: str


Effect = Transmit | Reconnect | Joined | Resolve | Fail | LogLine


class Phase(enum.Enum):
    """JOINING comes again whenever the server does not know the worker."""

    JOINING = "joining"  # HELLO is in flight; calls are pending
    JOINED = "joined"
    LEFT = "left"  # GOODBYE was sent; any message after it would begin the lease again
    OVER = "over"  # the run has ended, or this worker cannot continue it
