"""
The run's parameters as the trainer sees them: vectors in and out, one call at a time, wherever the servers are.

Where shards hold the run, each vector is cut into their ranges, and put together again. Each push goes to every shard,
with the same steps, before any reply is awaited. A pull is of one version for each shard.
"""

import logging
import math
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
from msgspec.structs import replace
from torch import Tensor

from ps_client.shell.gradient_encoder import GradientEncoder
from ps_client.shell.newest import Newest, joined
from ps_client.shell.zmq_client import Reply, ReplyFuture, ZmqClient
from ps_common.errors import RequestRefused, RunEnded, WireError
from ps_common.protocol import messages
from ps_common.protocol.codecs import CODECS, NO_GRADIENT, codec_named
from ps_common.protocol.deltas import DELTA, WHOLE, Base
from ps_common.protocol.messages import MOST_EPISODES, Episode, Run, settlement_of
from ps_common.protocol.tensors import Schema, norm_of
from ps_common.settings.run_settings import run_from_dict
from ps_common.settings.run_spec import Algorithm, Wire

SEED_CODEC = "float32"  # of the first weights
DRAINED = "its workers were asked to leave (ps-ctl drain)"
MOST_DISCARDED = 20  # unrolls in a row without a gradient that is applied: training is broken
SEEDED_SECONDS = 10.0  # in which the worker whose weights shard 1 took seeds the others
LOOK_SECONDS = 0.05  # between two looks whether they are seeded
TURN_SECONDS = 0.05  # for one connection, while others wait to be driven

T = TypeVar("T")

log = logging.getLogger("rl-worker")


@dataclass(frozen=True)
class Part:
    """The range of the weights that one server holds, and the connection to it."""

    client: ZmqClient
    schema: Schema  # of the range
    gradients: GradientEncoder


