"""The run's parameters as the trainer sees them: vectors in and out, one call at a time, wherever the server is."""

import logging
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from ps_client.shell.zmq_client import Reply, ReplyFuture, ZmqClient
from ps_common.errors import RequestRefused, RunEnded, WireError
from ps_common.program.output import LogOfPeer
from ps_common.protocol import messages
from ps_common.protocol.codecs import CODECS, NO_GRADIENT, codec_named
from ps_common.protocol.deltas import DELTA, WHOLE, Base
from ps_common.protocol.messages import MOST_EPISODES, Episode, Run, Settlement, settlement_of
from ps_common.protocol.tensors import ABSURD_NORM, Schema, norm_of
from ps_common.settings.run_settings import run_from_dict
from ps_common.settings.run_spec import Algorithm, Wire

SEED_CODEC = "float32"  # of the first weights
DRAINED = "its workers were asked to leave (ps-ctl drain)"
MOST_DISCARDED = 20  # unrolls in a row without a gradient that is applied: training is broken

log = logging.getLogger("rl-worker")


@dataclass(frozen=True)
class Newest:
    """The newest version; its weights unless the worker has them already."""

    epoch: int
    version: int
    global_steps: int
    target_version: int
    weights: Tensor | None  # [P] float32, read-only: a view of the received message
    settled: Settlement | None = None  # of the push that requested the weights
    parts: tuple["Newest", ...] = ()  # of each shard, without weights, where there are shards
    base: Base | None = None  # this version, for the next delta, where weights travel so
    workers: int = 0  # that are alive; 0: the server does not say
    recalls: int = 0  # how often the run went back to a checkpoint in this epoch


