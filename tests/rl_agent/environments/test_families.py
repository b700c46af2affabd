"""An environment family is a line of families.py and a file: a run of it trains, and the flags know it."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import pytest
from gymnasium.vector import AutoresetMode

from ps_common.errors import SettingsError
from ps_common.settings.families import FAMILIES, Family
from ps_common.settings.run_files import recipe_for
from ps_common.settings.run_spec import Environment
from ps_rl import train
from rl_agent.environments.custom_environment import VectorEnvironments
from rl_agent.environments.make import make_environments


def make(settings: Environment, count: int, *, threads: int, with_screen: bool) -> VectorEnvironments:
    mode: dict[str, Any] = {"autoreset_mode": AutoresetMode.SAME_STEP}
    carts = gymnasium.make_vec("CartPole-v1", count, vectorization_mode="sync", vector_kwargs=mode)
    return VectorEnvironments(settings, count, with_screen, carts)


@pytest.fixture
def family(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("rl_agent.environments.carts")
    module.make = make  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(FAMILIES, "carts", Family("carts/", "carts", extra="carts"))


@pytest.mark.usefixtures("family")
def test_a_run_of_a_family_trains(tmp_path: Path) -> None:
    run = train(environment="carts/One", workers=0, envs=2, max_steps=100, seed=1, run_dir=tmp_path / "run")
    assert run.settings["environment"] == "carts/One"
    assert run.policy().global_steps >= 100


@pytest.mark.usefixtures("family")
def test_flags_and_errors_know_the_family_by_its_line() -> None:
    one = Environment(id="carts/One")
    assert (one.family, one.frames_per_step, recipe_for(one.id).environment.family) == ("carts", 1, "carts")
    with pytest.raises(SettingsError, match=r"^--wrapper my:Wrap: the games of carts/One are stepped together"):
        make_environments(Environment(id=one.id, wrapper=("my:Wrap",)), count=1)
    with pytest.raises(ValueError, match="carts/One takes none"):
        Environment(id=one.id, kwargs={"a": 1})
