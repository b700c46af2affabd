"""How long a server waits, and how much it takes: what no run decides, whoever serves it."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Limits:
    lease_seconds: float  # silence after which a worker is taken for dead
    checkpoint_seconds: float  # between two checkpoints
    receive_bytes: int = 2**30  # for the vectors of pushes that are under way or wait
