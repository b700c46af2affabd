"""
How much the memory of a server may grow because of its workers. Pure; docs/GUARANTEES.md states the formula.

For each worker the server keeps its account and its member, and ZeroMQ two queues of its connection. A worker of
ps-bench has one push in flight: its gradient may be on the way in, and weights on the way out. Weights that leave
slowly stay in memory, each version once.
"""

FIRST_BYTES = 16 * 2**20  # of the first push, whoever sends it: code that has not run before, and its buffers
WORKER_BYTES = 100 * 1024  # measured: 34 to 75 KiB, with 100 to 1,000 workers


def most_growth_bytes(workers: int, *, gradient_bytes: int, weight_bytes: int) -> int:
    """Resident bytes beyond those of the same server without workers. Vectors in flight are bytes as on the wire."""
    return FIRST_BYTES + workers * (WORKER_BYTES + gradient_bytes + weight_bytes)
