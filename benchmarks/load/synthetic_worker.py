"""A worker that computes nothing: joins, pulls, and pushes zeros with a pause between two. Pure."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from ps_client.machine.effects import Effect, Joined, Phase, Reconnect, Resolve, Transmit
from ps_client.machine.parameter_client import ParameterClient
from ps_common.protocol import messages
from ps_common.protocol.messages import ToWorker, settlement_of
from ps_common.protocol.tensors import Schema
from ps_common.protocol.wire import Buffer

TICK_SECONDS = 0.25  # between two ticks of its machine, at most
SEED_CODEC = "float32"


@dataclass(frozen=True)
class Task:
    """What every worker sends."""

    schema: Schema
    seed: Sequence[Buffer]  # for a run without weights
    gradient: Sequence[Buffer]
    gradient_codec: str
    weight_codec: str
    pause: Callable[[], float]  # the seconds from a reply to the next push


@dataclass
class Counts:
    """What the workers have seen together."""

    join_seconds: list[float] = field(default_factory=list)  # from connecting to WELCOME
    ready_seconds: list[float] = field(default_factory=list)  # from connecting to the first weights
    round_trip_seconds: list[float] = field(default_factory=list)  # from a push to its settlement
    staleness: list[int] = field(default_factory=list)  # versions
    refused: Counter[str] = field(default_factory=Counter)  # requests and pushes, by "code: reason"


class SyntheticWorker:
    """One worker, from its first HELLO on. `now` is seconds of any monotonic clock."""

    def __init__(self, machine: ParameterClient, task: Task, counts: Counts, *, now: float) -> None:
        self.is_ready = False  # whether it has had weights
        self.settled = 0  # pushes that were applied
        self._machine, self._task, self._counts = machine, task, counts
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
            self._counts.refused[f"{message.code}: {message.reason}"] += 1
        # The machine keeps the newest weights for a server that loses them: a thousand workers would keep gigabytes.
        kept = self._task.seed if isinstance(message, messages.Weights) else vector
        if isinstance(message, messages.Weights):
            message = msgspec.structs.replace(message, codec=SEED_CODEC)
        return self._after(self._machine.receive(message, kept, now=now), now=now)

    def tick(self, *, now: float) -> list[Transmit | Reconnect]:
        """Time has passed."""
        effects = self._after(self._machine.tick(now=now), now=now)
        return effects + self._push_if_due(now=now)

    def next_tick(self, *, now: float) -> float:
        """When `tick` has something to do at the latest."""
        if self.is_over:
            return float("inf")
        due = min(self._machine.next_tick(), now + TICK_SECONDS)
        return due if self._push_due is None else min(due, self._push_due)

    def begin_pushing(self, *, now: float) -> None:
        """Push from now on: the first push comes within one pause."""
        self.settled = 0
        self._is_pushing = self.is_ready
        self._push_due = now + self._task.pause() if self._is_pushing else None

    def end_pushing(self) -> None:
        """Push no more. A push in flight is not counted."""
        self._is_pushing, self._push_due, self._pushed_at = False, None, None

    def leave(self, *, now: float) -> list[Transmit | Reconnect]:
        """Send GOODBYE."""
        self.end_pushing()
        _, effects = self._machine.leave("the load test is over", now=now)
        return self._after(effects, now=now)

    def _after(self, effects: list[Effect], *, now: float) -> list[Transmit | Reconnect]:
        """The effects that remain to be carried out, and those that follow from them."""
        left: list[Transmit | Reconnect] = []
        for effect in effects:
            match effect:
                case Transmit() | Reconnect():
                    left.append(effect)
                case Joined():
                    left += self._begin(now=now)
                case Resolve():
                    left += self._replied(effect.reply, now=now)
        return left

    def _begin(self, *, now: float) -> list[Transmit | Reconnect]:
        """The first WELCOME: seed the run unless it has weights, and pull."""
        self._counts.join_seconds.append(now - self._began)
        task = self._task
        _, seeding = self._machine.seed(task.schema, SEED_CODEC, task.seed, now=now)
        sent = self._after(seeding, now=now)
        _, pulling = self._machine.pull(have_epoch=0, have_version=0, codec=task.weight_codec, now=now)
        return sent + self._after(pulling, now=now)

    def _push(self, *, now: float) -> list[Transmit | Reconnect]:
        self._push_due, self._pushed_at = None, now
        _, effects = self._machine.push(
            self._task.gradient_codec,
            self._task.gradient,
            epoch=self._epoch,
            computed_on=self._version,
            steps=1,
            weight_codec=self._task.weight_codec,
            now=now,
        )
        return self._after(effects, now=now)

    def _replied(self, reply: ToWorker, *, now: float) -> list[Transmit | Reconnect]:
        """The reply to a call: newer weights, perhaps with the settlement of a push."""
        if isinstance(reply, messages.Weights | messages.NotModified):
            self._epoch, self._version = reply.epoch, reply.version
            if not self.is_ready and reply.version:
                self.is_ready = True
                self._counts.ready_seconds.append(now - self._began)
        settlement = settlement_of(reply)
        if settlement is None or self._pushed_at is None:
            return []
        self._counts.round_trip_seconds.append(now - self._pushed_at)
        self._pushed_at = None
        if settlement.verdict == "discarded":
            self._counts.refused[f"{settlement.code}: {settlement.reason}"] += 1
        else:
            self.settled += 1
            self._counts.staleness.append(settlement.staleness)
        self._push_due = now + self._task.pause() if self._is_pushing else None
        return self._push_if_due(now=now)

    def _push_if_due(self, *, now: float) -> list[Transmit | Reconnect]:
        return [] if self._push_due is None or self._push_due > now else self._push(now=now)
