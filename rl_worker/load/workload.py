"""The values that travel between ps-bench and its processes, as JSON lines: what to do, and what came of it."""

import msgspec

from common.protocol.messages import Run
from common.protocol.tensors import TensorSpec


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """The workers of one process, and what each of them does."""

    server: str
    names: tuple[str, ...]
    schema: tuple[TensorSpec, ...]
    proposed_run: Run
    gradient_codec: str
    weight_codec: str
    compute_seconds: float  # mean between a reply and the next push
    steps: int  # of each push
    join_seconds: float  # until a worker that has no weights yet is counted as one that could not join
    curve_server_key: str | None
    curve_secret: str | None


class Progress(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Workers of a process that have joined and have weights, while the others still try."""

    ready: int


class Joined(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """All workers of a process have weights, or their time to join is over."""

    began: float  # time.time() when the first connection was opened
    ended: float  # when the last of them had its weights
    join_seconds: dict[int, int]  # histogram: from connecting to WELCOME
    ready_seconds: dict[int, int]  # likewise: to the first weights
    refused: dict[str, int]  # replies by code
    reasons: dict[str, str]  # a sentence for each code
    missing: int  # workers without weights


class Pushed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The pushes of a process's workers."""

    seconds: float
    settled: tuple[int, ...]  # pushes that were applied, by worker
    discarded: int
    round_trip_seconds: dict[int, int]  # histogram: from a push to its settlement
    staleness: dict[int, int]  # pushes by versions
    refused: dict[str, int]
    reasons: dict[str, str]
    lost: int  # workers whose conversation with the server is over


Report = Progress | Joined | Pushed
