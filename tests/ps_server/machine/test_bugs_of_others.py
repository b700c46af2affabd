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
