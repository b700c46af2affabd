"""A run that starts from trained weights: which tensors it takes, by whom they are asked for, and what is refused."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from ps_common.protocol import messages
from ps_common.protocol.tensors import Schema, TensorSpec
from ps_server.state.guards import Denied
from ps_server.state.starting_weights import StartingWeights
from tests.ps_server.machine.test_shards import ask, place
from tests.ps_server.transcripts import RUN_ID, SCHEMA, Transcript, a_run, encoded, notes, restored_run
from tests.rows import row

Shapes = Mapping[str, tuple[int, ...]]
FROM = "runs/before"
NETWORK: Shapes = {"torso.weight": (2, 2), "policy.bias": (2,)}
SEEN: Shapes = {"seen.count": (), "seen.total": (2,)}


def schema_of(weights: Shapes, statistics: Shapes = {}, *, shard: int = 1, shards: int = 1) -> Schema:  # noqa: B006
    specs = [TensorSpec(name, shape) for name, shape in weights.items()]
    specs += [TensorSpec(name, shape, role="statistic") for name, shape in statistics.items()]
    return Schema(specs, shard=shard, shards=shards)


def trained(schema: Schema, place: str = FROM) -> StartingWeights:
    """Weights 1, 2, 3, …"""
    return StartingWeights(place, f"{place}, step 7", schema, torch.arange(1.0, schema.size + 1))


def begun(source: Schema, schema: Schema) -> tuple[list[float], str]:
    weights, sentence = trained(source).for_run(schema, torch.full((schema.size,), -1.0))
    return weights.tolist(), sentence


def test_tensors_are_taken_by_name_in_whatever_order_and_what_the_run_lacks_is_mentioned() -> None:
    swapped = dict(reversed(NETWORK.items()))
    assert begun(schema_of(NETWORK), schema_of(swapped)) == (
        [5, 6, 1, 2, 3, 4],
        f"starts from the weights of {FROM}, step 7",
    )
    weights, sentence = begun(schema_of({**NETWORK, "value.bias": ()}), schema_of(NETWORK))
    assert weights == [1, 2, 3, 4, 5, 6]
    assert sentence.endswith("; this run does not need value.bias")


def test_a_weight_that_is_missing_or_has_another_shape_is_refused_by_its_name() -> None:
    for source, words in [
        (
            {"torso.weight": (2, 2)},
            "tensor 'policy.bias' [2] of this run does not fit: runs/before, step 7 has no such",
        ),
        (
            {**NETWORK, "policy.bias": (3,)},
            "'policy.bias' [2] of this run does not fit: runs/before, step 7 has 'policy.bias' [3]",
        ),
        ({**NETWORK, "torso.weight": (4, 1)}, "tensor 'torso.weight' [2, 2] of this run does not fit"),
    ]:
        with row(source), pytest.raises(Denied) as refused:
            begun(schema_of(source), schema_of(NETWORK))
        assert refused.value.code == "schema_mismatch"
        assert str(refused.value).startswith(f"--start-from {FROM}: ")
        assert words in str(refused.value)


def test_statistics_of_a_module_are_taken_together_or_stay_those_of_random_play() -> None:
    weights = [1.0, 2, 3, 4, 5, 6]
    for statistics, taken in [(SEEN, [7, 8, 9]), ({}, [-1] * 3), ({**SEEN, "seen.total": (3,)}, [-1] * 3)]:
        with row(statistics):
            begins, sentence = begun(schema_of(NETWORK, statistics), schema_of(NETWORK, SEEN))
            assert begins == weights + taken
            assert ("the statistics of seen differ, and begin with random play" in sentence) is (taken[0] == -1)


def test_each_shard_takes_its_part() -> None:
    source, parts = schema_of(NETWORK, SEEN), [schema_of(NETWORK, SEEN, shard=k, shards=4) for k in range(1, 5)]
    assert [value for part in parts for value in begun(source, part)[0]] == [1, 2, 3, 4, 5, 6, 7, 8, 9]


# -- the server -------------------------------------------------------------------------------------------------------


def a_server(run: Any, source: Schema = SCHEMA, **fields: Any) -> Transcript:
    return Transcript(run, start=trained(source), **fields)


def test_the_first_seed_begins_the_run_with_the_trained_weights_at_version_1() -> None:
    server = a_server(a_run(start_from=FROM))
    server.hello("a")
    assert server.seed("a", [7, 8, 9]).accepted
    assert f"starts from the weights of {FROM}, step 7" in notes(server.effects)
    assert server.weights() == [1, 2, 3]
    assert not server.seed("a", [7, 8, 9]).accepted
    server.push("a", 1, [1, 1, 1])
    assert server.weights() == [0, 1, 2]
    assert server.run.progress.global_steps == 20, "T begins anew"
    server.check()


def test_a_seed_that_does_not_fit_is_refused_and_leaves_the_run_for_the_next() -> None:
    server = a_server(a_run(start_from=FROM), schema_of({"policy.weight": (2, 1), "policy.bias": (2,)}))
    server.hello("a")
    refused = server.refusal("a", messages.Seed(request=9, schema=SCHEMA.specs), encoded([7, 8, 9]))
    assert refused.code == "schema_mismatch"
    assert "'policy.bias' []" in refused.reason
    assert server.machine.version == 0


def test_a_resumed_run_seeds_nothing_and_remembers_where_it_came_from() -> None:
    server = a_server(a_run(start_from=FROM))
    server.hello("a")
    server.seed("a", [7, 8, 9])
    kept = server.save()
    again = restored_run(kept.vectors, kept.record, epoch=8)
    resumed = Transcript(again)
    resumed.hello("a")
    assert not resumed.seed("a", [7, 8, 9]).accepted
    assert resumed.weights() == [1, 2, 3]
    assert resumed.run.spec.start_from == FROM


def test_a_shard_that_was_started_from_other_weights_or_none_takes_no_seed() -> None:
    schema = schema_of(NETWORK, SEEN)
    seed = messages.Seed(request=9, schema=schema.specs)
    for start, is_taken in [(None, False), (trained(schema, "runs/other"), False), (trained(schema), True)]:
        with row(start):
            first = a_server(a_run(start_from=FROM), schema, shard=place(1))
            second = Transcript(shard=place(2), start=start)
            ask(second, first)
            second.hello("w", first_shard=RUN_ID, number=0)
            reply = second.ask("w", seed, encoded([0] * 6)).message
            if is_taken:
                assert second.weights() == [4, 5, 6, 7, 8, 9]
            else:
                assert isinstance(reply, messages.Refused)
                assert reply.code == "bad_run"
                assert f"--start-from {FROM}; start this shard with it as well" in reply.reason
