"""
Faults of other parameter servers, as sentences about ours.

Each test names the system, and the file or the issue where the fault can be read. Repositories on GitHub:
dmlc/ps-lite, bytedance/byteps, sql-machine-learning/elasticdl, apache/mxnet, SurrealAI/surreal, pytorch/examples.
"""

from tests.ps_server.transcripts import Transcript


def test_the_first_push_of_each_of_three_hundred_workers_counts() -> None:
    """
    ps-lite packs the sender of a message into 8 bits (src/resender.h, GetKey). Above 124 workers a sound gradient is
    mistaken for a duplicate, acknowledged, and dropped.
    """
    workers = [f"w{number}" for number in range(300)]
    server = Transcript.seeded(workers=workers)
    assert {server.push(worker, 1, [1, 0, 0]).verdict for worker in workers} == {"applied"}
    assert server.weights() == [-300, 0, 0]


def test_what_is_remembered_of_a_worker_does_not_grow_with_its_pushes(server: Transcript) -> None:
    """ps-lite: `acked_` (src/resender.h) and `tracker_` (src/customer.cc) grow by one entry per message, forever."""
    sizes = set()
    for sequence in range(1, 2001):
        server.push("a", sequence)
        if sequence >= 1000:
            sizes.add(len(str(server.run.ledger.record())))
    assert len(sizes) == 1
