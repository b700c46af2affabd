"""
Guards: the checks that a vector passes before it may touch the weights, and the bounds on what a worker may claim, on
which T, the scores and the end of a run depend. Denied is the refusal of every part of the machine.

Between two pushes a worker makes at most one unroll of all its environments. In a run without an environment T counts
what its workers like. Finished games last a step or more, and together no longer than the steps that their worker's
pushes have counted. Sums of statistics are such as rows of numbers have, so a count never falls. Within these bounds
the server believes a worker.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from msgspec import Struct
from torch import Tensor

from ps_common.errors import PsRlError, SchemaMismatch, UnknownCodec, WireError
from ps_common.protocol.codecs import NO_GRADIENT, codec_named
from ps_common.protocol.deltas import DELTA
from ps_common.protocol.lineage import Shard
from ps_common.protocol.messages import Episode, Push, Seed
from ps_common.protocol.names import MOST, MOST_REWARD
from ps_common.protocol.record import MOST_STEPS
from ps_common.protocol.tensors import ABSURD_NORM, ABSURD_STATISTIC, NO_BLOCK, Schema, norm_of, vector_bytes
from ps_common.protocol.wire import Buffer
from ps_common.settings.run_spec import NO_ENVIRONMENT, RunSpec

MOST_T = MOST // 2  # so that all pushes of one update together leave a number that messages and checkpoints carry


def gradient_of(message: Push, vector: Sequence[Buffer], schema: Schema) -> tuple[Tensor | None, float]:
    """
    The gradient [P] of a push and the Euclidean norm of its part for weights, or of the whole that it is a range of;
    None of a push that counts steps alone.

    Raises Denied, at all shards when one of them would.
    """
    if message.schema_hash != schema.hash:
        raise Denied(
            "schema_mismatch",
            f"the push is for schema {message.schema_hash[:8]}, this run's is {schema.hash[:8]}; "
            "is the worker training the environment and network of this run?",
        )
    if unknown := set(message.blocks) - {block.name for _, block in schema.blocks if block is not NO_BLOCK}:
        raise Denied("unknown_block", f"the push moves block {min(unknown)!r}, which this run does not have")
    if message.codec == NO_GRADIENT:
        if size := vector_bytes(vector):
            raise Denied("wrong_size", f"the codec {NO_GRADIENT} says that there is no gradient, and {size} bytes came")
        return None, 0.0
    gradient, norm = _finite(message.codec, vector, schema, "gradient")
    _check_moments(gradient, schema, least=0)
    if not message.norm <= ABSURD_NORM:
        code = "not_finite" if math.isnan(message.norm) else "absurd_norm"
        raise Denied(code, f"the gradient is refused in the range of another shard; its norm is {message.norm:g}")
    return gradient, max(norm, message.norm)


def seed_of(message: Seed, vector: Sequence[Buffer], shard: Shard) -> tuple[Schema, Tensor]:
    """The schema and the weights [P] of a seed for this shard. Raises Denied."""
    try:
        schema = Schema(message.schema, shard=shard.number, shards=shard.of)
    except SchemaMismatch as error:
        raise Denied("bad_schema", str(error)) from error
    weights, _ = _finite(message.codec, vector, schema, "weights")
    _check_moments(weights, schema, least=1)
    return schema, weights


def codec_for_weights(name: str) -> str:
    """The name, if it is of a codec for weights. Raises Denied."""
    try:
        if name != DELTA:
            codec_named(name, for_weights=True)
    except UnknownCodec as error:
        raise Denied("unknown_codec", str(error)) from error
    return name


def _finite(codec: str, buffers: Sequence[Buffer], schema: Schema, what: str) -> tuple[Tensor, float]:
    """The vector [P] and the Euclidean norm of its part for weights; statistics are sums, as large as what is seen."""
    try:
        vector = codec_named(codec).decode(buffers, schema.size, schema.statistics)
    except UnknownCodec as error:
        raise Denied("unknown_codec", str(error)) from error
    except WireError as error:
        raise Denied("wrong_size", str(error)) from error
    norm = norm_of(vector, schema.weights)
    if norm <= ABSURD_NORM:  # NaN is not
        return vector, norm
    for name, tensor in schema.views(vector).items():
        if not bool(torch.isfinite(tensor).all()):
            raise Denied("not_finite", f"the {what} of tensor {name!r} holds NaN or Inf")
    if norm_of(vector[: schema.weights], schema.weights) <= ABSURD_NORM:
        reason = f"a sum in its statistics is above {ABSURD_STATISTIC:g}"
        raise Denied("absurd_norm", f"{reason}: observations or rewards are too large; scale them in the environment")
    raise Denied("absurd_norm", f"the {what} has a norm of more than {ABSURD_NORM:g}")


def _check_moments(vector: Tensor, schema: Schema, *, least: int) -> None:
    """
    Raises Denied unless sums of rows are those of some rows, `least` or more: (Σx)² is at most count · Σx².

    Rounding may make up a thousandth of the squares, and a standard deviation of a millionth.
    """
    for path, (count, total, squares) in schema.moments.items():
        flat = vector.numpy()  # of so few numbers it is several times as fast
        rows, sums_of_squares = flat.item(count.start), flat[squares].astype(float)
        most = rows * (1.001 * sums_of_squares + 1e-12 * rows)
        is_of_rows = rows >= least and (rows > 0 or not sums_of_squares.any()) and not (sums_of_squares < 0).any()
        if not is_of_rows or (np.square(flat[total], dtype=float) > most).any():
            raise Denied("absurd_statistic", f"no {rows:g} rows have the sums {path}.total and {path}.squares")


def most_steps(environments: int, run: RunSpec) -> int:
    """The steps that a worker can make in its environments between two pushes."""
    is_game = run.environment.id != NO_ENVIRONMENT
    return min(environments * run.algorithm.unroll_length, MOST_STEPS) if is_game else MOST_STEPS


def check_steps(steps: int, *, before: int, environments: int, run: RunSpec) -> None:
    """Raises Denied when a worker cannot have made these steps, or the run cannot count them: `before` is its T."""
    if steps > (most := most_steps(environments, run)):
        if run.environment.id == NO_ENVIRONMENT:
            raise Denied("absurd_steps", f"the push counts {steps} steps, and at most {most} are accepted")
        raise Denied(
            "absurd_steps",
            f"the push counts {steps} steps; {environments} environments make at most {most} in an unroll of "
            f"{run.algorithm.unroll_length}: HELLO names the number of environments, the run the length of an unroll",
        )
    if before + steps > MOST_T:
        raise Denied("absurd_steps", f"a run counts at most {MOST_T} steps, and this one has {before}")


def check_games(episodes: Sequence[Episode], *, unplayed: int) -> None:
    """`unplayed`: steps counted by pushes that belong to no reported game. Raises Denied."""
    for episode in episodes:
        if episode.length < 1:
            raise Denied("absurd_length", "a game without a step is reported, so the report does not count")
        if not abs(episode.episode_return) <= MOST_REWARD * episode.length:  # NaN is not
            raise Denied(
                "absurd_return",
                f"a game of {episode.length} steps is reported with the return {episode.episode_return:g}; at most "
                f"{MOST_REWARD:g} a step is accepted, so the report does not count",
            )
    claimed = sum(episode.length for episode in episodes)
    if claimed > unplayed:
        raise Denied(
            "absurd_length",
            f"the games of the report lasted {claimed} steps, but this worker's pushes have counted "
            f"{max(0, unplayed)} that belong to no game yet, so the report does not count",
        )


class Denied(PsRlError):
    """A request that is refused. The machine replies with a code for programs and a sentence for people."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class Accepted(Struct, frozen=True, eq=False):
    """Steps to count, and a gradient [P] to apply with the norm of its part for weights; None: steps alone."""

    staleness: int
    steps: int
    gradient: Tensor | None
    norm: float
    blocks: tuple[str, ...]  # that it moves; () are all


class Discarded(Struct, frozen=True, eq=False):
    staleness: int
    reason: Denied
