import hashlib
import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ps_common.errors import SchemaMismatch
from ps_common.protocol.tensors import MAX_ELEMENTS, MAX_TENSORS, Schema, TensorSpec
from rl_agent.networks.flat_network import flatten
from tests.rows import row
from tests.schemas import schema_of_tensors

SHAPES = st.lists(st.integers(1, 3), max_size=4).map(tuple)


def laid_out(tensors: dict[str, Tensor]) -> list[float]:
    """Ground truth: all elements one after another, the last axis fastest, one by one."""
    return [
        float(tensor[index])
        for tensor in tensors.values()
        for index in itertools.product(*(range(axis) for axis in tensor.shape))
    ]


def numbered(shapes: list[tuple[int, ...]]) -> dict[str, Tensor]:
    return {f"tensor{number}": torch.randn(shape) for number, shape in enumerate(shapes)}


@given(st.lists(SHAPES, min_size=1, max_size=4))
def test_a_vector_holds_the_tensors_one_after_another_row_by_row(shapes: list[tuple[int, ...]]) -> None:
    tensors = numbered(shapes)
    flat, schema = flatten(tensors), schema_of_tensors(tensors)
    assert flat.tolist() == laid_out(tensors)
    assert schema.size == len(flat)
    views = schema.views(flat)
    assert list(views) == list(tensors)
    assert all(torch.equal(views[name], tensor) for name, tensor in tensors.items())


def test_views_share_the_memory_of_their_vector() -> None:
    schema = Schema([TensorSpec("weight", (2, 3)), TensorSpec("bias", (2,))])
    flat = torch.zeros(8)
    views = schema.views(flat)
    views["weight"][1, 2] = 5
    flat[7] = 6
    assert flat.tolist() == [0, 0, 0, 0, 0, 5, 0, 6]
    assert views["bias"].tolist() == [0, 6]
    for wrong in (7, 9):
        with pytest.raises(SchemaMismatch, match=f"8 elements, not {wrong}"):
            schema.views(torch.zeros(wrong))


@pytest.mark.parametrize(
    ("specs", "text"),
    [
        ([("policy.weight", (3, 256)), ("policy.bias", (3,))], "policy.weight float32 3,256\npolicy.bias float32 3\n"),
        ([("scale", ())], "scale float32 \n"),
        ([("height", (2, 1, 2))], "height float32 2,1,2\n"),
        ([("w", (2,)), ("mean", (3,), "float32", "statistic")], "w float32 2\nmean float32 3 statistic\n"),
    ],
)
def test_the_hash_is_that_of_the_protocol_page(specs: list[tuple[str, tuple[int, ...]]], text: str) -> None:
    assert Schema(TensorSpec(*spec) for spec in specs).hash == hashlib.sha256(text.encode("utf-8")).hexdigest()[:32]


@pytest.mark.parametrize(
    "specs",
    [
        pytest.param([], id="none"),
        pytest.param([TensorSpec(str(n), (1,)) for n in range(MAX_TENSORS + 1)], id="too many"),
        pytest.param([TensorSpec("a", (1,)), TensorSpec("a", (2,))], id="a name twice"),
        pytest.param([TensorSpec("a", (1,) * 9)], id="nine axes"),
        pytest.param([TensorSpec("a", (2, 0))], id="an axis of 0"),
        pytest.param([TensorSpec("a", (-2, -3))], id="negative axes"),
        pytest.param([TensorSpec("a", (MAX_ELEMENTS + 1,))], id="a long axis"),
        pytest.param([TensorSpec("a", (2**63,) * 8)], id="a huge product"),
        pytest.param([TensorSpec("a", (2**14, 2**14)), TensorSpec("b", ())], id="too large a sum"),
        pytest.param([TensorSpec("", (1,))], id="no name"),
        pytest.param([TensorSpec("x" * 201, (1,))], id="a long name"),
        pytest.param([TensorSpec("a b", (1,))], id="a name with a space"),
        pytest.param([TensorSpec("h\xf6he", (1,))], id="a name beyond ASCII"),
        pytest.param([TensorSpec("a\u202eb", (1,))], id="a name that turns the line around"),
        # Two schemas with one hash, were it allowed: this name would be two lines of the hashed text.
        pytest.param([TensorSpec("a float32 1\nb", (1,))], id="a name with a line feed"),
    ],
)
def test_a_schema_that_could_not_describe_a_vector_is_refused(specs: list[TensorSpec]) -> None:
    with pytest.raises(SchemaMismatch):
        Schema(specs)


def test_a_sentence_names_the_first_difference_of_two_schemas() -> None:
    for theirs, sentence in [
        ([("a", (2, 3)), ("b", ())], ""),
        ([("b", ())], "tensor 'a' [2, 3] is missing there"),
        ([("a", (2, 4)), ("b", ())], "tensor 'a' is [2, 3] here and [2, 4] there"),
        ([("a", (2, 3)), ("b", (), "float32", "statistic")], "tensor 'b' is a weight here and a statistic there"),
        ([("a", (2, 3)), ("b", ()), ("c", (1,))], "tensor 'c' [1] is unknown here"),
        ([("b", ()), ("a", (2, 3))], "the same tensors are in another order"),
    ]:
        with row(theirs, sentence):
            ours = Schema([TensorSpec("a", (2, 3)), TensorSpec("b", ())])
            assert ours.difference(Schema(TensorSpec(*spec) for spec in theirs)) == sentence
