"""
How a server begins where a run is held already: a table of what it was asked for and of who has that run now.

It reads no folder and asks nobody itself: starting.py gathers what is held, and does what the table says. Where nothing
is held, a new run begins, or a standby follows; a fork asks nobody.
"""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ps_common.protocol.lineage import Lineage
from ps_common.protocol.status import STANDBY_PHASE, Status

# After a power failure both servers of a pair start at once. The standby first asks the primary, in vain, and only then
# listens: so the primary has more patience than the standby.
STANDBY_REPLY_SECONDS = 10.0
PRIMARY_REPLY_SECONDS = 2.0

Ask = Callable[[str, float], Status | None]  # the status of the server at HOST:PORT, asked for so long


class Asked(enum.Enum):
    NEW = "a new run"
    RESUME = "--resume"
    TAKE_BACK = "--take-back"
    STANDBY = "--standby-of"


class Found(enum.Enum):
    """Who has the run that is held here."""

    NOBODY = enum.auto()
    PRIMARY = enum.auto()  # the server that is to be followed
    ANOTHER = enum.auto()  # in a later epoch
    AWAY = enum.auto()  # perhaps the standby, which followed, may have been promoted, and does not reply
    ORIGINAL = enum.auto()  # the server of the folder of which this is a copy
    OTHER_RUN = enum.auto()  # is served where the primary was


class Begin(enum.Enum):
    IN_USE = enum.auto()  # a new run would remove this one
    NEXT_LIFE = enum.auto()
    TAKEN_BACK = enum.auto()  # in an epoch above all that may have been
    FOLLOW = enum.auto()  # whoever has it, with the state here put aside
    FENCED = enum.auto()
    ASK_USER = enum.auto()


TABLE: Mapping[Asked, Mapping[Found, Begin]] = {
    Asked.NEW: dict.fromkeys(Found, Begin.IN_USE) | {Found.PRIMARY: Begin.FOLLOW, Found.ANOTHER: Begin.FOLLOW},
    Asked.RESUME: {
        Found.NOBODY: Begin.NEXT_LIFE,
        Found.PRIMARY: Begin.FENCED,
        Found.ANOTHER: Begin.FENCED,
        Found.AWAY: Begin.ASK_USER,
        Found.ORIGINAL: Begin.ASK_USER,
        Found.OTHER_RUN: Begin.NEXT_LIFE,
    },
    Asked.TAKE_BACK: dict.fromkeys(Found, Begin.TAKEN_BACK),
    Asked.STANDBY: {
        Found.NOBODY: Begin.NEXT_LIFE,
        Found.PRIMARY: Begin.FOLLOW,
        Found.ANOTHER: Begin.FENCED,
        Found.AWAY: Begin.ASK_USER,
        Found.OTHER_RUN: Begin.ASK_USER,
    },
}


@dataclass(frozen=True)
class Held:
    saved: Lineage  # of the newest checkpoint
    known: Lineage  # the newest of this server
    standby: str  # HOST:PORT, or ""
    primary: str
    was_followed: bool
    original: str = ""  # HOST:PORT where the server of this folder was last, if this one does not listen there


@dataclass(frozen=True)
class Beginning:
    begin: Begin
    found: Found
    lineage: Lineage  # the newest that is known after asking
    at: str = ""  # HOST:PORT of the server that was found
    reply: Status | None = None  # of it


def beginning(asked: Asked, held: Held, ask: Ask) -> Beginning:
    """How a server begins. `ask` is called for servers that may have the run, in turn, until one has."""
    found = _at_original(asked, held, ask) or _other_run(asked, held, ask) or _in_pair(asked, held, ask)
    if asked is Asked.STANDBY and found.found is Found.ANOTHER:
        reply = ask(held.primary, PRIMARY_REPLY_SECONDS)
        serves_it = _serves(held, reply) and reply is not None and reply.epoch >= found.lineage.epoch
        if found.lineage.replaced_by == held.primary or serves_it:
            found = replace(found, found=Found.PRIMARY, at=held.primary)
    return replace(found, begin=TABLE[asked][found.found])


def _at_original(asked: Asked, held: Held, ask: Ask) -> Beginning | None:
    if asked is not Asked.RESUME or not held.original:
        return None
    reply = ask(held.original, PRIMARY_REPLY_SECONDS)
    return _found(Found.ORIGINAL, held, held.original, reply) if _serves(held, reply) else None


def _other_run(asked: Asked, held: Held, ask: Ask) -> Beginning | None:
    if asked is not Asked.STANDBY:
        return None
    reply = ask(held.primary, PRIMARY_REPLY_SECONDS)
    is_other = reply is not None and reply.run_id not in ("", held.saved.run_id)
    return _found(Found.OTHER_RUN, held, held.primary, reply) if is_other else None


def _in_pair(asked: Asked, held: Held, ask: Ask) -> Beginning:
    """Who has the run of the servers that this one was in a pair with."""
    by = held.known.replaced_by
    if asked is Asked.NEW:
        for address in dict.fromkeys((by or "", held.standby, held.primary)):
            reply = ask(address, PRIMARY_REPLY_SECONDS)
            if _serves(held, reply) and reply is not None and reply.epoch > held.saved.epoch:
                return _found(Found.ANOTHER, held, address, reply)
        return _found(Found.NOBODY, held)
    if by is not None:
        return _found(Found.ANOTHER, held, by)
    for address, seconds in ((held.standby, STANDBY_REPLY_SECONDS), (held.primary, PRIMARY_REPLY_SECONDS)):
        reply = ask(address, seconds)
        if reply is None and address == held.standby and held.was_followed and asked is not Asked.TAKE_BACK:
            return _found(Found.AWAY, held, address)
        if _serves(held, reply) and reply is not None and reply.epoch > held.known.epoch:
            lineage = held.known.replaced(address, epoch=reply.epoch)
            return _found(Found.ANOTHER, replace(held, known=lineage), address, reply)
    return _found(Found.NOBODY, held)


def _serves(held: Held, reply: Status | None) -> bool:
    return reply is not None and reply.phase != STANDBY_PHASE and reply.run_id == held.saved.run_id


def _found(found: Found, held: Held, at: str = "", reply: Status | None = None) -> Beginning:
    return Beginning(Begin.ASK_USER, found, held.known, at, reply)
