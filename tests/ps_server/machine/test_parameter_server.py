"""Pushes, pulls, reports and silence, as transcripts. With sgd and learning rate 1 the weights are exact integers."""

import pytest

from ps_common.protocol import messages
from ps_common.protocol.messages import NO_LIMIT, NotModified, Settlement, Weights
from ps_server.state.training_run import PUSH_WINDOW
from tests.ps_server.transcripts import EPOCH, Transcript, encoded, received, sends

# -- push -------------------------------------------------------------------------------------------------------------


def test_a_push_is_applied_and_the_reply_describes_it(server: Transcript) -> None:
    push = server.push_of(1, steps=20)
    settled = server.answer(messages.Settled, "a", push, encoded([1, 2, 3]))
    assert settled.settlement == Settlement(sequence=1, verdict="applied", version=2, credit=NO_LIMIT // 2)
    assert settled.global_steps == 20
    assert server.weights() == [-1, -2, -3]


def test_a_repeated_push_is_applied_once(server: Transcript) -> None:
    push = server.push_of(1, steps=20)
    server.answer(messages.Settled, "a", push, encoded([1, 2, 3]))
    for _ in range(3):
        settled = server.answer(messages.Settled, "a", push, encoded([1, 2, 3]))
        assert settled.settlement == Settlement(sequence=1, verdict="duplicate", version=2, credit=NO_LIMIT // 2)
        assert settled.global_steps == 20
    assert server.weights() == [-1, -2, -3]
    assert server.machine.status(now=server.now).duplicates == 3


def test_pushes_may_overtake_each_other(server: Transcript) -> None:
    for sequence in (3, 1, 2, 3, 1):
        server.push("a", sequence, [sequence, 0, 0])
    assert server.weights() == [-6, 0, 0]
    assert server.hello("a").settled_through == 3


def test_a_push_outside_the_window_is_refused_and_welcome_later(server: Transcript) -> None:
    refused = server.refusal("a", server.push_of(PUSH_WINDOW + 1), encoded([1, 1, 1]))
    assert refused.code == "outside_window"
    server.push("a", 1, [1, 0, 0])
    assert server.push("a", PUSH_WINDOW + 1, [1, 0, 0]).verdict == "applied"
    assert server.weights() == [-2, 0, 0]


def test_a_discarded_push_is_settled_counts_nothing_and_is_not_looked_at_again(server: Transcript) -> None:
    settled = server.push("a", 1, [1, float("nan"), 1])
    assert (settled.verdict, settled.code, settled.version) == ("discarded", "not_finite", 1)
    assert "policy.weight" in settled.reason
    assert server.push("a", 1, [1, 1, 1]).verdict == "duplicate"
    status = server.machine.status(now=server.now)
    assert (status.global_steps, status.updates, status.refused) == (0, 0, {"not_finite": 1})
    assert status.workers[0].discarded == 1
    assert server.weights() == [0, 0, 0]


def test_the_learning_rate_falls_with_the_steps_of_all_workers() -> None:
    schedule = {"learning_rate": 1.0, "final_learning_rate": 0.0, "anneal_steps": 40}
    server = Transcript.seeded(workers=("a", "b"), schedule=schedule)
    for sequence, expected in ((1, -8.0), (2, -12.0), (3, -12.0)):
        worker = "ab"[sequence % 2]
        server.push(worker, sequence, [8, 0, 0], steps=20)
        assert server.weights() == [expected, 0, 0]


# -- pull -------------------------------------------------------------------------------------------------------------


def test_a_pull_brings_the_newest_weights_and_what_they_are(server: Transcript) -> None:
    server.push("a", 1, [1, 2, 3])
    pulled = server.pull("b")
    assert pulled.message == Weights(
        request=pulled.message.request, epoch=EPOCH, version=2, global_steps=20, target_version=2, workers=2
    )
    assert received(pulled) == [-1, -2, -3]


@pytest.mark.parametrize(
    ("have", "epoch", "modified"),
    [(2, EPOCH, False), (1, EPOCH, True), (3, EPOCH, True), (2, EPOCH - 1, True), (0, 0, True)],
)
def test_a_pull_brings_nothing_only_to_this_version_of_this_epoch(
    server: Transcript, have: int, epoch: int, modified: bool
) -> None:
    server.push("a", 1)
    pulled = server.pull("b", have=have, epoch=epoch)
    assert isinstance(pulled.message, Weights if modified else NotModified)
    assert (pulled.snapshot is not None) == modified
    assert server.machine.pushes.not_modified == (0 if modified else 1)


def test_the_target_has_versions_of_its_own() -> None:
    server = Transcript.seeded(workers=("a", "b"), algorithm={"name": "n_step_q"})
    server.push("a", 1)
    assert received(server.pull("b", target=True, epoch=0)) == [0, 0, 0]
    assert isinstance(server.pull("b", target=True, have=1).message, NotModified)
    server.run.weights.refresh_target()
    target = server.pull("b", target=True, have=1)
    assert received(target) == [-1, -1, -1]
    assert isinstance(target.message, Weights)
    assert target.message.version == 2


# -- a push that asks for weights -------------------------------------------------------------------------------------


def test_a_push_that_asks_for_weights_is_settled_and_brings_the_weights_in_one_reply(server: Transcript) -> None:
    reply = server.ask("a", server.push_pull_of(1, have=1), encoded([1, 2, 3]))
    assert sends(server.effects) == [reply]
    assert isinstance(reply.message, Weights)
    assert reply.message.settled == Settlement(sequence=1, verdict="applied", version=2, credit=NO_LIMIT // 2)
    assert (reply.message.version, reply.message.global_steps) == (2, 20)
    assert received(reply) == [-1, -2, -3]


def test_a_push_that_asks_for_weights_in_an_unknown_codec_is_refused_and_not_settled(server: Transcript) -> None:
    """The weights could not go back in it; a refusal must not hide what became of the push."""
    refused = server.refusal("a", server.push_pull_of(1, have=1, weight_codec="zip"), encoded([1, 2, 3]))
    assert refused.code == "unknown_codec"
    assert server.machine.refusals.counts == {"unknown_codec": 1}
    assert server.push("a", 1).verdict == "applied"


# -- who is there -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "message",
    [
        messages.Push(request=5, sequence=1, computed_on=1, epoch=EPOCH, schema_hash="x"),
        messages.Report(request=5, sequence=1),
        messages.Heartbeat(request=5),
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_stranger_is_asked_for_hello_first(server: Transcript, message: messages.ToServer) -> None:
    refused = server.refusal("nobody", message)
    assert refused.code == "unknown_worker"
    assert "HELLO" in refused.reason


def test_a_heartbeat_tells_how_far_the_run_and_its_checkpoint_are(server: Transcript) -> None:
    server.push("a", 1)
    server.save_and_complete()
    server.push("a", 2)
    alive = server.heartbeat("a")
    assert (alive.epoch, alive.version, alive.global_steps, alive.durable) == (EPOCH, 3, 40, 1)
    assert server.heartbeat("b").durable == 0


# -- reports ----------------------------------------------------------------------------------------------------------


def test_a_report_is_counted_once(server: Transcript) -> None:
    server.run.ledger.change("a", unplayed=900)
    report = messages.Report(request=50, sequence=1, episodes=(messages.Episode(21.0, 900),), meters={"loss": 0.5})
    for _ in range(3):
        assert server.answer(messages.Noted, "a", report) == messages.Noted(request=50, sequence=1)
    status = server.machine.status(now=server.now)
    assert (status.episodes, status.mean_return_100) == (1, 21.0)
    assert status.workers[0].meters == {"loss": 0.5}


def test_the_newest_meters_are_kept_and_no_others(server: Transcript) -> None:
    """Names are the worker's own: kept for ever, they would fill the memory and the status."""
    for sequence in range(1, 1000):
        server.now += 0.25
        server.report("a", sequence, **{f"meter {sequence % 4} {number}": sequence for number in range(32)})
    (worker, _) = server.machine.status(now=server.now).workers
    assert worker.meters == {f"meter 3 {number}": 999 for number in range(32)}
    server.report("a", 1000, **{f"another {number}": 1.0 for number in range(31)}, **{"meter 0 0": 2.0})
    (worker, _) = server.machine.status(now=server.now).workers
    assert worker.meters == {"meter 0 0": 2.0}
