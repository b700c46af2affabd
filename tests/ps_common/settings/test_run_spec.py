import itertools
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

import ps_common
from ps_common.errors import SettingsError
from ps_common.settings.overrides import contradiction
from ps_common.settings.run_files import load_config, load_preset, presets, recipe_for
from ps_common.settings.run_settings import flag_of, flat_settings, run_from_dict, with_settings
from ps_common.settings.run_spec import (
    ALGORITHM_SETTINGS,
    OPTIMIZER_SETTINGS,
    A3CSettings,
    AdamSettings,
    RunSpec,
    Schedule,
    SgdSettings,
)
from tests.ps_common.generated import values_of
from tests.rows import row

PRESETS = Path(ps_common.__file__).parent / "presets"
ADAM_RUN = RunSpec(seed=7, optimizer=AdamSettings(beta1=0.5), schedule=Schedule(learning_rate=0.25))


def test_every_preset_loads_as_its_file_says(tmp_path_factory: pytest.TempPathFactory) -> None:
    for name in presets():
        with row(name):
            tmp_path = tmp_path_factory.mktemp("row")
            run = load_preset(name)
            settings = flat_settings(tomllib.loads((PRESETS / f"{name}.toml").read_text()))
            start = RunSpec() if "algorithm.name" in settings else recipe_for(settings["environment.id"])
            assert run == with_settings(start, {"preset": name} | settings, source="a test")
            assert run != RunSpec(preset=name)
            (tmp_path / "again.toml").write_text(run.to_toml())
            assert load_config(tmp_path / "again.toml") == run


def test_the_error_for_a_misspelt_preset_names_the_one_that_was_meant() -> None:
    for typed, meant in (("pnog", "pong"), ("cartpol", "cartpole"), ("doom_basic", "doom-basic")):
        with pytest.raises(SettingsError, match=f"--preset {typed}: no such preset; did you mean {meant}[?]"):
            load_preset(typed)


@given(values_of(RunSpec))
def test_a_run_survives_toml_and_dictionaries(run: RunSpec) -> None:
    assert run_from_dict(tomllib.loads(run.to_toml()), source="a test") == run
    assert run_from_dict(run.to_dict(), source="a test") == run
    assert contradiction(run, flat_settings(run.to_dict())) == ""


def test_the_error_for_a_mistake_in_a_file_names_the_file_the_setting_and_its_flag(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    for text, words in [
        ("seed = ", "not TOML"),
        ("seed = 1\nseed = 2", "not TOML"),
        ("colour = 1", "unknown field `colour`"),
        ("[algorithm]\nname = 'a3c'\ncolour = 1", "unknown field `colour` for algorithm"),
        ("[optimizer]\nname = 'sgd'\nbeta1 = 0.5", "unknown field `beta1` for optimizer"),
        (
            "[optimizer]\nname = 'newton'",
            f"'newton' for optimizer.name (--optimizer); there are {', '.join(OPTIMIZER_SETTINGS)}",
        ),
        ("[optimizer]\nbeta1 = 0.5", "unknown field `beta1` for optimizer"),
        (
            "[algorithm]\nname = 'muzero'",
            "'muzero' for algorithm.name (--algorithm); there are a3c, one_step_q, one_step_sarsa, n_step_q, dqn, sac",
        ),
        ("[algorithm]\ntarget_interval = 5", "unknown field `target_interval` for algorithm"),
        ("[algorithm]\nname = 'n_step_q'\ngae_lambda = 0.9", "unknown field `gae_lambda` for algorithm"),
        (
            "[algorithm]\nname = 'one_step_q'\nfinal_epsilons = [0.1]",
            "one number for each of final_epsilons for algorithm",
        ),
        ("[algorithm]\nname = 'a3c'\nunroll_length = 0", "`int` >= 1 for algorithm.unroll_length (--unroll-length)"),
        (
            "[algorithm]\nname = 'a3c'\nunroll_length = 1.5",
            "expected `int`, got `float` for algorithm.unroll_length (--unroll-length)",
        ),
        ("[algorithm]\nname = 'a3c'\nloss = 'max'", "'max' for algorithm.loss (--loss); there are sum, mean"),
        ("[network]\nhidden = [64, 0]", "`int` >= 1 for network.hidden (--hidden)"),
        ("[consistency]\nrule = 'none'", "'none' for consistency.rule (--consistency); there are async, ssp, sync"),
        ("[environment]\nid = 3", "expected `str`, got `int` for environment.id (--environment)"),
        ("algorithm = 3", "expected `object`, got `int` for algorithm"),
        ("seed = -1", "`int` >= 0 for seed (--seed)"),
    ]:
        with row(text, words):
            tmp_path = tmp_path_factory.mktemp("row")
            path = tmp_path / "my.toml"
            path.write_text(text)
            with pytest.raises(SettingsError) as caught:
                load_config(path)
            assert str(caught.value).startswith(f"--config {path}: ")
            assert words in str(caught.value)
            assert "\n" not in str(caught.value)


def test_settings_are_replaced_and_the_others_stay() -> None:
    changed = with_settings(ADAM_RUN, {"algorithm.discount": 0.5, "seed": 8, "preset": "mine"}, source="a test")
    assert changed == RunSpec(
        preset="mine",
        seed=8,
        algorithm=A3CSettings(discount=0.5),
        optimizer=AdamSettings(beta1=0.5),
        schedule=ADAM_RUN.schedule,
    )
    assert ADAM_RUN.seed == 7


@pytest.mark.parametrize(
    ("overrides", "optimizer"),
    [
        ({"optimizer.name": "sgd"}, SgdSettings()),
        ({"optimizer.name": "adam"}, AdamSettings(beta1=0.5)),
        ({"optimizer.beta2": 0.75, "optimizer.name": "adam"}, AdamSettings(beta1=0.5, beta2=0.75)),
    ],
)
def test_another_optimizer_starts_from_its_defaults_and_the_same_one_does_not(
    overrides: dict[str, Any], optimizer: Any
) -> None:
    assert with_settings(ADAM_RUN, overrides, source="a test").optimizer == optimizer


def test_a_setting_that_does_not_exist_is_refused() -> None:
    for key in [
        "colour",
        "seed.x",
        "preset.x",
        "algorithm.colour",
        "colour.x",
        "staleness.rule",
        "a.b.c",
        "",
        ".",
        "algorithm",
    ]:
        with row(key), pytest.raises(SettingsError, match=r"^worker a: "):
            with_settings(RunSpec(), {key: 1}, source="worker a")


def test_no_two_settings_of_a_run_share_a_flag() -> None:
    for algorithm, optimizer in list(itertools.product(ALGORITHM_SETTINGS, OPTIMIZER_SETTINGS)):
        with row(algorithm, optimizer):
            run = RunSpec(algorithm=ALGORITHM_SETTINGS[algorithm](), optimizer=OPTIMIZER_SETTINGS[optimizer]())
            flags = [flag_of(setting) for setting in flat_settings(run.to_dict())]
            assert len(set(flags)) == len(flags)
