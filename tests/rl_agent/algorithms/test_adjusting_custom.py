"""Settings of a custom algorithm that are adjusted while it runs: its own class decides what it takes."""

from types import SimpleNamespace
from typing import Any

import pytest

from ps_common.errors import SettingsError
from ps_common.settings.custom_algorithm import custom_algorithm
from rl_agent.algorithms.custom_algorithm import adjust_custom

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
