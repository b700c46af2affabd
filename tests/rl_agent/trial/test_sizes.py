"""
Sizes are checked before a run is started, and earlier weights where they are played.

The relation: whatever the spaces then and now, weights are refused exactly where they differ.
"""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space

from ps_common.errors import PsRlError, RequestRefused, SchemaMismatch, SettingsError
from ps_common.program import reasons
from ps_common.program.run_program import run_program
from ps_common.run_folder.checkpoint_file import write_checkpoint
from ps_common.settings.run_files import load_preset, presets, recipe_for
from ps_common.settings.run_settings import with_settings
from ps_common.settings.run_spec import ALGORITHM_SETTINGS, RunSpec
from rl_agent.agent import build_agent, planned_network, planned_schema
from rl_agent.environments.make import make_environments
from rl_agent.environments.spaces import BoxActions, DiscreteActions
from rl_agent.networks.flat_network import FlatNetwork, schema_of
from rl_agent.trial.run_check import check_run
from rl_eval.cli import evaluate
from rl_eval.spaces_record import PolicySpaces
from tests.extras import skip_without_package
from tests.records import a_record
from tests.rl_agent.observation_spaces import numbers

CPU = torch.device("cpu")


class Shows(gymnasium.Env[Any, Any]):
    """Samples of the spaces that are in use now."""

    spaces: tuple[Space[Any], Space[Any]]

    def __init__(self) -> None:
        self.observation_space, self.action_space = self.spaces

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[Any, dict[str, Any]]:
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.observation_space.sample(), 0.0, True, False, {}


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    gymnasium.register("Shows-v0", Shows, disable_env_checker=True)
    yield
    gymnasium.registry.pop("Shows-v0", None)


def a_run(**settings: Any) -> RunSpec:
    start = {"environment.envs": 2, "network.hidden": [8], "algorithm.imitation_weight": 0.0}
    return with_settings(recipe_for("Shows-v0"), start | settings, source="test")


def trained(folder: Path, run: RunSpec, seen: Space[Any], takes: Space[Any]) -> Path:
    """The folder of a run that was trained while the environment had these spaces."""
    Shows.spaces = (seen, takes)
    environments = make_environments(run.environment, count=1)
    network = FlatNetwork(build_agent(run, environments, device=CPU, seed=0).network)
    environments.close()
    path = folder / "checkpoints" / "checkpoint-000000000009.safetensors"
    path.parent.mkdir(parents=True)
    write_checkpoint(path, {"weights": network.weights}, a_record(run=run, schema=network.schema, steps=9))
    (folder / "run.toml").write_text(run.to_toml())
    return folder


PICTURE = Box(0, 255, (16, 16, 3), np.uint8)
SEEN: dict[str, Space[Any]] = {
    "float32 [3]": Box(-1, 1, (3,), np.float32),
    "float32 [4]": Box(-1, 1, (4,), np.float32),
    "float32 [12]": Box(-1, 1, (4, 3), np.float32),
}
PICTURES: dict[str, Space[Any]] = {
    "uint8 [3, 16, 16]": PICTURE,
    "uint8 [1, 16, 16]": Box(0, 255, (16, 16, 1), np.uint8),
    "uint8 [12, 16, 16]": Box(0, 255, (4, 16, 16, 3), np.uint8),
}
PARTS: dict[str, Space[Any]] = {
    "vector float32 [2], image uint8 [3, 16, 16]": Dict(a=Box(-1, 1, (2,), np.float32), b=PICTURE),
    "vector float32 [5], image uint8 [3, 16, 16]": Dict(a=Box(-1, 1, (5,), np.float32), b=PICTURE),
    "vector float32 [2], image uint8 [1, 16, 16]": Dict(a=MultiBinary(2), b=PICTURES["uint8 [1, 16, 16]"]),
}
TAKES: dict[str, Space[Any]] = {"one of 2 actions": Discrete(2), "one of 7 actions": Discrete(7)}
REAL: dict[str, Space[Any]] = {"1 real numbers": Box(-1, 1, (1,)), "3 real numbers": Box(-1, 1, (3,))}
PAIRS = [
    pair
    for seen, takes in ((SEEN, TAKES), (SEEN, REAL), (PICTURES, TAKES), (PARTS, TAKES))
    for pair in product(product(seen.items(), takes.items()), repeat=2)
    if pair[0][0] == next(iter(seen.items())) or pair[0] == pair[1]
]


