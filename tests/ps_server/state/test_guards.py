"""Vectors that may not touch the weights: each is denied with a code, and the name of the tensor where there is one."""

import math
from contextlib import nullcontext
from itertools import product
from typing import Any

import numpy as np
import pytest

from ps_common.protocol.lineage import WHOLE
from ps_common.protocol.messages import Push, Seed
from ps_common.protocol.tensors import Schema, TensorSpec
from ps_server.state.guards import ABSURD_NORM, Denied, gradient_of, seed_of
from tests.ps_server.transcripts import SCHEMA, encoded
from tests.rows import row

PUSH_FIELDS: dict[str, Any] = {"request": 1, "sequence": 1, "computed_on": 1, "epoch": 1, "schema_hash": SCHEMA.hash}


def a_push(**fields: Any) -> Push:
    return Push(**(PUSH_FIELDS | fields))


def denied_push(push: Push, values: list[bytes]) -> tuple[str, str]:
    with pytest.raises(Denied) as denied:
        gradient_of(push, values, SCHEMA)
    return denied.value.code, str(denied.value)


def denied_seed(seed: Seed, values: list[bytes]) -> tuple[str, str]:
    with pytest.raises(Denied) as denied:
        seed_of(seed, values, WHOLE)
    return denied.value.code, str(denied.value)


def test_a_vector_may_come_in_pieces_cut_anywhere() -> None:
    whole = encoded([2, -3, 6])[0]
    gradient, _ = gradient_of(a_push(), [whole[:1], whole[1:7], b"", whole[7:]], SCHEMA)
    assert gradient.tolist() == [2, -3, 6]


def test_a_gradient_of_another_network_is_denied() -> None:
    other = Schema([TensorSpec("policy.weight", (1, 2)), TensorSpec("policy.bias", ())])
    assert other.size == SCHEMA.size
    code, sentence = denied_push(a_push(schema_hash=other.hash), encoded([1, 2, 3]))
    assert code == "schema_mismatch"
    assert SCHEMA.hash[:8] in sentence
    assert other.hash[:8] in sentence


def test_a_gradient_with_nan_or_inf_is_denied_and_its_tensor_named() -> None:
    for value, (place, tensor) in product(
        [math.nan, math.inf, -math.inf], [(0, "policy.weight"), (1, "policy.weight"), (2, "policy.bias")]
    ):
        with row(value, place, tensor):
            values = [1.0, 2.0, 3.0]
            values[place] = value
            code, sentence = denied_push(a_push(), encoded(values))
            assert code == "not_finite"
            assert f"gradient of tensor {tensor!r}" in sentence


@pytest.mark.parametrize("values", [[1.1e12, 0, 0], [8e11, 8e11, 0], [3e38, 3e38, 3e38], [0, -1e30, 0]], ids=str)
def test_a_gradient_of_absurd_norm_is_denied(values: list[float]) -> None:
    assert math.hypot(*values) > ABSURD_NORM
    code, sentence = denied_push(a_push(), encoded(values))
    assert code == "absurd_norm"
    assert "gradient" in sentence


WITH_STATISTICS = Schema([TensorSpec("w", (2,)), TensorSpec("seen", (2,), role="statistic")])


def test_statistics_of_large_observations_are_no_absurd_gradient() -> None:
    """Squares of prices of 60,000, summed over 3,200 steps, are above 1e13."""
    push = a_push(schema_hash=WITH_STATISTICS.hash)
    gradient, norm = gradient_of(push, encoded([3, 4, 3200, 1.152e13]), WITH_STATISTICS)
    assert norm == 5.0
    assert gradient[3] == pytest.approx(1.152e13)
    seed = Seed(request=1, schema=WITH_STATISTICS.specs)
    assert seed_of(seed, encoded([3, 4, 3200, 1.152e13]), WHOLE)[1][3] == pytest.approx(1.152e13)


@pytest.mark.parametrize(
    ("value", "code", "sentence"),
    [
        (-1.1e30, "absurd_norm", "observations or rewards are too large"),
        (math.nan, "not_finite", "tensor 'seen'"),
        (math.inf, "not_finite", "tensor 'seen'"),
    ],
)
def test_statistics_that_would_not_stay_finite_are_denied(value: float, code: str, sentence: str) -> None:
    with pytest.raises(Denied, match=sentence) as denied:
        gradient_of(a_push(schema_hash=WITH_STATISTICS.hash), encoded([3, 4, 5, value]), WITH_STATISTICS)
    assert denied.value.code == code


