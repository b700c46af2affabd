"""A preset that is tuned to its game plays no other."""

import re

import pytest

from ps_common.errors import SettingsError
from ps_common.settings.run_files import load_preset, on_another_game
from ps_common.settings.run_settings import with_settings
from ps_common.settings.run_spec import RunSpec


def moved(preset: str, environment: str) -> RunSpec:
    return on_another_game(load_preset(preset), environment, (), source=f"--preset {preset}")


REFUSED = {
    ("pong", "ALE/Breakout-v5"): (
        "--preset pong --environment ALE/Breakout-v5: pong is for ALE/Pong-v5 (--preprocessing field40, "
        "--reward-ends-episode true, --actions 0 2 3, --until-return 18); "
        "use --preset atari --environment ALE/Breakout-v5"
    ),
    ("breakout", "ALE/Seaquest-v5"): "(--actions 1 2 3, --mirror-images true); use --preset atari",
    ("cartpole", "my.games:Line-v0"): "--until-return 475); use --environment my.games:Line-v0 without --preset cart",
    ("breakout-a3c", "ALE/Pong-v5"): "(--preprocessing breakout-crop)",
    ("pong-mlp", "ALE/Freeway-v5"): "(--preprocessing pong80)",
    ("doom-basic", "VizdoomTakeCover-v1"): "(--actions 3 2 1, --max-episode-steps 300); use --environment VizdoomTakeC",
    ("atari", "CartPole-v1"): "atari is for ALE/Pong-v5; use --environment CartPole-v1 without --preset atari",
    ("cartpole-n-step-q", "ALE/Pong-v5"): "is for CartPole-v1; use --preset atari --environment ALE/Pong-v5",
}


def test_a_preset_that_is_tuned_to_its_game_is_refused_with_the_command_that_works() -> None:
    for (preset, environment), sentence in REFUSED.items():
        with pytest.raises(SettingsError, match=re.escape(sentence)):
            moved(preset, environment)


@pytest.mark.parametrize(
    ("preset", "environment", "name"),
    [
        ("atari", "ALE/Breakout-v5", "atari-on-Breakout-v5"),
        ("atari-a3c-lstm", "ALE/Qbert-v5", "atari-a3c-lstm-on-Qbert-v5"),
        ("cartpole-n-step-q", "my.games:Line-v0", "cartpole-n-step-q-on-Line-v0"),
    ],
)
def test_any_other_preset_keeps_all_its_settings(preset: str, environment: str, name: str) -> None:
    changed = {"preset": name, "environment.id": environment}
    assert moved(preset, environment) == with_settings(load_preset(preset), changed, source="a test")
