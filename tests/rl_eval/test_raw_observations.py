"""What `policy.act` is shown by the environment itself: the same as the environment's own reader makes of it."""

import contextlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import safetensors.torch
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple
from gymnasium.vector.utils import concatenate, create_empty_array
from hypothesis import given
from hypothesis import strategies as st

from ps_common.run_folder.policy_file import MODEL, NATIVE
from ps_common.settings.run_settings import run_from_dict
from ps_common.settings.run_spec import Environment
from rl_agent.agent import build_agent
from rl_agent.environments.gymnasium_spaces import ActionCodec, ObservationReader
from rl_agent.networks.flat_network import FlatNetwork
from rl_eval.native.observations import as_seen
from rl_eval.native.record import NativeRecord, native_to_record, with_native
from rl_eval.policy import load_policy
from rl_eval.policy_folder import write_model
from rl_eval.spaces_record import PolicySpaces
from tests.nested import places_in, values, with_value
from tests.upgrade.test_crafted_files import tensors_and_metadata

SIDES = st.integers(1, 9)


def boxes(shape: tuple[int, ...]) -> st.SearchStrategy[Space[Any]]:
    return st.sampled_from(
        [
            Box(0, 255, shape, np.uint8),
            Box(-1, 1, shape, np.float32),
            Box(-2, 2, shape, np.float64),
            Box(-9, 9, shape, np.int64),
            Box(0, 1, shape, np.bool_),
        ]
    )


LEAVES = st.one_of(
    st.lists(SIDES, min_size=1, max_size=3).map(tuple).flatmap(boxes),
    st.sampled_from([(8, 9), (17, 16), (2, 8, 9, 3), (8, 8, 3), (3, 8, 8), (1, 8, 8), (8, 8, 8), ()]).flatmap(boxes),
    st.builds(Discrete, st.integers(1, 5), start=st.integers(-3, 3)),
    st.sampled_from([MultiDiscrete([2, 3]), MultiDiscrete([[2, 1], [3, 4]], start=[[1, 0], [-1, 5]]), MultiBinary(3)]),
    st.just(MultiBinary((2, 3))),
)
KEYS = st.sampled_from(["a", "b", "camera", "arm.joints", "ä ö", "0"])
SPACES = st.recursive(
    LEAVES,
    lambda inner: (
        st.dictionaries(KEYS, inner, min_size=1, max_size=3).map(Dict)
        | st.lists(inner, min_size=1, max_size=3).map(Tuple)
    ),
    max_leaves=5,
)
MASKS = st.sampled_from(["none", "key", "info"])


def written(folder: Path, spaces: PolicySpaces) -> Path:
    """The file of a policy with a new network."""
    run = run_from_dict({"seed": 3, "network": {"hidden": [4]}}, source="test")
    network = FlatNetwork(build_agent(run, spaces, device=torch.device("cpu"), seed=0).network)
    folder.mkdir(exist_ok=True)
    write_model(folder / MODEL, run, network.schema, network.weights, spaces, global_steps=0, minutes=0.0)
    return folder / MODEL


@given(SPACES, MASKS, st.integers(1, 3), st.integers(0, 2**31), st.booleans())
def test_a_policy_makes_of_a_raw_observation_what_its_environment_does(
    tmp_path_factory: pytest.TempPathFactory, space: Any, masks: Any, count: int, seed: int, is_exported: bool
) -> None:
    """Single and side by side, bit for bit; of an exported file as of the space itself."""
    codec = ActionCodec(Environment(actions=(2, 0)), Discrete(3))
    if masks == "key":
        named = space.spaces if isinstance(space, Dict) else {"seen": space}
        space = Dict(named | {"action_mask": MultiBinary(3)})
    reader = ObservationReader(space, codec, masks=masks)
    observations = reader.array_space
    if is_exported and sum(np.prod(part.shape) for part in observations.parts or [observations]) < 2000:
        path = written(tmp_path_factory.mktemp("policy"), PolicySpaces(observations, codec.actions))
        observations = load_policy(path).observations
    space.seed(seed)
    shown = [space.sample() for _ in range(count)]
    infos: list[Any] = [{"action_mask": np.eye(3, dtype=np.int8)[row]} for row in range(count)]
    expected = [reader.array(one, info) for one, info in zip(shown, infos, strict=True)]
    kept = [info["action_mask"] if masks == "info" else None for info in infos]
    for one, mask, row in zip(shown, kept, expected, strict=True):
        seen, is_one = as_seen(observations, codec.actions, one, mask)
        assert is_one
        np.testing.assert_array_equal(seen[0], row, strict=True)
    batch = concatenate(space, shown, create_empty_array(space, count))
    seen, is_one = as_seen(observations, codec.actions, batch, np.stack(kept) if masks == "info" else None)
    is_told_apart = not (isinstance(space, Box) and np.shape(batch) == observations.shape)  # [1, H, W] is one image
    assert is_one != is_told_apart
    np.testing.assert_array_equal(seen, np.stack(expected), strict=True)


