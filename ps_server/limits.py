"""How long a server waits, and how much it takes: what no run decides, whoever serves it."""

from dataclasses import dataclass

RECEIVE_BYTES = 2**30


@dataclass(frozen=True, kw_only=True)
class Limits:
    lease_seconds: float  # silence after which a worker is taken for dead
    checkpoint_seconds: float  # between two checkpoints
    receive_bytes: int = RECEIVE_BYTES  # for the vectors of pushes that are under way or wait