SEEN = Schema(
    [
        TensorSpec("w", (2,)),
        *(TensorSpec(f"seen.{name}", shape, role="statistic") for name, shape in [("center", (2,)), ("count", ())]),
        *(TensorSpec(f"seen.{name}", (2,), role="statistic") for name in ("total", "squares")),
    ]
)


def test_sums_that_no_rows_have_are_denied() -> None:
    """One negative count would make the sums of all workers 0, and end the run for each."""
    rows = np.array([[3.0, -1000.0], [3.0, -1000.1], [3.0, 1e-25]], dtype=np.float32)
    for count, total, squares, is_of_rows in [
        (3, rows.sum(0).tolist(), (rows * rows).sum(0).tolist(), True),  # a constant: equality, but for rounding
        (0, [0, 0], [0, 0], True),  # nothing was seen
        (1, [1e-25, 1], [0, 1], True),  # a square below the least of float32
        (-64, [0, 0], [0, 0], False),
        (-1e-30, [0, 0], [0, 0], False),
        (0, [1, 0], [1, 1], False),
        (0, [0, 0], [0, 1], False),
        (0, [0, 0], [-1, 0], False),
        (4, [0, 0], [1, -1], False),
        (4, [8, 8], [16, 15], False),
        (1e29, [0, 0], [-9e16, 0], False),  # rounding is not granted to what is below 0
        (1e6, [0, 0], [-9e-7, 0], False),
    ]:
        sums = [count, *total, *squares]
        with row(*sums):
            for schema, vector in [(SEEN, [1, 1, 0, 0, *sums]), (SEEN.of_shard(2, 2), [1, 0, 0, *sums])]:
                push = a_push(schema_hash=schema.hash)
                with nullcontext() if is_of_rows else pytest.raises(Denied, match=r"seen\.total") as denied:
                    gradient_of(push, encoded(vector), schema)
                assert denied is None or denied.value.code == "absurd_statistic"
    seed = Seed(request=1, schema=SEEN.specs)
    assert len(seed_of(seed, encoded([1, 1, 0, 0, 1, 0, 0, 1, 1]), WHOLE)[1]) == SEEN.size
    with pytest.raises(Denied, match="no 0 rows"):
        seed_of(seed, encoded([1, 1, 0, 0, 0, 0, 0, 0, 0]), WHOLE)


def test_a_schema_that_describes_no_vector_is_denied() -> None:
    for specs, sentence in [
        ((), "1 to 1024 tensors, not 0"),
        ((TensorSpec("w", (0,)),), "'w' [0]"),
        ((TensorSpec("w", (2, -1)),), "'w' [2, -1]"),
        ((TensorSpec("w", (1,) * 9),), "'w'"),
        ((TensorSpec("w", (2**20, 2**20)),), "up to"),
        ((TensorSpec("w", (1,)), TensorSpec("w", (2,))), "same name"),
        (tuple(TensorSpec(f"w{number}", (1,)) for number in range(1025)), "not 1025"),
    ]:
        with row(specs, sentence):
            code, said = denied_seed(Seed(request=1, schema=specs), encoded([1, 2, 3]))
            assert code == "bad_schema"
            assert sentence in said


@pytest.mark.parametrize(
    ("values", "code", "sentence"),
    [
        ([1, 2], "wrong_size", "12 bytes, not 8"),
        ([1, 2, math.nan], "not_finite", "weights of tensor 'policy.bias'"),
        ([1, math.inf, 3], "not_finite", "weights of tensor 'policy.weight'"),
        ([1e30, 2, 3], "absurd_norm", "weights"),
    ],
    ids=str,
)
def test_weights_are_guarded_like_gradients(values: list[float], code: str, sentence: str) -> None:
    said = denied_seed(Seed(request=1, schema=SCHEMA.specs), encoded(values))
    assert said[0] == code
    assert sentence in said[1]


@pytest.mark.parametrize("values", [[], [1], [1, 2], [1, 2, 3, 4]], ids=str)
def test_a_gradient_of_the_wrong_size_is_denied(values: list[float]) -> None:
    """BytePS adds as many bytes as the client claims, over the end of its buffer (server.cc:316)."""
    code, sentence = denied_push(a_push(), encoded(values))
    assert code == "wrong_size"
    assert "12 bytes" in sentence
    assert f"{4 * len(values)}" in sentence