class RemoteParameters:
    """The weights of the run that the servers train. Every call raises PsRlError once a conversation is over."""

    def __init__(self, clients: Sequence[ZmqClient], schema: Schema, wire: Wire) -> None:
        """
        `clients` are connected to the shards in order, or to the one server; `schema` is that of the trainer's network;
        `wire` are the codecs. Raises SchemaMismatch for a network with fewer parameters than servers.
        """
        self._schema, self._wire = schema, wire
        schemas = [schema.of_shard(at, len(clients)) for at in range(1, len(clients) + 1)]
        self._parts = [
            Part(client, its, GradientEncoder(wire.gradient_codec, its))
            for client, its in zip(clients, schemas, strict=True)
        ]
        self._pushes = 0
        # Pushes, the oldest first: the reply of each server, what it was computed on, and whether it counts steps.
        self._in_flight: deque[tuple[Sequence[ReplyFuture[Reply]], Newest, bool]] = deque()
        self._reported: Sequence[ReplyFuture[Reply]] = ()  # the last reports
        self._refused_reports: set[str] = set()  # the codes that were logged
        self._discarded = 0
        self._adjusted_run: Run | None = None
        self._together: dict[bool, Tensor] = {}  # weights of all shards, as put together last; True: of the target

    def seed(self, weights: Tensor) -> bool:
        """
        Offer first weights [P]; whether the run begins with them, as it does with those of the first worker.

        The worker whose weights shard 1 has taken seeds the other shards at once. Others do it only when that worker
        does not, because it has died.
        """
        first, *others = self._parts
        is_taken = self._seed(first, weights)
        end = time.monotonic() + (0.0 if is_taken else SEEDED_SECONDS)
        while time.monotonic() < end and not all(newest.version for newest in self._pull(others, [None] * len(others))):
            time.sleep(LOOK_SECONDS)
        for part in others:
            self._seed(part, weights)
        return is_taken

    def pull(self, have: Newest | None = None, *, target: bool = False) -> Newest:
        """The newest weights, of each shard; without the vector when they are those of `have`."""
        known = have.of_parts if have else [None] * len(self._parts)
        return self._joined(self._pull(self._parts, known, target=target), target=target)

    def push_pull(
        self,
        gradient: Tensor | None,
        *,
        computed_on: Newest,
        steps: int,
        pulls: bool = True,
        blocks: tuple[str, ...] = (),
    ) -> Newest:
        """
        Push a gradient [P], or steps alone, and pull what is newer than the weights it was computed on.

        With `pull_every` N only each Nth push asks for weights; after the others the result is `computed_on` without
        weights. With `prefetch` N, N pushes may stay in flight: the result is the reply to an earlier push, without
        weights if newer ones were pulled since; or `computed_on`, if no reply has come yet. `steps` environment steps
        are counted into T. The gradient must not change any more: the resend buffer keeps it until it is durable. With
        `pulls` false this push asks for no weights. It moves the blocks named `blocks`; () are all.

        A shard sees its own range alone, so the push has the norm of the whole: a gradient that one shard has to
        discard is discarded by all. So is one that the codec makes infinite.
        """
        self._pushes += 1
        is_pull = pulls and self._pushes % self._wire.pull_every == 0
        norm = 0.0 if gradient is None or len(self._parts) == 1 else self._norm_of(gradient)
        replies = [
            self._push(part, gradient, have, is_pull=is_pull, steps=steps, norm=norm, blocks=blocks)
            for part, have in zip(self._parts, computed_on.of_parts, strict=True)
        ]
        self._in_flight.append((replies, computed_on, steps > 0))
        newest = [replace(part, weights=None, settled=None) for part in computed_on.of_parts]
        while len(self._in_flight) > self._wire.prefetch:
            newest = self._newer(newest, *self._in_flight.popleft())
        return self._joined(newest, target=False)

    def adjusted_algorithm(self) -> Algorithm | None:
        """
        The algorithm's settings when they were adjusted since this was called last, else None; those of shard 1.

        To be called between two unrolls. Raises RunEnded when the run is drained and all pushes are settled.
        """
        machine = self._parts[0].client.machine
        if machine.is_drained:
            while self._in_flight:
                results(self._in_flight.popleft()[0])
            raise RunEnded(DRAINED)
        if (run := machine.adjusted_run) is self._adjusted_run or run is None:
            return None
        self._adjusted_run = run
        return run_from_dict(run, source="the server").algorithm

    def report(self, episodes: Sequence[Episode], meters: dict[str, float]) -> None:
        """Report episodes and meters to every shard, since each counts the games of the run, without waiting."""
        for at in range(0, max(1, len(episodes)), MOST_EPISODES):
            games = episodes[at : at + MOST_EPISODES]
            clients = [part.client for part in self._parts]
            self._reported = [client.call(partial(client.machine.report, games, meters)) for client in clients]
            for reported in self._reported:
                reported.add_done_callback(self._log_refused)

    def finish(self) -> None:
        """Wait until every push is settled and every report has its reply."""
        while self._in_flight:
            replies, _, counts_steps = self._in_flight.popleft()
            self._check(results(replies), counts_steps=counts_steps)
        for reported in self._reported:
            reported.exception()

    # -- one server ---------------------------------------------------------------------------------------------------

    def _seed(self, part: Part, weights: Tensor) -> bool:
        vector = [CODECS[SEED_CODEC].encode(weights[part.schema.range].clone())]  # the copy may be sent again
        call = partial(part.client.machine.seed, part.schema, SEED_CODEC, vector)
        reply, _ = part.client.call(call).result()
        return isinstance(reply, messages.Seeded) and reply.accepted

    def _pull(self, parts: Sequence[Part], known: Sequence[Newest | None], *, target: bool = False) -> list[Newest]:
        requests = []
        for part, have in zip(parts, known, strict=True):
            call = partial(
                part.client.machine.pull,
                have_epoch=have.epoch if have else 0,
                have_version=have.version if have else 0,
                target=target,
                codec=self._weight_codec(have.base if have else None),
            )
            requests.append(part.client.call(call))
        replies = zip(parts, results(requests), known, strict=True)
        return [self._newest(part, reply, have) for part, reply, have in replies]

    def _weight_codec(self, base: Base | None) -> str | Base:
        """The codec of weights for a worker with this base; without a base no delta could be applied."""
        return (base or WHOLE) if self._wire.weight_codec == DELTA else self._wire.weight_codec

    def _push(
        self, part: Part, gradient: Tensor | None, have: Newest, *, is_pull: bool, steps: int, **how: Any
    ) -> ReplyFuture[Reply]:
        """`how`: the blocks that it moves, and the norm of the whole that the gradient is a range of, or 0."""
        vector = [] if gradient is None else [part.gradients.encode(gradient[part.schema.range], **how)]
        call = partial(
            part.client.machine.push,
            NO_GRADIENT if gradient is None else self._wire.gradient_codec,
            vector,
            epoch=have.epoch,
            computed_on=have.version,
            steps=steps,
            weight_codec=self._weight_codec(have.base) if is_pull else None,
            **how,
        )
        return part.client.call(call)

    def _newer(
        self,
        newest: Sequence[Newest],
        replies: Sequence[ReplyFuture[Reply]],
        computed_on: Newest,
        counts_steps: bool,
    ) -> list[Newest]:
        """What the replies to a push bring to each part."""
        received = results(replies)
        self._check(received, counts_steps=counts_steps)
        newer = []
        for part, one, before, have in zip(self._parts, received, newest, computed_on.of_parts, strict=True):
            reply, _ = one
            if isinstance(reply, messages.Settled):
                newer.append(replace(before, settled=reply.settlement, global_steps=reply.global_steps))
                continue
            pulled = self._newest(part, one, have)
            is_outdated = pulled.epoch == before.epoch and pulled.version < before.version
            newer.append(replace(before, settled=pulled.settled) if is_outdated else pulled)
        return newer

    def _newest(self, part: Part, received: Reply, have: Newest | None) -> Newest:
        """What the reply to a pull brings to a worker that has `have`."""
        reply, vector = received
        if not isinstance(reply, messages.Weights | messages.NotModified):
            raise WireError(f"the server replies to a pull with {type(reply).__name__}")
        weights, base = None, have.base if have else None
        if isinstance(reply, messages.Weights):
            weights = codec_named(reply.codec).decode(vector, part.schema.size, part.schema.statistics)
            is_base = self._wire.weight_codec == DELTA and reply.codec == WHOLE
            base = Base(b"".join(vector), part.schema.weights) if is_base else None
        return Newest(
            reply.epoch, reply.version, reply.global_steps, reply.target_version, weights, reply.settled, base=base,
            workers=reply.workers, recalls=reply.recalls,
        )  # fmt: skip

    def _check(self, replies: Sequence[Reply], *, counts_steps: bool) -> None:
        """Raises RequestRefused when too many unrolls in a row are discarded; a single one is skipped."""
        settled = [one for one in map(settlement_of, (reply for reply, _ in replies)) if one is not None]
        refused = next((one for one in settled if one.verdict == "discarded"), None)
        self._discarded = 0 if refused is None else self._discarded + counts_steps
        if refused and (self._discarded >= MOST_DISCARDED or refused.code == "schema_mismatch"):
            raise RequestRefused(refused.code, f"{refused.reason} ({self._discarded} unrolls in a row were discarded)")

    def _log_refused(self, report: Future[Reply]) -> None:
        """A refused report does not count. One warning for each reason is enough."""
        error = report.exception(0)
        if isinstance(error, RequestRefused) and error.code not in self._refused_reports:
            self._refused_reports.add(error.code)
            log.warning("%s: these games and meters do not count", error)

    def _norm_of(self, gradient: Tensor) -> float:
        norm, overflow = norm_of(gradient, self._schema.weights), CODECS[self._wire.gradient_codec].overflow
        is_too_large = norm >= overflow
        if is_too_large and float(gradient[: self._schema.weights].abs().max()) >= overflow:
            return math.inf
        return norm

    def _joined(self, parts: Sequence[Newest], *, target: bool) -> Newest:
        """The parts as one, with sums of versions, which differ when a version of any shard does: none ever falls."""
        if len(parts) == 1:
            return parts[0]
        if target not in self._together:
            self._together[target] = torch.zeros(self._schema.size)
        return joined(parts, [part.schema.range for part in self._parts], self._together[target])


def results(futures: Sequence[ReplyFuture[T]]) -> list[T]:
    """All results, of futures on several connections, which are driven in turn. The first error is raised at once."""
    while len(futures) > 1 and (waiting := [future for future in futures if not future.done()]):
        with suppress(TimeoutError):
            waiting[0].exception(timeout=TURN_SECONDS)
        for future in futures:
            if future.done():
                future.result()
    return [future.result() for future in futures]