@given(SPACES, st.integers(0, 2**31))
def test_the_parts_of_an_observation_mean_what_they_did(space: Any, seed: int) -> None:
    codec = ActionCodec(Environment(), Discrete(2))
    reader = ObservationReader(space, codec, masks="none")
    space.seed(seed)
    row = reader.array(space.sample(), {})
    observations = reader.array_space
    shown: Any = [part.of(row) for part in observations.parts] if observations.parts else row
    if isinstance(space, Tuple | Box) and observations.native and observations.native.count_in(shown) is not None:
        return  # the environment's observations have this form, too
    seen, _ = as_seen(observations, codec.actions, shown)
    np.testing.assert_array_equal(seen[0], row, strict=True)


def test_a_list_of_observations_of_a_dict_is_a_batch() -> None:
    space = Dict(camera=Box(0, 255, (8, 9, 3), np.uint8), joints=Box(-1, 1, (2,)))
    codec = ActionCodec(Environment(), Discrete(2))
    reader = ObservationReader(space, codec, masks="none")
    shown = [space.sample() for _ in range(3)]
    seen, is_one = as_seen(reader.array_space, codec.actions, shown)
    assert not is_one
    np.testing.assert_array_equal(seen, np.stack([reader.array(one, {}) for one in shown]))


def test_an_observation_that_does_not_fit_is_named_by_its_key() -> None:
    space = Dict(arm=Dict(joints=Box(-1, 1, (2,))), camera=Box(0, 255, (8, 9, 3), np.uint8))
    codec = ActionCodec(Environment(), Discrete(2))
    observations = ObservationReader(space, codec, masks="info").array_space
    assert [part.key for part in observations.parts] == ["arm.joints", "camera", "action_mask"]
    fitting = {"arm": {"joints": np.zeros(2)}, "camera": np.zeros((8, 9, 3), np.uint8)}
    for changed, sentence in (
        ({"arm": {}}, "it has no arm.joints"),
        ({"arm": {"joints": np.zeros(3)}}, r"arm.joints: it has shape \(3,\), and \(2,\) is expected"),
        ({"camera": np.zeros((8, 9, 3))}, "camera: it is float64 from 0 to 0, and bytes"),
        ({}, r"it has no action_mask; give the one of its info"),
    ):
        with pytest.raises(ValueError, match=sentence):
            as_seen(observations, codec.actions, fitting | changed)
    with pytest.raises(ValueError, match="its action mask has 3 elements, and its actions 2"):
        as_seen(observations, codec.actions, fitting, np.ones(3))


def test_a_policy_of_an_earlier_release_takes_the_parts(tmp_path: Path) -> None:
    space = Dict(camera=Box(0, 255, (8, 9, 3), np.uint8), joints=Box(-1, 1, (2,)))
    reader = ObservationReader(space, codec := ActionCodec(Environment(), Discrete(2)), masks="none")
    path = written(tmp_path, PolicySpaces(reader.array_space, codec.actions))
    shown = space.sample()
    new = load_policy(path).probabilities(shown)
    tensors, metadata = tensors_and_metadata(path)
    del metadata[NATIVE]
    safetensors.torch.save_file(tensors, path, metadata)
    policy = load_policy(path)
    np.testing.assert_array_equal(
        policy.probabilities([shown["joints"], shown["camera"].transpose(2, 0, 1)]), new, strict=True
    )
    with pytest.raises(ValueError, match="is a list of its parts"):
        policy.act(shown)


RECORDED = Dict(
    arm=Dict(joints=Box(-1, 1, (2,)), tool=MultiDiscrete([2, 3])), camera=Box(0, 255, (8, 9, 3), np.uint8),
    action_mask=MultiBinary(3),
)  # fmt: skip


def recorded() -> tuple[Any, ObservationReader, ActionCodec]:
    """The record of what the environment shows, as plain values."""
    reader = ObservationReader(RECORDED, codec := ActionCodec(Environment(actions=(2, 0)), Discrete(3)), masks="key")
    return msgspec.to_builtins(native_to_record(reader.array_space)), reader, codec


@given(st.sampled_from(list(places_in(recorded()[0]))), values)
def test_a_changed_record_is_refused_or_is_one(place: Any, value: Any) -> None:
    plain, reader, codec = recorded()
    spaces = PolicySpaces(reader.array_space, codec.actions)
    text = msgspec.json.encode(with_value(plain, place, value))
    try:
        changed = with_native(spaces, msgspec.json.decode(text, type=NativeRecord | None))
    except ValueError:
        return
    with contextlib.suppress(ValueError):  # another key, or another place in it
        seen, _ = as_seen(changed.observations, codec.actions, RECORDED.sample())
        assert seen.shape == (1, *reader.array_space.shape)