class RemoteParameters:
    """The weights of the run that the server trains. Every call raises PsRlError once the conversation is over."""

    def __init__(self, client: ZmqClient, schema: Schema, wire: Wire) -> None:
        """`schema` is that of the trainer's network; `wire` says how vectors travel."""
        self._client = client
        self._machine = client.machine
        self.schema = schema
        self.wire = wire
        self._gradients = GradientEncoder(wire.gradient_codec, schema)
        self._pushes = 0
        # Pushes, the oldest first: what each was computed on, and whether it counts steps, as one of each unroll does.
        self._in_flight: deque[tuple[ReplyFuture[Reply], Newest, bool]] = deque()
        self._reported: ReplyFuture[Reply] | None = None  # the last report
        self._log, self._refused_reports = LogOfPeer(log), deque[str](maxlen=20)  # the codes that were logged
        self._discarded = 0
        self._adjusted_run: Run | None = None

    def seed(self, weights: Tensor) -> bool:
        """Offer first weights [P]; whether the server takes them, as it does those of the first worker."""
        vector = [CODECS[SEED_CODEC].encode(weights.clone())]  # it may be sent again
        reply, _ = self._client.call(partial(self._machine.seed, self.schema, SEED_CODEC, vector)).result()
        return isinstance(reply, messages.Seeded) and reply.accepted

    def pull(self, have: Newest | None = None, *, target: bool = False) -> Newest:
        """The newest weights; without the vector when they are those of `have`."""
        return self.newest(self.request(have, target=target).result(), have)

    def request(self, have: Newest | None, *, target: bool) -> ReplyFuture[Reply]:
        """The first half of `pull`, which does not wait; `newest` is the second."""
        epoch, version, base = (have.epoch, have.version, have.base) if have else (0, 0, None)
        call = partial(
            self._machine.pull,
            have_epoch=epoch,
            have_version=version,
            target=target,
            codec=self._weight_codec(base),
        )
        return self._client.call(call)

    def _weight_codec(self, base: Base | None) -> str | Base:
        """How weights come to a worker with this base: without one no delta could be applied."""
        return (base or WHOLE) if self.wire.weight_codec == DELTA else self.wire.weight_codec

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
        """
        self.push(gradient, computed_on=computed_on, steps=steps, pulls=pulls, blocks=blocks)
        return self.replied(computed_on)

    def push(
        self,
        gradient: Tensor | None,
        *,
        computed_on: Newest,
        steps: int,
        pulls: bool = True,
        norm: float = 0.0,
        blocks: tuple[str, ...] = (),
    ) -> None:
        """The first half of `push_pull`, which does not wait. `norm`: of the whole that the gradient is a range of."""
        self._pushes += 1
        is_pull = pulls and self._pushes % self.wire.pull_every == 0
        call = partial(
            self._machine.push,
            NO_GRADIENT if gradient is None else self._gradients.codec,
            [] if gradient is None else [self._gradients.encode(gradient, norm=norm, blocks=blocks)],
            epoch=computed_on.epoch,
            computed_on=computed_on.version,
            steps=steps,
            weight_codec=self._weight_codec(computed_on.base) if is_pull else None,
            norm=norm,
            blocks=blocks,
        )
        self._in_flight.append((self._client.call(call), computed_on, steps > 0))

    def awaited(self) -> Sequence[ReplyFuture[Reply]]:
        """The replies that `replied` will wait for."""
        pushes = list(self._in_flight)[: max(0, len(self._in_flight) - self.wire.prefetch)]
        return [reply for reply, _, _ in pushes]

    def replied(self, computed_on: Newest) -> Newest:
        """The second half of `push_pull`."""
        newest = replace(computed_on, weights=None, settled=None)
        while len(self._in_flight) > self.wire.prefetch:
            reply, have, counts_steps = self._in_flight.popleft()
            received = reply.result()
            self._check(settlement_of(received[0]), counts_steps=counts_steps)
            if isinstance(received[0], messages.Settled):
                newest = replace(newest, settled=received[0].settlement, global_steps=received[0].global_steps)
                continue
            pulled = self.newest(received, have)
            is_outdated = pulled.epoch == newest.epoch and pulled.version < newest.version
            newest = replace(newest, settled=pulled.settled) if is_outdated else pulled
        return newest

    def adjusted_algorithm(self) -> Algorithm | None:
        """
        The algorithm's settings when they were adjusted since this was called last, else None.

        To be called between two unrolls. Raises RunEnded when the run is drained and all pushes are settled.
        """
        if self._machine.is_drained:
            while self._in_flight:
                self._in_flight.popleft()[0].result()
            raise RunEnded(DRAINED)
        if (run := self._machine.adjusted_run) is self._adjusted_run or run is None:
            return None
        self._adjusted_run = run
        return run_from_dict(run, source="the server").algorithm

    def report(self, episodes: Sequence[Episode], meters: dict[str, float]) -> None:
        """Report episodes and meters to the server, without waiting."""
        for at in range(0, max(1, len(episodes)), MOST_EPISODES):
            part = episodes[at : at + MOST_EPISODES]
            self._reported = self._client.call(partial(self._machine.report, part, meters))
            self._reported.add_done_callback(self._log_refused)

    def finish(self) -> None:
        """Wait until every push is settled and every report has its reply."""
        while self._in_flight:
            reply, _, counts_steps = self._in_flight.popleft()
            self._check(settlement_of(reply.result()[0]), counts_steps=counts_steps)
        if self._reported is not None:
            self._reported.exception()

    def _log_refused(self, report: Future[Reply]) -> None:
        """A refused report does not count. One warning for each reason is enough."""
        error = report.exception(0)
        if isinstance(error, RequestRefused) and error.code not in self._refused_reports:
            self._refused_reports.append(error.code)
            self._log.warning("%s: these games and meters do not count", error)

    def newest(self, received: Reply, have: Newest | None) -> Newest:
        """The second half of `pull`: what a reply brings to a worker that has `have`."""
        reply, vector = received
        if not isinstance(reply, messages.Weights | messages.NotModified):
            raise WireError(f"the server replies to a pull with {type(reply).__name__}")
        weights, base = None, have.base if have else None
        if isinstance(reply, messages.Weights):
            weights = codec_named(reply.codec).decode(vector, self.schema.size, self.schema.statistics)
            is_base = self.wire.weight_codec == DELTA and reply.codec == WHOLE
            base = Base(b"".join(vector), self.schema.weights) if is_base else None
        return Newest(
            reply.epoch, reply.version, reply.global_steps, reply.target_version, weights, reply.settled, base=base,
            workers=reply.workers, recalls=reply.recalls,
        )  # fmt: skip

    def _check(self, settled: Settlement | None, *, counts_steps: bool) -> None:
        """Raises RequestRefused when too many unrolls in a row are discarded; a single one is skipped."""
        if settled is None or settled.verdict != "discarded":
            self._discarded = 0
            return
        self._discarded += counts_steps
        if self._discarded >= MOST_DISCARDED or settled.code == "schema_mismatch":
            raise RequestRefused(settled.code, f"{settled.reason} ({self._discarded} unrolls in a row were discarded)")


class GradientEncoder:
    """
    Encodes the gradients of one worker, one after another, with error feedback: the error of a lossy codec on one is
    added to the next (Seide et al. 2014; Karimireddy et al. 2019). No part is lost; some parts arrive later.
    """

    def __init__(self, codec: str, schema: Schema) -> None:
        self.codec = codec
        self._schema = schema
        self._residual = torch.zeros(schema.weights) if CODECS[codec].needs_error_feedback else None

    def encode(self, gradient: Tensor, *, norm: float = 0.0, blocks: tuple[str, ...] = ()) -> memoryview:
        """
        The bytes of a gradient [P], possibly a view of it. The gradient is not changed. The error that is left in a
        block that it does not move waits for one that does.

        The servers discard one with an absurd norm, here or in the whole that it is a range of: no part of it arrives.
        """
        codec, schema = CODECS[self.codec], self._schema
        if self._residual is None or not norm <= ABSURD_NORM >= norm_of(gradient, schema.weights):
            return codec.encode(gradient, schema.statistics)
        wanted = gradient.clone()
        of_weights = wanted[: schema.weights].add_(self._residual)
        waiting = [(place, self._residual[place].clone()) for place in schema.at_rest(blocks)]
        for place, _ in waiting:
            of_weights[place] = 0
        encoded = codec.encode(wanted, schema.statistics)
        sent = codec.decode([encoded], schema.size, schema.statistics)[: schema.weights]
        # An element may be too large for the codec. It must not spoil the gradients after it.
        torch.nan_to_num(torch.sub(of_weights, sent, out=self._residual), 0, 0, 0, out=self._residual)
        for place, left in waiting:
            self._residual[place] = left
        return encoded
