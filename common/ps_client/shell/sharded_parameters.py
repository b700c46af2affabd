"""
The run's parameters when shards hold them: each vector is cut into the ranges of the shards, and put together again.

Each push goes to every shard, with the same steps, before any reply is awaited. A pull is of one version for each
shard.
"""

import math
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from ps_client.shell.remote_parameters import Newest, RemoteParameters
from ps_client.shell.zmq_client import ReplyFuture
from ps_common.protocol.codecs import CODECS
from ps_common.protocol.messages import Episode
from ps_common.protocol.tensors import Schema, norm_of
from ps_common.settings.run_spec import Algorithm

SEEDED_SECONDS = 10.0  # for the worker whose weights shard 1 took to seed the others
LOOK_SECONDS = 0.05  # between two looks whether it has
TURN_SECONDS = 0.05  # for one connection, while others wait to be driven

T = TypeVar("T")


class ShardedParameters:
    """As RemoteParameters, of which it has one for each shard. Every call raises PsRlError once the run is over."""

    def __init__(self, parts: Sequence[RemoteParameters], schema: Schema) -> None:
        """`schema` is that of the trainer's network."""
        self._parts = parts
        self._weight_count = schema.weights
        self._ranges = [part.schema.range for part in parts]
        self._weights, self._target = torch.zeros(schema.size), torch.zeros(0)  # as put together last

    def seed(self, weights: Tensor) -> bool:
        """
        Offer first weights [P]; whether the run begins with them.

        The worker whose weights shard 1 has taken seeds the other shards at once. Others do it only when that worker
        does not, because it has died.
        """
        first, *others = zip(self._parts, self._ranges, strict=True)
        is_taken = first[0].seed(weights[first[1]])
        end = time.monotonic() + (0.0 if is_taken else SEEDED_SECONDS)
        while time.monotonic() < end and not all(part.pull().version for part, _ in others):
            time.sleep(LOOK_SECONDS)
        for part, its_range in others:
            part.seed(weights[its_range])
        return is_taken

    def pull(self, have: Newest | None = None, *, target: bool = False) -> Newest:
        """The newest weights of each shard; without the vector when they are those of `have`."""
        known = have.parts if have else [None] * len(self._parts)
        requests = [part.request(one, target=target) for part, one in zip(self._parts, known, strict=True)]
        replies = zip(self._parts, results(requests), known, strict=True)
        pulled = [part.newest(reply, one) for part, reply, one in replies]
        if not target:
            return self._joined(pulled, self._weights)
        if len(self._target) == 0:
            self._target = torch.zeros_like(self._weights)
        return self._joined(pulled, self._target)

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
        Push the ranges of a gradient [P], or steps alone, to all shards, and pull what is newer than the weights it was
        computed on.

        A shard sees its own range alone, so it is told the norm of the whole: a gradient that one shard has to discard
        is discarded by all. So is one that the codec makes infinite.
        """
        norm = 0.0 if gradient is None else self._norm_of(gradient)
        for part, its_range, have in zip(self._parts, self._ranges, computed_on.parts, strict=True):
            of_part = None if gradient is None else gradient[its_range]
            part.push(of_part, computed_on=have, steps=steps, pulls=pulls, norm=norm, blocks=blocks)
        results([reply for part in self._parts for reply in part.awaited()])
        newest = [part.replied(have) for part, have in zip(self._parts, computed_on.parts, strict=True)]
        return self._joined(newest, self._weights)

    def _norm_of(self, gradient: Tensor) -> float:
        norm, overflow = norm_of(gradient, self._weight_count), CODECS[self._parts[0].wire.gradient_codec].overflow
        is_too_large = norm >= overflow and float(gradient[: self._weight_count].abs().max()) >= overflow
        return math.inf if is_too_large else norm

    def report(self, episodes: Sequence[Episode], meters: dict[str, float]) -> None:
        """Report episodes and meters to every shard, without waiting: each counts the games of the run."""
        for part in self._parts:
            part.report(episodes, meters)

    def finish(self) -> None:
        """Wait until every shard has settled every push and answered every report."""
        for part in self._parts:
            part.finish()

    def adjusted_algorithm(self) -> Algorithm | None:
        """The algorithm's settings when they were adjusted since this was called last, else None; those of shard 1."""
        return self._parts[0].adjusted_algorithm()

    def _joined(self, parts: Sequence[Newest], vector: Tensor) -> Newest:
        """
        The parts as one. Its versions are sums, which differ when a version of any shard does: none ever falls.

        `vector` has the weights of former parts, and gets the new ones.
        """
        for part, its_range in zip(parts, self._ranges, strict=True):
            if part.weights is not None:
                vector[its_range] = part.weights
        discarded = [part.settled for part in parts if part.settled and part.settled.verdict == "discarded"]
        return Newest(
            epoch=sum(part.epoch for part in parts),
            version=sum(part.version for part in parts),
            global_steps=parts[0].global_steps,
            target_version=sum(part.target_version for part in parts),
            weights=vector if any(part.weights is not None for part in parts) else None,
            settled=discarded[0] if discarded else parts[0].settled,
            parts=tuple(replace(part, weights=None) for part in parts),
            workers=parts[0].workers,
            recalls=sum(part.recalls for part in parts),
        )


Parameters = RemoteParameters | ShardedParameters


def results(futures: Sequence[ReplyFuture[T]]) -> list[T]:
    """All results, of futures on several connections, which are driven in turn. The first error is raised at once."""
    while waiting := [future for future in futures if not future.done()]:
        with suppress(TimeoutError):
            waiting[0].exception(timeout=TURN_SECONDS)
        for future in futures:
            if future.done():
                future.result()
    return [future.result() for future in futures]