@pytest.mark.parametrize(("then", "now"), PAIRS, ids=lambda one: " and ".join(name for name, _ in one))
def test_weights_are_refused_exactly_where_the_spaces_differ(then: Any, now: Any, tmp_path: Path) -> None:
    (_, seen_then), (_, takes_then) = then
    (_, seen_now), (_, takes_now) = now
    run = a_run()
    folder = trained(tmp_path / "run", run, seen_then, takes_then)
    Shows.spaces = (seen_now, takes_now)
    if then == now:
        evaluate(["--checkpoint", str(folder), "--episodes", "1"])
        return
    with pytest.raises(
        PsRlError, match=r"tensor '\S+' was \[.*\], and is \[.*\] now; .* what the environment shows or takes"
    ):
        evaluate(["--checkpoint", str(folder), "--episodes", "1"])


# -- sizes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", presets())
def test_the_planned_network_is_that_of_the_agent_and_has_no_memory(name: str) -> None:
    run = load_preset(name)
    skip_without_package(run)
    environments = make_environments(run.environment, count=1)
    drawn = torch.random.get_rng_state()
    planned = planned_network(run, environments)
    assert torch.equal(torch.random.get_rng_state(), drawn)
    built = build_agent(run, environments, device=CPU, seed=0).network
    environments.close()
    assert schema_of(planned) == schema_of(built)
    assert all(tensor.is_meta for tensor in (*planned.parameters(), *planned.buffers()))


@pytest.mark.parametrize("method", ALGORITHM_SETTINGS)
@pytest.mark.parametrize("initialization", ["orthogonal", "xavier", "normal", "normalized_columns"])
def test_a_network_beyond_what_a_run_may_have_is_refused_without_its_memory(initialization: str, method: str) -> None:
    settings = {"network.hidden": [17_000, 17_000], "network.initialization": initialization}
    run = with_settings(a_run(), settings | {"algorithm.name": method}, source="test")
    sentence = (
        r"^--network auto: it would have [2-9]\d\d,\d{3},\d{3} parameters, and a run may have 268,435,456; give fewer"
    )
    actions = BoxActions(np.full(2, -1.0), np.ones(2)) if method == "sac" else DiscreteActions(2)
    with pytest.raises(SettingsError, match=sentence):
        planned_schema(run, PolicySpaces(numbers(4), actions))


@pytest.mark.parametrize(
    ("seen", "takes", "sentence"),
    [
        (Discrete(5_000_000), Discrete(2), r"would have \d+,\d+,\d+ parameters, .* Discrete is one-hot: show a large"),
        (Discrete(20_000_000), Discrete(2), r"an observation has 20,000,000 elements, .* Discrete is one-hot: show"),
        (Discrete(4), Discrete(200_000), "it has 200,000 actions, and a policy has up to 65,536, each of which"),
        (
            Discrete(4),
            MultiDiscrete([40_000] * 2),
            "it has 80,000 actions, and a policy has up to 65,536, each of which",
        ),
    ],
    ids=str,
)
def test_spaces_beyond_what_a_policy_may_have_are_refused(seen: Space[Any], takes: Space[Any], sentence: str) -> None:
    Shows.spaces = (seen, takes)
    run = with_settings(a_run(), {"network.hidden": [64], "environment.envs": 1}, source="test")
    with pytest.raises(SettingsError, match=sentence):
        check_run(run, imports=())


@pytest.mark.parametrize(
    ("error", "how"),
    [
        (RequestRefused("schema_mismatch", "x"), "refused"),
        (RequestRefused("contradiction", "x"), "refused"),
        (SchemaMismatch("x"), "refused"),
        (RequestRefused("name_taken", "x"), "failed"),
        (RequestRefused("other_run", "x"), "failed"),
        (SettingsError("x"), "failed"),
    ],
    ids=str,
)
def test_what_is_refused_for_good_says_so_to_its_parent(
    error: PsRlError, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reasons, "_reported", said := [])

    def main() -> int:
        raise error

    with pytest.raises(SystemExit):
        run_program(main, "oven")
    assert [reason.how for reason in said] == [how]
