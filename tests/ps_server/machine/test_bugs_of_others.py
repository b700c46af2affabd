"""
Faults of other parameter servers, as sentences about ours.

Each test names the system, and the file or the issue where the fault can be read. Repositories on GitHub:
dmlc/ps-lite, bytedance/byteps, sql-machine-learning/elasticdl, apache/mxnet, SurrealAI/surreal, pytorch/examples.
"""

from ps_common.protocol import messages
from ps_common.protocol.messages import NotModified, Weights
from tests.ps_server.transcripts import LEASE_SECONDS, START, Transcript, encoded, received, sends


def test_the_first_push_of_each_of_three_hundred_workers_counts() -> None:
    """
    ps-lite packs the sender of a message into 8 bits (src/resender.h, GetKey). Above 124 workers a sound gradient is
    mistaken for a duplicate, acknowledged, and dropped.
    """
    workers = [f"w{number}" for number in range(300)]
    server = Transcript.seeded(workers=workers)
    assert {server.push(worker, 1, [1, 0, 0]).verdict for worker in workers} == {"applied"}
    assert server.weights() == [-300, 0, 0]


def test_a_worker_that_was_started_anew_is_not_taken_for_its_former_self(server: Transcript) -> None:
    """ps-lite: the key has no incarnation, so the first pushes of a recovered worker are dropped as duplicates."""
    for sequence in (1, 2, 3):
        server.push("a", sequence, [1, 0, 0])
    server.after(LEASE_SECONDS + 1)
    server.hello("a", process=2, peer="another")
    assert server.push("a", 1, [1, 0, 0], peer="another").verdict == "applied"
    assert server.weights() == [-4, 0, 0]


def test_a_thousand_repetitions_are_a_thousand_answers(server: Transcript) -> None:
    """ps-lite aborts the process after ten retries (src/resender.h, max_num_retry_)."""
    push = server.push_of(1)
    verdicts = [server.answer(messages.Settled, "a", push, encoded([1, 0, 0])).settlement.verdict for _ in range(1000)]
    assert verdicts == ["applied", *["duplicate"] * 999]


def test_what_is_remembered_of_a_worker_does_not_grow_with_its_pushes(server: Transcript) -> None:
    """ps-lite: `acked_` (src/resender.h) and `tracker_` (src/customer.cc) grow by one entry per message, forever."""
    sizes = set()
    for sequence in range(1, 2001):
        server.push("a", sequence)
        if sequence >= 1000:
            sizes.add(len(str(server.run.ledger.record())))
    assert len(sizes) == 1


def test_weights_can_be_pulled_before_the_first_push_of_an_asynchronous_run(server: Transcript) -> None:
    """
    BytePS aborts on such a pull: `CHECK(updates->merged.tensor)` in byteps/server/server.cc fails, because only the
    synchronous engine sets this tensor (byteps#357).
    """
    assert received(server.pull("b")) == [0, 0, 0]


def test_a_push_longer_or_shorter_than_the_weights_touches_nothing(server: Transcript) -> None:
    """BytePS adds as many bytes as the client claims (byteps/server/server.cc), past the end of its own buffer."""
    for sequence, size in enumerate((0, 1, 2, 4, 5, 3_000_000), start=1):
        settled = server.push("a", sequence, [1.0] * size)
        assert (settled.verdict, settled.code) == ("discarded", "wrong_size")
    assert server.weights() == [0, 0, 0]


def test_weights_that_are_on_their_way_are_not_touched_by_the_next_push(server: Transcript) -> None:
    """BytePS sends a view of the live buffer (SendPullResponse): a reader receives a mixture of two versions."""
    pulled = server.pull("b")
    for sequence in range(1, 50):
        server.push("a", sequence)
    assert received(pulled) == [0, 0, 0]


def test_a_pull_brings_weights_to_an_older_version_and_none_to_the_newest(server: Transcript) -> None:
    """
    ElasticDL's Go server compares versions with >= (elasticdl/go/pkg/ps/server.go), which always holds: it sends the
    weights every time.
    """
    server.push("a", 1)
    assert isinstance(server.pull("b", have=1).message, Weights)
    assert isinstance(server.pull("b", have=2).message, NotModified)


def test_a_retry_of_which_only_the_answer_was_lost_counts_once(server: Transcript) -> None:
    """ElasticDL: a gRPC retry applies the gradient a second time (elasticdl#2497)."""
    push = server.push_pull_of(1, have=1)
    first = server.ask("a", push, encoded([1, 2, 3]))
    second = server.ask("a", push, encoded([1, 2, 3]))
    assert received(first) == received(second) == [-1, -2, -3]


def test_all_tensors_of_a_pull_are_of_one_version() -> None:
    """ElasticDL, MXNet and TensorFlow serve tensors one by one in asynchronous runs: a pull mixes versions."""
    server = Transcript.seeded(workers=("a", "b"))
    for sequence in range(1, 30):
        server.push("a", sequence, [1, 1, 1])
        assert len(set(received(server.pull("b")))) == 1


def test_when_the_answer_to_a_push_is_there_the_push_is_in_the_weights(server: Transcript) -> None:
    """MXNet, asynchronous: the reply may precede the update (src/kvstore/kvstore_dist_server.h)."""
    settled = server.push("a", 1, [1, 2, 3])
    pulled = server.pull("a", have=1).message
    assert isinstance(pulled, Weights)
    assert settled.version == pulled.version == 2


def test_nobody_waits_for_a_number_of_workers(server: Transcript) -> None:
    """
    PyTorch's example of a batched RPC parameter server waits for a gradient from every worker, so one dead worker stops
    all of them. ps-lite has a start barrier.
    """
    assert server.push("a", 1).verdict == "applied"
    assert isinstance(server.pull("a").message, Weights)


def test_a_senseless_request_is_answered_and_the_next_is_served(server: Transcript) -> None:
    """SURREAL raises ValueError, which ends the server's thread (surreal/distributed/parameter_server.py)."""
    assert server.refusal("nobody", messages.Heartbeat(request=1)).code == "unknown_worker"
    (send,) = sends(server.machine.unreadable(b"nobody", "not a message", now=server.now))
    assert (send.to, send.message.request) == (b"nobody", 0)
    assert server.machine.refusals.counts == {"unknown_worker": 1, "bad_message": 1}
    assert server.push("a", 1).verdict == "applied"


def test_the_learning_rate_follows_its_schedule_on_the_server() -> None:
    """MXNet: a learning rate that a worker changes never reaches the server's pickled optimizer (mxnet#15919)."""
    schedule = {"learning_rate": 1.0, "final_learning_rate": 0.5, "anneal_steps": 20}
    server = Transcript.seeded(schedule=schedule)
    server.push("a", 1, [1, 0, 0], steps=20)
    assert server.machine.status(now=START).learning_rate == 0.5
    server.push("a", 2, [1, 0, 0])
    assert server.weights() == [-1.5, 0, 0]
