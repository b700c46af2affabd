"""
`--link auto`: measures a worker's link to its server, and chooses how vectors travel on it.

At join, the round trip is the quickest of some pulls that bring nothing new, and the bandwidth follows from the time of
the first weights: offered to the server, and pulled. The first unrolls say how often a gradient comes. The choice is
then made once: as exact as the link allows. Until then an unroll is taken to be as long as the round trip.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Protocol

import msgspec
from torch import Tensor

from ps_client.shell.remote_parameters import Newest
from ps_common.protocol.codecs import encoded_bytes
from ps_common.protocol.deltas import DELTA
from ps_common.protocol.messages import Episode
from ps_common.protocol.tensors import ELEMENT_BYTES
from ps_common.settings.run_spec import RunSpec, Wire

PULLS = 10  # that bring nothing new; the quickest is the round trip
NOISE = 0.1  # of a round trip: a vector that seems to take less took less than can be measured
UNROLLS = 2  # before the choice; the quickest counts, because the first one warms up
NEAR_SECONDS = 0.005  # on a link with a shorter round trip vectors are exact until the choice
LINK_SHARE = 0.03  # of the time between two gradients, that their bytes and those of weights may take on the link
# Of a worker's time: with prefetch it waits less, but CartPole took a sixth more steps (RESULTS.md).
MOST_WAITING = 0.95
MOST_PREFETCH = 2  # each push in flight makes gradients one version later
# From exact to small. topk is the smallest of the gradients' codecs, and learns as well as the others (RESULTS.md).
CODECS_OF_LINKS = (("float32", "float32"), ("bfloat16", "delta"), ("int8", "delta"), ("topk", "delta"))
# Pushes to one pull, with the smallest codecs. With 8, Catch took 1.7 times the steps (one seed, RESULTS.md).
PULLS_OF_LINKS = (2,)
DELTA_SAVING = 3.0  # of the bytes of bfloat16, between versions a few updates apart (RESULTS.md)

log = logging.getLogger("rl-worker")


class Parameters(Protocol):
    """The weights of a run at a server, or at several."""

    def seed(self, weights: Tensor) -> bool: ...
    def pull(self, have: Newest | None = None, *, target: bool = False) -> Newest: ...
    def push_pull(self, gradient: Tensor, *, computed_on: Newest, steps: int) -> Newest: ...
    def report(self, episodes: Sequence[Episode], meters: dict[str, float]) -> None: ...
    def finish(self) -> None: ...
    def use(self, wire: Wire) -> None: ...


@dataclass(frozen=True)
class Link:
    """A measured link. Bandwidths are what one vector gets, with all that TCP takes to begin."""

    round_trip_seconds: float
    up: float  # bytes a second
    down: float

    @property
    def text(self) -> str:
        """In words."""
        up, down = (f"{8e-6 * rate:.3g}" for rate in (self.up, self.down))
        return f"round trip {1000 * self.round_trip_seconds:.3g} ms, {up} Mbit/s up, {down} down"


def measure(
    parameters: Parameters, weights: Tensor, wire: Wire, *, clock: Callable[[], float] = time.monotonic
) -> Link:
    """Offer first weights [P] to the server, pull its own, and time both."""
    began = clock()
    parameters.seed(weights)
    seeding, began = clock() - began, clock()
    newest = parameters.pull()
    pulling = clock() - began
    round_trips = []
    for _ in range(PULLS):
        began = clock()
        parameters.pull(replace(newest, weights=None))
        round_trips.append(clock() - began)
    round_trip = min(round_trips)
    least = NOISE * round_trip
    down = encoded_bytes(wire.weight_codec, len(weights)) / max(pulling - round_trip, least)
    # A run that has weights is offered none: what is not measured is taken to be as the other direction.
    up = ELEMENT_BYTES * len(weights) / max(seeding - round_trip, least) if seeding >= round_trip else down
    return Link(round_trip, up, down)


def choice(
    link: Link, wire: Wire, run: RunSpec, *, size: int, unroll_seconds: float, typed: Collection[str] = ()
) -> tuple[Wire, str]:
    """
    How vectors of `size` elements travel on this link, and why. Settings that were `typed` are as in `wire`.

    `unroll_seconds` pass between two gradients, without the server.
    """
    waiting = link.round_trip_seconds / (link.round_trip_seconds + unroll_seconds)
    ahead = max(MOST_PREFETCH if waiting > MOST_WAITING else 0, wire.prefetch)
    may_be_late = run.consistency.rule == "async"  # elsewhere workers wait for each other, and each push pulls weights
    between = max(unroll_seconds, (unroll_seconds + link.round_trip_seconds) / (1 + ahead))
    shares = []
    for codecs, pull_every in _from_exact_to_small(may_be_late=may_be_late):
        found = {"gradient_codec": codecs[0], "weight_codec": codecs[1], "pull_every": pull_every, "prefetch": ahead}
        candidate = msgspec.structs.replace(wire, **{name: value for name, value in found.items() if name not in typed})
        shares.append((candidate, _seconds_on(link, candidate, size) / between))
        if shares[-1][1] <= LINK_SHARE:
            break
    chosen, share = shares[-1]
    exact = shares[0][1]
    why = (
        f"{link.text}; a gradient of {size:,} elements every {1000 * between:.3g} ms would keep it busy for "
        f"{100 * exact:.3g} % of the time as {shares[0][0].gradient_codec}, for {100 * share:.2g} % as chosen"
    )
    return chosen, why


def in_words(wire: Wire) -> str:
    """The choice, as the flags that would make it."""
    return (
        f"--gradient-codec {wire.gradient_codec} --weight-codec {wire.weight_codec} "
        f"--prefetch {wire.prefetch} --pull-every {wire.pull_every}"
    )


class AutoLink:
    """The parameters of a run on a measured link: after some unrolls, vectors travel as was chosen."""

    def __init__(
        self,
        parameters: Parameters,
        link: Link,
        choose: Callable[[Link, float], tuple[Wire, str]],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`choose` gets the link and the seconds of an unroll."""
        self._parameters = parameters
        self._link = link
        self._choose = choose
        self._clock = clock
        self._unrolls: list[float] | None = []  # seconds; None after the choice
        self._since = clock()
        if link.round_trip_seconds > NEAR_SECONDS:  # exact vectors would take long, and be the most of a short run
            parameters.use(choose(link, link.round_trip_seconds)[0])

    def push_pull(self, gradient: Tensor, *, computed_on: Newest, steps: int) -> Newest:
        if self._unrolls is not None:
            self._unrolls.append(self._clock() - self._since)
            if len(self._unrolls) == UNROLLS:
                wire, why = self._choose(self._link, min(self._unrolls))
                log.info("--link auto: %s (%s)", in_words(wire), why)
                self._parameters.use(wire)
                self._unrolls = None
        newest = self._parameters.push_pull(gradient, computed_on=computed_on, steps=steps)
        self._since = self._clock()
        return newest

    def pull(self, have: Newest | None = None, *, target: bool = False) -> Newest:
        return self._parameters.pull(have, target=target)

    def report(self, episodes: Sequence[Episode], meters: dict[str, float]) -> None:
        self._parameters.report(episodes, meters)

    def finish(self) -> None:
        self._parameters.finish()


def _from_exact_to_small(*, may_be_late: bool) -> Iterator[tuple[tuple[str, str], int]]:
    yield from product(CODECS_OF_LINKS, (1,))
    if may_be_late:
        yield from product(CODECS_OF_LINKS[-1:], PULLS_OF_LINKS)


def _seconds_on(link: Link, wire: Wire, size: int) -> float:
    """The seconds that one gradient, and its share of a pull, are on the link."""
    down = encoded_bytes(wire.weight_codec, size) / (DELTA_SAVING if wire.weight_codec == DELTA else 1.0)
    return encoded_bytes(wire.gradient_codec, size) / link.up + down / wire.pull_every / link.down
