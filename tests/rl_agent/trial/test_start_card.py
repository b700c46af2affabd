"""The start card says what a run sees, does and learns with."""

from ps_common.settings.run_files import load_preset, recipe_for
from ps_common.settings.run_settings import with_settings
from rl_agent.environments.spaces import DiscreteActions
from rl_agent.trial.start_card import LABEL_COLUMNS, start_card
from rl_eval.spaces_record import PolicySpaces
from tests.rl_agent.observation_spaces import numbers, pixels


def card(name: str, spaces: PolicySpaces, *, preset: bool = False) -> dict[str, str]:
    lines = start_card(load_preset(name) if preset else recipe_for(name), spaces)
    return {line[2 : LABEL_COLUMNS + 2].strip(): line[LABEL_COLUMNS + 2 :] for line in lines}


def test_it_warns_of_observations_that_take_a_gibibyte_in_each_worker() -> None:
    spaces = PolicySpaces(pixels(3, 512, 512), DiscreteActions(4))
    shown = card("my.games:Camera-v0", spaces)["memory"]
    assert shown == "1.1 GiB of observations in each worker; a smaller --envs or --unroll-length takes less"
    fewer = with_settings(recipe_for("my.games:Camera-v0"), {"environment.envs": 4}, source="test")
    assert not any("memory" in line for line in start_card(fewer, spaces))
    longer = with_settings(recipe_for("CartPole-v1"), {"algorithm.unroll_length": 10_000_000 // 100}, source="test")
    assert "memory" not in str(start_card(longer, PolicySpaces(numbers(4), DiscreteActions(2))))
    many = PolicySpaces(numbers(400), DiscreteActions(2))
    assert start_card(longer, many)[-1].endswith("takes less")
