"""The phases of a worker's conversation with the server."""

import enum


class Phase(enum.Enum):
    """JOINING comes again whenever the server does not know the worker."""

    JOINING = "joining"  # HELLO is in flight; calls are pending
    JOINED = "joined"
    OVER = "over"  # the run has ended, or cannot go on
