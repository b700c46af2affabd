"""Settings of a custom algorithm that are adjusted while it runs: its own class decides what it takes."""

from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ps_common.errors import SettingsError
from ps_common.settings.custom_algorithm import custom_algorithm
from ps_common.settings.run_settings import run_from_dict
from ps_common.settings.run_spec import Environment
from rl_agent.agent import build_agent
from rl_agent.algorithms.custom_algorithm import adjust_custom
from rl_agent.environments.make import make_environments

PATH = "examples.algorithm:EntropyA3C"


def settings(**given: Any) -> Any:
    return custom_algorithm(PATH, {"unroll_length": 8, **given}, source="test")


def test_the_algorithm_gets_settings_of_its_own_class() -> None:
    told: list[Any] = []
    adjust_custom(SimpleNamespace(adjust=told.append), settings(target_entropy=0.125))  # type: ignore[arg-type]
    assert [(type(one).__name__, one.target_entropy, one.unroll_length) for one in told] == [
        ("EntropySettings", 0.125, 8)
    ]


@pytest.mark.parametrize("given", [{"target_entropy": 1000.0}, {"entropy_step": -1}, {"unknown": 1}])
def test_what_its_class_does_not_allow_changes_nothing(given: dict[str, Any]) -> None:
    told: list[Any] = []
    with pytest.raises(SettingsError, match=PATH):
        adjust_custom(SimpleNamespace(adjust=told.append), settings(**given))  # type: ignore[arg-type]
    assert told == []


def test_an_algorithm_that_cannot_be_adjusted_is_named() -> None:
    with pytest.raises(SettingsError, match="adjust"):
        adjust_custom(SimpleNamespace(), settings())  # type: ignore[arg-type]


def test_the_example_follows_its_settings() -> None:
    with closing(make_environments(Environment(id="CartPole-v1"), count=1)) as environments:
        run = run_from_dict({"algorithm": {"name": PATH, "unroll_length": 8}}, source="test")
        agent: Any = build_agent(run, environments, device=torch.device("cpu"), seed=0)
    adjust_custom(agent, settings(target_entropy=0.125))
    assert agent.target == 0.125
