"""The claims of a worker move T and the scores no further than it could have played."""

import math
from typing import Any

import pytest

from ps_common.protocol import messages
from ps_common.protocol.messages import Episode
from ps_common.protocol.names import MOST_REWARD
from ps_common.protocol.tensors import Schema, TensorSpec
from ps_common.settings.run_spec import A3CSettings, Environment, RunSpec
from ps_server.machine.allowances import LIMITS
from ps_server.state.effects import RecordReport
from ps_server.state.guards import MOST_STEPS, Denied, check_games, check_steps
from tests.ps_server.transcripts import EPOCH, Transcript, a_run, encoded
from tests.rows import row

UNROLL: dict[str, Any] = {"name": "a3c", "unroll_length": 5}
GAME: dict[str, Any] = {"id": "CartPole-v1"}
SUMS = ("count", "total", "squares")


def report_of(sequence: int, *episodes: tuple[float, int]) -> messages.Report:
    return messages.Report(request=sequence, sequence=sequence, episodes=tuple(Episode(*one) for one in episodes))


@pytest.mark.parametrize(
    ("environments", "unroll_length", "most"), [(1, 1, 1), (8, 20, 160), (4096, 2**62, MOST_STEPS), (3, 5, 15)]
)
def test_a_push_counts_an_unroll_of_all_environments_and_no_more(
    environments: int, unroll_length: int, most: int
) -> None:
    run = RunSpec(environment=Environment(id="ALE/Pong-v5"), algorithm=A3CSettings(unroll_length=unroll_length))
    for steps in (0, 1, most):
        check_steps(steps, before=0, environments=environments, run=run)
    for steps in (most + 1, 10**9 + 1, 2**62):
        with pytest.raises(
            Denied, match=f"counts {steps} steps; {environments} environments make at most {most} "
        ) as no:
            check_steps(steps, before=0, environments=environments, run=run)
        assert no.value.code == "absurd_steps"


def test_a_return_impossible_for_the_games_length_is_not_counted() -> None:
    for value in [1e9, 1e308, -1e308, math.inf, -math.inf, math.nan, 2 * MOST_REWARD + 1]:
        with row(value):
            with pytest.raises(Denied, match="2 steps is reported with the return") as no:
                check_games([Episode(1.0, 1), Episode(value, 2)], unplayed=100)
            assert no.value.code == "absurd_return"
            check_games([Episode(2 * MOST_REWARD, 2), Episode(-MOST_REWARD, 1)], unplayed=100)


@pytest.mark.parametrize("episodes", [[(1.0, 101)], [(0.0, 1)] * 101, [(1.0, 60), (1.0, 41)]])
def test_games_together_last_no_longer_than_the_steps_of_pushes(episodes: list[tuple[float, int]]) -> None:
    with pytest.raises(Denied, match="lasted 101 steps, but this worker's pushes have counted 100 ") as no:
        check_games([Episode(*one) for one in episodes], unplayed=100)
    assert no.value.code == "absurd_length"


def test_one_push_does_not_take_back_what_all_workers_have_seen() -> None:
    schema = Schema([TensorSpec("w", (1,)), *(TensorSpec(f"x.{n}", (), role="statistic") for n in SUMS)])
    server = Transcript(a_run())
    for worker in ("a", "b"):
        server.hello(worker)
    server.seed("a", [0, 10, 20, 50], schema)
    told = server.push("b", 1, [0, -10, 0, 0], schema_hash=schema.hash)
    assert (told.verdict, told.code) == ("discarded", "absurd_statistic")
    assert server.push("a", 1, [0, 2, 3, 5], schema_hash=schema.hash).verdict == "applied"
    assert server.weights() == [0, 12, 23, 55]


def test_a_worker_may_count_steps_of_the_environments_that_its_hello_names() -> None:
    server = Transcript.seeded(algorithm=UNROLL, environment=GAME | {"envs": 4})
    server.hello("few", environments=2)
    server.hello("as the run says")
    assert server.push("few", 1, steps=11).code == "absurd_steps"
    assert server.push("few", 2, steps=10).verdict == "applied"
    assert server.push("as the run says", 1, steps=21).code == "absurd_steps"
    assert server.push("as the run says", 2, steps=20).verdict == "applied"
    assert [worker.environments for worker in server.machine.status(now=server.now).workers] == [4, 2, 4]


def test_games_use_up_the_steps_of_pushes() -> None:
    server = Transcript.seeded()
    server.push("a", 1, steps=20)
    server.push("a", 2, [float("nan")] * 3, steps=20)  # the games were played, whatever came of the gradient
    assert server.answer(messages.Noted, "a", report_of(1, (7.0, 25), (3.0, 10))).sequence == 1
    assert server.refusal("a", report_of(2, (7.0, 6))).code == "absurd_length"
    assert server.answer(messages.Noted, "a", report_of(3, (8.0, 5))).sequence == 3
    assert server.machine.status(now=server.now).episodes == 3


def test_steps_of_a_push_that_waits_for_its_turn_may_be_played() -> None:
    server = Transcript.seeded(workers=("a", "b"), consistency={"rule": "sync"})
    server.say("a", server.push_of(1, steps=20), encoded([1, 1, 1]))
    assert server.refusal("a", report_of(1, (7.0, 21))).code == "absurd_length"
    server.answer(messages.Noted, "a", report_of(2, (7.0, 20)))
    server.push("b", 1, steps=20)
    assert server.run.ledger.accounts["a"].unplayed == 0
    assert server.run.ledger.accounts["b"].unplayed == 20


def test_a_server_that_comes_back_knows_what_was_not_played_yet() -> None:
    server = Transcript.seeded()
    server.push("a", 1, steps=20)
    kept = server.save().record.ledger["a"]
    assert (kept.unplayed, kept.environments) == (20, 8)


def test_reports_beyond_a_few_a_second_are_not_counted_nor_written() -> None:
    server = Transcript.seeded()
    server.push("a", 1, steps=160)
    (at_once, per_second), written = LIMITS["report"], 0
    for sequence in range(1, 302):
        told = [one for one in server.say("a", report_of(sequence)) if isinstance(one, RecordReport)]
        written += len(told)
    assert written == at_once
    assert server.machine.refusals.counts == {"too_often": 301 - at_once}
    server.now += 1
    for sequence in range(302, 400):
        written += sum(isinstance(one, RecordReport) for one in server.say("a", report_of(sequence)))
    assert written == at_once + per_second
    server.answer(messages.Noted, "a", report_of(301))  # a repetition of what was counted is answered all the same
    assert server.push("a", 2, epoch=EPOCH).verdict == "applied"
