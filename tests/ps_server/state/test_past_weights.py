"""Delay compensation: the formula in float64, and the effect of a late push on a run."""

import numpy as np
import pytest
import torch

from common.protocol.tensors import Schema, TensorSpec
from ps_server.state.staleness import VERSIONS_KEPT, PastWeights
from tests.ps_server.transcripts import Transcript, a_run, received, restored_run, vector

RULE = {"rule": "delay_compensated", "compensation": 0.5}


@pytest.mark.parametrize("staleness", [0, 1, 5, VERSIONS_KEPT - 1])
def test_a_gradient_is_corrected_for_the_updates_since(staleness: int) -> None:
    drawn = np.random.default_rng(staleness)
    versions = drawn.normal(size=(VERSIONS_KEPT + 3, 7)).astype(np.float32)
    gradient = drawn.normal(size=7).astype(np.float32)
    past = PastWeights()
    for weights in versions:
        past.keep(torch.from_numpy(weights))
    mended = past.compensated(torch.from_numpy(gradient), staleness=staleness, strength=0.3)
    g = gradient.astype(np.float64)
    expected = g + 0.3 * g * g * (versions[-1].astype(np.float64) - versions[-1 - staleness])
    np.testing.assert_allclose(mended.numpy(), expected, rtol=1e-5, atol=1e-6)


def test_a_gradient_older_than_all_kept_versions_is_corrected_as_of_the_oldest() -> None:
    past = PastWeights()
    for number in range(VERSIONS_KEPT + 5):
        past.keep(vector(float(number)))
    mended = past.compensated(vector(2.0), staleness=10**6, strength=1.0)
    assert mended.tolist() == [2 + 4 * (VERSIONS_KEPT - 1)]


def test_a_late_push_is_corrected_and_a_fresh_one_is_not() -> None:
    server = Transcript.seeded(workers=("a", "b"), staleness=RULE)
    assert server.push("a", 1, [2, 0, -4], computed_on=1).staleness == 0
    assert server.weights() == [-2, 0, 4]
    assert server.push("b", 1, [2, 1, 1], computed_on=1).staleness == 1
    # g + ½ g² (w − w₀), with w − w₀ = (−2, 0, 4)
    assert server.weights() == [-2 - (2 - 4), 0 - 1, 4 - (1 + 2)]


def test_a_version_that_never_existed_does_no_harm() -> None:
    """A worker may lie about the version of its gradient."""
    server = Transcript.seeded(workers=("a",), staleness=RULE)
    for sequence in range(1, 4):
        server.push("a", sequence, [1, 1, 1])
    checkpoint = server.save_and_complete()
    run = restored_run(checkpoint.vectors, checkpoint.record, epoch=8, now=server.now)
    resumed = Transcript(run, epoch=8, now=server.now)
    resumed.hello("a", oldest=4)
    assert resumed.push("a", 4, [1, 1, 1], computed_on=0).verdict == "applied"
    assert resumed.weights() == [-4, -4, -4]


def test_statistics_are_added_as_they_are() -> None:
    schema = Schema([TensorSpec("weight", (2,)), TensorSpec("count", (1,), role="statistic")])
    server = Transcript(a_run(staleness=RULE))
    server.hello("a")
    server.seed("a", [0, 0, 0], schema)
    for sequence in (1, 2):
        server.push("a", sequence, [2, 2, 5], computed_on=1, schema_hash=schema.hash)
    assert received(server.pull("a"))[2] == 10
