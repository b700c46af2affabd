"""
The service times of a push: functions of the parameters, which were fitted to measured runs of synthetic workers.
service_times.json has the factors.

A push visits three threads of the worker's process and three of the server's: the main thread, that of ZeroMQ, and the
rest, above all the one in which pyzmq releases what was sent. Each takes, for a push,

    seconds = each + element · parameters + beyond · (parameters − cached) + waking · wakings
              + (shared + shared_element · parameters) / together

where `cached` parameters fit into a core's cache, and larger vectors have the third term. `element` depends on the
codecs. A thread without other work is woken `wakings` times, the more often the larger the vector, which comes in
pieces. A thread that still has work when a message comes need not be woken, so a push costs less where there are many.
`together` replies share the newest weights, which the server's main thread copies and encodes once for them: as many as
its send queue holds back (ps_server/shell/send_queue.py).

The speaker of a gang takes, for a push of N processes,

    seconds = (each + element · parameters) · (N − 1) + once · parameters

of which the factors were measured once, with gangs of 2, 4 and 8 processes that computed nothing.
"""

from pathlib import Path

import msgspec

from ps_server.shell.send_queue import MOST_HELD, WORKERS_A_HELD

SHARING = "server main"  # thread
FLOAT32 = "float32/float32"
CODECS = (FLOAT32, "bfloat16/bfloat16", "int8/bfloat16", "topk/bfloat16")  # of gradients and of weights


class Gathering(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds that the speaker of a gang works for one push, beside its own gradient; as they were measured."""

    each: float = 1.19e-4  # for each other member
    element: float = 7.12e-10  # more, for each parameter
    once: float = 1.5e-9  # for each parameter

    def of(self, *, members: int, parameters: float) -> float:
        return (self.each + self.element * parameters) * (members - 1) + self.once * parameters * (members > 1)


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds that one thread works for one push."""

    each: float
    element: dict[str, float]  # by codecs
    beyond: float  # more, for each parameter that a core's cache does not hold
    cached: int  # parameters that it holds
    waking: float  # once
    wakings: float  # for a push whose thread has no other work
    wakings_element: float  # more, for each parameter
    shared: float = 0.0  # for the first of the pushes whose replies leave together
    shared_element: float = 0.0  # more, for each parameter

    def of(self, *, parameters: float, codecs: str) -> float:
        """Where the thread has work all the time; without what is shared."""
        return self.each + self.element[codecs] * parameters + self.beyond * max(0.0, parameters - self.cached)

    def shared_of(self, parameters: float) -> float:
        """The seconds that pushes share whose replies leave together."""
        return self.shared + self.shared_element * parameters

    def wakings_of(self, parameters: float) -> float:
        """How often a push wakes a thread that has no other work, where a parameter has four bytes."""
        return self.wakings + self.wakings_element * parameters


Costs = dict[str, Cost]  # by thread


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """A machine, as the simulator knows it."""

    costs: Costs
    wake_seconds: float  # until a thread of ZeroMQ that waits runs
    gathering: Gathering


def together(workers: int) -> int:
    """How many replies leave together, where this number of workers push all the time."""
    return max(1, min(workers // WORKERS_A_HELD, MOST_HELD))


def kept() -> Fit:
    """The machine that was measured: two cores of an AMD EPYC, at a load of 13.5 from other programs."""
    return msgspec.json.decode(Path(__file__).with_suffix(".json").read_bytes(), type=Fit)
