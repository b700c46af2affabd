"""Where the flat vector is cut, and the schema of a piece of it."""

import hashlib
import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ps_common.protocol.lineage import ALIGNMENT, Shard, range_of, shard_of
from ps_common.protocol.tensors import Schema, TensorSpec

SCHEMA = Schema(
    [TensorSpec("a", (2, 3)), TensorSpec("b", ()), TensorSpec("c", (5,)), TensorSpec("seen", (4,), role="statistic")]
)


@given(st.integers(1, 64), st.data())
def test_ranges_cover_every_weight_once_and_none_is_empty(shards: int, data: st.DataObject) -> None:
    weights = data.draw(st.integers(shards, 10**7))
    ends = [range_of(shard, shards, weights) for shard in range(1, shards + 1)]
    assert ends[0][0] == 0
    assert ends[-1][1] == weights
    assert all(before[1] == after[0] for before, after in itertools.pairwise(ends))
    assert all(first < end for first, end in ends)
    if weights >= ALIGNMENT * shards:
        assert all(first % ALIGNMENT == 0 for first, _ in ends)


@pytest.mark.parametrize("shards", [1, 2, 3, 12])
def test_the_vectors_of_all_shards_one_after_another_are_the_whole_vector(shards: int) -> None:
    whole = torch.arange(SCHEMA.size, dtype=torch.float32)
    parts = [SCHEMA.of_shard(number, shards) for number in range(1, shards + 1)]
    assert torch.equal(torch.cat([whole[part.range] for part in parts]), whole)
    assert [part.statistics for part in parts] == [0] * (shards - 1) + [4]
    assert sum(part.weights for part in parts) == SCHEMA.weights
    assert all(part.specs == SCHEMA.specs for part in parts)
    assert len({part.hash for part in parts}) == shards


def test_the_hash_of_a_shard_is_that_of_the_whole_schema_and_a_line_more() -> None:
    schema = Schema([TensorSpec("w", (2,))])
    text = "w float32 2\nshard 2/2\n"
    assert schema.of_shard(2, 2).hash == hashlib.sha256(text.encode()).hexdigest()[:32]
    assert schema.of_shard(1, 1).hash == schema.hash


def test_the_flags_name_a_shard_and_the_addresses_of_all() -> None:
    assert shard_of(None, ()) is None
    assert shard_of("1/1", ()) == Shard()
    addresses = ("a:1,b:1", "c:1")
    assert shard_of("2/2", addresses) == Shard(number=2, addresses=addresses)
    assert str(shard_of("2/2", addresses)) == "shard 2/2"
