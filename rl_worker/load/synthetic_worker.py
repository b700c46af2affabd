"""
A synthetic worker: joins a run, pulls its weights, and pushes gradients of zeros, one at a time. Pure.

It speaks through the machine of a real worker, so everything that a server answers is handled as a worker does. It has
no network and no games: all workers of a process push the same bytes, and keep no weights.
"""

from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from common.protocol import messages
from common.protocol.messages import ToWorker, settlement_of
from common.protocol.tensors import Schema
from common.protocol.wire import Buffer
from rl_worker.load.histogram import bucket_of
from rl_worker.machine.effects import Effect, Joined, Reconnect, Resolve, Transmit
from rl_worker.machine.parameter_client import Call, ParameterClient
from rl_worker.machine.phases import Phase

TICK_SECONDS = 0.25  # between two ticks of its machine, at most
SEED_CODEC = "float32"


class SyntheticWorker:
    """One worker, from its first HELLO on. `now` is seconds of any monotonic clock."""

    def __init__(
        self,
        machine: ParameterClient,
        schema: Schema,
        *,
        seed: Sequence[Buffer],
        gradient: Sequence[Buffer],
        gradient_codec: str,
        weight_codec: str,
        steps: int,
        pause: Callable[[], float],
        now: float,
    ) -> None:
        """
        `seed` is the vector for a run without weights, or for one that has lost them; () if this worker must give it
        none. `pause` returns the seconds from a reply to the next push.
        """
        self.join_seconds: float | None = None  # until WELCOME
        self.ready_seconds: float | None = None  # until the first weights
        self.settled = self.discarded = 0
        self.round_trips: Counter[int] = Counter()  # histogram of seconds
        self.staleness: Counter[int] = Counter()  # pushes by versions
        self.refused: Counter[str] = Counter()  # replies by code
        self.reasons: dict[str, str] = {}
        self._machine = machine
        self._schema = schema
        self._seed, self._gradient = seed, gradient
        self._gradient_codec, self._weight_codec, self._steps = gradient_codec, weight_codec, steps
        self._pause = pause
        self._began = now
        self._epoch = self._version = 0
        self._pushed_at: float | None = None  # of the push in flight
        self._push_due: float | None = None
        self._is_pushing = False

    @property
    def is_over(self) -> bool:
        """Whether this worker has given up, or was refused for good."""
        return self._machine.phase is Phase.OVER

    @property
    def error(self) -> str:
        """Why it is over; "" if it is not."""
        return str(self._machine.error or "")

    def receive(self, message: ToWorker, vector: Sequence[Buffer], *, now: float) -> list[Transmit | Reconnect]:
        """A message of the server."""
        if isinstance(message, messages.Refused):
            self.refused[message.code] += 1
            self.reasons[message.code] = message.reason
        # The machine keeps the newest weights for a server that loses them: a thousand workers would keep gigabytes.
        kept = self._seed if isinstance(message, messages.Weights) else vector
        if isinstance(message, messages.Weights):
            message = msgspec.structs.replace(message, codec=SEED_CODEC)
        return self._after(self._machine.receive(message, kept, now=now), now=now)

    def tick(self, *, now: float) -> list[Transmit | Reconnect]:
        """Time has passed."""
        effects = self._after(self._machine.tick(now=now), now=now)
        if self._push_due is not None and now >= self._push_due:
            self._push_due = None
            effects += self._push(now=now)
        return effects

    def next_tick(self, *, now: float) -> float:
        """When `tick` has something to do at the latest."""
        if self.is_over:
            return float("inf")
        due = min(self._machine.next_tick(), now + TICK_SECONDS)
        return due if self._push_due is None else min(due, self._push_due)

    def begin_pushing(self, *, now: float) -> None:
        """Push from now on: the counts begin anew, and the first push comes within one pause."""
        self.settled = self.discarded = 0
        self.round_trips.clear()
        self.staleness.clear()
        self.refused.clear()
        self._is_pushing = self.ready_seconds is not None
        self._push_due = now + self._pause() if self._is_pushing else None

    def end_pushing(self) -> None:
        """Push no more. A push in flight is not counted."""
        self._is_pushing, self._push_due, self._pushed_at = False, None, None

    def leave(self, *, now: float) -> list[Transmit | Reconnect]:
        """Send GOODBYE."""
        self.end_pushing()
        return self._call(self._machine.leave("the load test is over", now=now), now=now)

    def _after(self, effects: list[Effect], *, now: float) -> list[Transmit | Reconnect]:
        """The effects that remain to be carried out, and those that follow from them."""
        left: list[Transmit | Reconnect] = []
        for effect in effects:
            match effect:
                case Transmit() | Reconnect():
                    left.append(effect)
                case Joined():
                    left += self._joined(now=now)
                case Resolve():
                    left += self._replied(effect.reply, now=now)
        return left

    def _joined(self, *, now: float) -> list[Transmit | Reconnect]:
        """The first WELCOME: seed the run unless it has weights, and pull."""
        self.join_seconds = now - self._began
        sent = self._call(self._machine.seed(self._schema, SEED_CODEC, self._seed, now=now), now=now)
        return sent + self._pull(now=now)

    def _pull(self, *, now: float) -> list[Transmit | Reconnect]:
        codec = self._weight_codec
        return self._call(self._machine.pull(have_epoch=0, have_version=0, codec=codec, now=now), now=now)

    def _push(self, *, now: float) -> list[Transmit | Reconnect]:
        self._pushed_at = now
        call = self._machine.push(
            self._gradient_codec,
            self._gradient,
            epoch=self._epoch,
            computed_on=self._version,
            steps=self._steps,
            weight_codec=self._weight_codec,
            now=now,
        )
        return self._call(call, now=now)

    def _call(self, call: Call, *, now: float) -> list[Transmit | Reconnect]:
        return self._after(call[1], now=now)

    def _replied(self, reply: ToWorker, *, now: float) -> list[Transmit | Reconnect]:
        """The reply to a call: newer weights, perhaps with the settlement of a push."""
        if isinstance(reply, messages.Weights | messages.NotModified):
            self._epoch, self._version = reply.epoch, reply.version
            if self.ready_seconds is None and reply.version:
                self.ready_seconds = now - self._began
        settlement = settlement_of(reply)
        if settlement is None or self._pushed_at is None:
            return []
        self.round_trips[bucket_of(now - self._pushed_at)] += 1
        self._pushed_at = None
        if settlement.verdict == "discarded":
            self.discarded += 1
            self.reasons[settlement.code] = settlement.reason
        else:
            self.settled += 1
            self.staleness[settlement.staleness] += 1
        self._push_due = now + self._pause() if self._is_pushing else None
        return self._push_now(now=now)

    def _push_now(self, *, now: float) -> list[Transmit | Reconnect]:
        """The next push, if it is due without a pause."""
        if self._push_due is None or self._push_due > now:
            return []
        self._push_due = None
        return self._push(now=now)
