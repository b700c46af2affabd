"""
The states of a pair of servers as two tables: of the standby as its primary knows it, and of the standby as it knows
itself. An event that stands in no row of a state changes nothing.

Whether an event has happened, replication.py decides at the primary; at the standby following.py does, and promotion.py
where somebody is to promote it.
"""

import enum
from collections.abc import Mapping


class AtPrimary(enum.Enum):
    """What the primary knows of its standby."""

    TRANSFER = "state transfer"  # it is sent the run
    CATCHING_UP = "catching up"  # it has the run, and lags
    BOUND = "bound"  # it has kept up: nothing is durable without it any more
    IN_SYNC = "in sync"  # it knows that, and has all that was durable before: it may be promoted at once
    DROPPED = "dropped"  # it is sent nothing, and may not know that yet: one that was bound may be promoted
    GONE = "gone"  # its lease has ended, or it knows that it was dropped


class OfStandby(enum.Enum):
    """What the primary sees of it."""

    HAS_THE_RUN = enum.auto()
    KEEPS_UP = enum.auto()  # it has everything but what is younger than a second
    KNOWS = enum.auto()
    DROP = enum.auto()  # it cannot keep up, or the run was rolled back
    SILENCE = enum.auto()  # for a lease
    FOLLOW = enum.auto()  # again: it knows that it was dropped


_ENDS = {
    OfStandby.DROP: AtPrimary.DROPPED, OfStandby.SILENCE: AtPrimary.GONE, OfStandby.FOLLOW: AtPrimary.GONE
}  # fmt: skip
AT_PRIMARY: Mapping[AtPrimary, Mapping[OfStandby, AtPrimary]] = {
    AtPrimary.TRANSFER: _ENDS | {OfStandby.HAS_THE_RUN: AtPrimary.CATCHING_UP},
    AtPrimary.CATCHING_UP: _ENDS | {OfStandby.KEEPS_UP: AtPrimary.BOUND},
    AtPrimary.BOUND: _ENDS | {OfStandby.KNOWS: AtPrimary.IN_SYNC},
    AtPrimary.IN_SYNC: _ENDS,
    AtPrimary.DROPPED: _ENDS,
    AtPrimary.GONE: {},
}


class AtStandby(enum.Enum):
    """What the standby knows of its place. Its copy of the run is kept through all of that."""

    TRANSFER = "state transfer"  # it asks for the run
    CATCHING_UP = "catching up"  # it applies updates
    BOUND = "bound"  # and the primary promises, again and again, that nothing is durable without them
    DROPPED = "dropped"  # it asks for the run; what was promised counts no more
    BEREFT = "bereft"  # it asks for the run, which nobody has there; what was promised counts as it was then
    PROMOTED = "promoted"  # it serves the run


class OfPrimary(enum.Enum):
    """What the standby sees of the primary, or learns from others."""

    STATE = enum.auto()
    PROMISE = enum.auto()  # LEADING with a number
    FELL_BEHIND = enum.auto()
    NOT_FOLLOWING = enum.auto()  # also by a server of another run, which has taken the primary's address
    HAS_NO_RUN = enum.auto()
    DIED_BOUND = enum.auto()  # the same, while a promise held that counts
    HANDS_OVER = enum.auto()  # and everything is applied
    # While the primary is silent and the copy is not known to lack anything. With an arbiter, no worker counts.
    WITNESS = enum.auto()  # a worker that the primary served while its promise held, and does not any more
    ANY_WORKER = enum.auto()
    ARBITER = enum.auto()  # it grants the run
    ADMIN = enum.auto()  # with a reason, whatever is lost


_ALWAYS = {
    OfPrimary.FELL_BEHIND: AtStandby.TRANSFER,
    OfPrimary.HAS_NO_RUN: AtStandby.TRANSFER,
    OfPrimary.DIED_BOUND: AtStandby.BEREFT,
    OfPrimary.ARBITER: AtStandby.PROMOTED,
    OfPrimary.ADMIN: AtStandby.PROMOTED,
}
_ASKING = _ALWAYS | {OfPrimary.STATE: AtStandby.CATCHING_UP}
_APPLYING = _ALWAYS | {OfPrimary.NOT_FOLLOWING: AtStandby.DROPPED, OfPrimary.HANDS_OVER: AtStandby.PROMOTED}
AT_STANDBY: Mapping[AtStandby, Mapping[OfPrimary, AtStandby]] = {
    AtStandby.TRANSFER: _ASKING,
    AtStandby.CATCHING_UP: _APPLYING | {OfPrimary.PROMISE: AtStandby.BOUND},
    AtStandby.BOUND: _APPLYING | {OfPrimary.WITNESS: AtStandby.PROMOTED},
    AtStandby.DROPPED: _ASKING,
    AtStandby.BEREFT: _ASKING
    | {
        OfPrimary.NOT_FOLLOWING: AtStandby.DROPPED,
        OfPrimary.WITNESS: AtStandby.PROMOTED,
        OfPrimary.ANY_WORKER: AtStandby.PROMOTED,
    },
    AtStandby.PROMOTED: {},
}
