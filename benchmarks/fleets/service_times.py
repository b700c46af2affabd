"""
The service times of a push: functions of the parameters, fitted to measured runs of synthetic workers (measuring.py).

A push visits three threads of the worker's process and three of the server's: the main thread, that of ZeroMQ, and the
rest, above all the one in which pyzmq releases what was sent. Each takes, for a push,

    seconds = each + element · parameters + beyond · (parameters − cached) + waking · wakings
              + (shared + shared_element · parameters) / together

where `cached` parameters fit into a core's cache, and the third term is for larger vectors alone. `element` depends on
the codecs. A thread without other work is woken `wakings` times, the more often the larger the vector, which comes in
pieces. A thread that still has work when a message comes need not be woken, so a push costs less where there are many.
`together` replies share the newest weights, which the server's main thread copies and encodes once for them: as many as
its send queue holds back (ps_server/shell/send_queue.py).

The speaker of a gang takes, for a push of N processes,

    seconds = (each + element · parameters) · (N − 1) + once · parameters

of which the factors were measured once, with gangs of 2, 4 and 8 processes that computed nothing.

Pure.
"""

from statistics import median

import msgspec
import numpy as np

from ps_server.shell.send_queue import MOST_HELD, WORKERS_A_HELD

SHARING = "server main"  # thread
THREADS = (SHARING, "server io", "server rest", "worker main", "worker io", "worker rest")
FLOAT32 = "float32/float32"
CODECS = (FLOAT32, "bfloat16/bfloat16", "int8/bfloat16", "topk/bfloat16")  # of gradients and of weights


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One run of synthetic workers, all in one process, with a server on the same machine, over TCP."""

    workers: int
    parameters: int
    codecs: str
    pushes_per_second: float
    seconds: dict[str, float]  # of the processor, for each push, by thread
    sleeps: dict[str, float]  # how often a thread waited for work, for each push


class Gathering(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds that the speaker of a gang works for one push, beside its own gradient; as they were measured."""

    each: float = 1.19e-4  # for each other member
    element: float = 7.12e-10  # more, for each parameter
    once: float = 1.5e-9  # for each parameter

    def of(self, *, members: int, parameters: float) -> float:
        return (self.each + self.element * parameters) * (members - 1) + self.once * parameters * (members > 1)


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One experiment: the same runs in each turn."""

    fitted: list[Measured]
    checked: list[Measured]


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


class ServiceTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements, their place and time, and what was fitted to all of them; service_times.json is one."""

    machine: str
    cached_parameters: int  # float32s that a core's own cache holds
    load_average: float  # before it began: other programs
    turns: list[Turn]
    fit: Fit


def medians(turns: list[list[Measured]]) -> list[Measured]:
    """The medians of the same runs in several turns."""
    return [
        Measured(
            workers=runs[0].workers,
            parameters=runs[0].parameters,
            codecs=runs[0].codecs,
            pushes_per_second=median(run.pushes_per_second for run in runs),
            seconds={thread: median(run.seconds[thread] for run in runs) for thread in THREADS},
            sleeps={thread: median(run.sleeps[thread] for run in runs) for thread in THREADS},
        )
        for runs in zip(*turns, strict=True)
    ]


def together(workers: int) -> int:
    """How many replies leave together, among so many workers that push all the time."""
    return max(1, min(workers // WORKERS_A_HELD, MOST_HELD))


def fitted_costs(runs: list[Measured], *, cached: int) -> Costs:
    """Costs by least squares of relative errors; the codecs besides float32 differ in `element` alone."""
    return {thread: _fitted(thread, runs, cached) for thread in THREADS}


def _fitted(thread: str, runs: list[Measured], cached: int) -> Cost:
    runs = [run for run in runs if run.seconds[thread]]  # pyzmq's releasing thread need not have been there
    columns = {codecs: at for at, codecs in enumerate(CODECS, start=3)}
    rows = np.zeros((len(runs), 5 + len(CODECS)))
    for row, run in zip(rows, runs, strict=True):
        row[0], row[1], row[2] = 1, run.sleeps[thread], max(0, run.parameters - cached)
        row[columns[run.codecs]] = run.parameters
        if thread == SHARING:
            row[-2], row[-1] = 1 / together(run.workers), run.parameters / together(run.workers)
        row /= run.seconds[thread]
    each, waking, beyond, *elements, shared, shared_element = _no_negative_solution(rows)
    alone = [run for run in runs if run.workers == 1]
    counts = np.array([(1 / run.sleeps[thread], run.parameters / run.sleeps[thread]) for run in alone])
    wakings, wakings_element = _no_negative_solution(counts)
    return Cost(
        each=each,
        element=dict(zip(CODECS, elements, strict=True)),
        beyond=beyond,
        cached=cached,
        waking=waking,
        wakings=wakings,
        wakings_element=wakings_element,
        shared=shared,
        shared_element=shared_element,
    )


def _no_negative_solution(rows: "np.ndarray[tuple[int, int], np.dtype[np.float64]]") -> list[float]:
    """The factors that make each row 1, as nearly as can be. Negative ones are left out, and the rest fitted again."""
    kept = list(range(rows.shape[1]))
    while True:
        solution = np.linalg.lstsq(rows[:, kept], np.ones(len(rows)), rcond=None)[0]
        if (solution >= 0).all():
            found = dict(zip(kept, solution, strict=True))
            return [float(found.get(column, 0.0)) for column in range(rows.shape[1])]
        kept = [column for column, value in zip(kept, solution, strict=True) if value >= 0]
