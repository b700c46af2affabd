"""Scores of games that were played apart from training: what they decide, and what they leave as it is."""

from typing import Any

import msgspec
import pytest

from ps_common.protocol.messages import Evaluated, Evaluation
from ps_server.state.effects import KeepCandidate, RecordEvaluation, SaveCheckpoint
from tests.ps_server.standby.test_standby import WithStandby, are_alike, the_run
from tests.ps_server.transcripts import EPOCH, RUN_ID, Transcript, encoded, only, restored_run

EVERY = 40  # steps, of two pushes
ON = {"evaluate_every": EVERY}


def evaluation(version: int, mean: float = 1.0, **fields: Any) -> Evaluation:
    known = {"request": 5, "run_id": RUN_ID, "global_steps": 20 * version, "minutes": 0.5, "games": 10}
    return Evaluation(**(known | {"version": version, "mean_return": mean} | fields))


def evaluate(server: Transcript, version: int, mean: float = 1.0) -> Evaluated:
    return server.answer(Evaluated, "an evaluator", evaluation(version, mean))


def train(server: Transcript, first: int, last: int) -> list[SaveCheckpoint]:
    """Pushes with these sequences, with a second after each; the checkpoints that were written."""
    written: list[SaveCheckpoint] = []
    for sequence in range(first, last + 1):
        server.push("a", sequence)
        for saved in server.after(1.0):
            if isinstance(saved, SaveCheckpoint):
                written.append(saved)
                server.machine.checkpoint_saved("here")
    return written


def test_a_checkpoint_is_put_aside_every_so_many_steps_and_no_other_before_it_was_evaluated() -> None:
    server = Transcript.seeded(records=ON)
    (first,) = train(server, 1, 6)
    assert (first.global_steps, first.candidate) == (EVERY, True)
    assert not evaluate(server, first.record.version - 1).best, "these weights are not those put aside"
    assert train(server, 7, 8) == []
    assert evaluate(server, first.record.version) == Evaluated(request=5, counted=True, best=True)
    (second,) = train(server, 9, 10)
    assert second.candidate
    assert second.record.progress.evaluated == first.record.version


def test_an_evaluation_is_counted_once_and_the_highest_is_the_best_checkpoint() -> None:
    server = Transcript.seeded(records=ON)
    (saved,) = train(server, 1, 2)
    assert evaluate(server, saved.record.version, 5.0).best
    recorded = only(RecordEvaluation, server.effects)
    assert (recorded.evaluation.mean_return, recorded.best) == (5.0, True)
    assert only(KeepCandidate, server.effects)
    assert evaluate(server, saved.record.version, 9.0) == Evaluated(request=5, counted=False, best=False)
    for sequence, mean, best in ((3, 4.0, False), (5, 6.0, True)):
        (saved,) = train(server, sequence, sequence + 1)
        assert evaluate(server, saved.record.version, mean).best == best
        assert any(isinstance(one, KeepCandidate) for one in server.effects) == best
    status = server.machine.status(now=server.now)
    assert (status.evaluation, status.best_evaluation) == (6.0, 6.0)


def test_the_games_of_training_decide_neither_about_the_end_nor_about_the_best() -> None:
    server = Transcript.seeded(records=ON, budget={"until_return": 18.0})
    (saved,) = train(server, 1, 2)
    server.report("a", 1, *[20.0] * 100)
    assert not [one for one in server.after(1000.0) if isinstance(one, SaveCheckpoint) and one.best]
    assert server.machine.phase.value == "serving"
    assert evaluate(server, saved.record.version, 18.0).best
    assert server.machine.ending.reason == "mean return of an evaluation reached 18"


@pytest.mark.parametrize("wrong", [{"version": 9}, {"run_id": "another"}])
def test_weights_that_the_run_never_had_are_refused(wrong: dict[str, Any]) -> None:
    server = Transcript.seeded(records=ON)
    train(server, 1, 2)
    refused = server.refusal("an evaluator", msgspec.structs.replace(evaluation(3), **wrong))
    assert refused.code == "other_run"
    assert server.run.progress.evaluation is None


def test_evaluations_change_nothing_of_what_is_learned() -> None:
    with_them, without = Transcript.seeded(records=ON), Transcript.seeded()
    for sequence in range(1, 20):
        for server in (with_them, without):
            train(server, sequence, sequence)
        evaluate(with_them, sequence, float(sequence % 5))
    assert with_them.weights() == without.weights()
    assert with_them.machine.version == without.machine.version
    assert with_them.run.ledger.accounts["a"].through == without.run.ledger.accounts["a"].through


def test_a_restored_server_knows_the_evaluations_and_puts_another_checkpoint_aside() -> None:
    server = Transcript.seeded(records=ON)
    (saved,) = train(server, 1, 2)
    evaluate(server, saved.record.version, 5.0)
    kept = server.save_and_complete()
    again = Transcript(restored_run(kept.vectors, kept.record, epoch=EPOCH + 1))
    assert again.run.progress.best_evaluation == again.run.progress.saved_evaluation == 5.0
    assert only(SaveCheckpoint, again.after(1.0)).candidate, "nobody knows whether the one on disk is whole"


def test_a_standby_counts_evaluations_as_its_primary_does() -> None:
    server = WithStandby.following(records=ON)
    server.told.clear()
    server.say("a", server.push_of(1), encoded([1, 2, 3]))
    assert server.answer(Evaluated, "an evaluator", evaluation(2, 7.0)).counted
    assert only(RecordEvaluation, server.told) == only(RecordEvaluation, server.effects)
    assert are_alike(the_run(server), server.run, now=server.now)
