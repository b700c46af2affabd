"""Overrides of a run that a worker joins, and of one that is resumed: every setting of every kind of run."""

import itertools
import re
import typing
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from ps_common.errors import SettingsError
from ps_common.settings.overrides import contradiction, resumed_run
from ps_common.settings.run_settings import flag_of, flat_settings, with_settings
from ps_common.settings.run_spec import (
    ALGORITHM_SETTINGS,
    OPTIMIZER_SETTINGS,
    AdamSettings,
    NetworkSettings,
    RunSpec,
    Schedule,
)
from tests.rows import row

ADAM_RUN = RunSpec(seed=7, optimizer=AdamSettings(beta1=0.5), schedule=Schedule(learning_rate=0.25))
KEPT = RunSpec(preset="cartpole", seed=1, network=NetworkSettings(name="my_pkg:Torso"))  # which takes arguments, too
RUNS = [
    with_settings(KEPT, {"algorithm.name": algorithm, "optimizer.name": optimizer}, source="test")
    for algorithm, optimizer in zip(ALGORITHM_SETTINGS, itertools.cycle(OPTIMIZER_SETTINGS))
]
BEGUN_WITH = re.compile(
    r"(preset|seed|start_from|(algorithm|optimizer)\.name|algorithm\.(reward_normalization|actor_rate|temperature_rate|policy_every)|network\..*|environment\.(?!(envs|step_in|most_failures)$).*)"
)


def candidates(run: RunSpec, key: str) -> Iterator[Any]:
    """Values that a setting may have, among others that it may not."""
    section, _, name = key.rpartition(".")
    owner = getattr(run, section) if section else run
    yield from _words(typing.get_type_hints(type(owner)).get(name))
    yield from {"algorithm.name": ALGORITHM_SETTINGS, "optimizer.name": OPTIMIZER_SETTINGS}.get(key, ())
    value = getattr(owner, name, None)
    yield from (not value, 7, 0.5, [64], [0.2, 0.3, 0.5], [0.3], "another", ["my_pkg:Part"], "my_pkg:Part", {"size": 5})


def _words(kind: Any) -> Iterator[str]:
    for inner in typing.get_args(kind):
        yield from [inner] if isinstance(inner, str) else _words(inner)


def another(run: RunSpec, key: str) -> Any:
    """A value that this setting of the run does not have, and may have."""
    for value in candidates(run, key):
        try:
            changed = with_settings(run, {key: value}, source="test")
        except SettingsError:
            continue
        if changed != run:
            return value
    raise AssertionError(f"no other value is known for {key}")


EACH_SETTING = [(run, key) for run in RUNS for key in flat_settings(run.to_dict())]


def test_the_sentence_on_an_override_that_contradicts_the_run_names_its_flag() -> None:
    for overrides, sentence in [
        ({}, ""),
        ({"optimizer.name": "adam", "optimizer.beta1": 0.5, "network.hidden": [], "seed": 7}, ""),
        ({"seed": 1, "environment.envs": 99}, ""),  # each worker's own
        ({"wire.gradient_codec": "topk", "wire.prefetch": 2, "wire.pull_every": 4}, ""),  # so is its link
        ({"schedule.learning_rate": 0.5}, "--learning-rate 0.5 contradicts this run, which was started with 0.25"),
        (
            {"environment.id": "CartPole-v1"},
            "--environment CartPole-v1 contradicts this run, which was started with none",
        ),
        ({"network.hidden": [64]}, "--hidden 64 contradicts this run, which was started with the default"),
        ({"optimizer.decay": 0.99}, "--decay is not a setting of this run (custom); remove it"),
        ({"colour": 3}, "--colour is not a setting of this run"),
    ]:
        with row(overrides, sentence):
            contradicted = contradiction(ADAM_RUN, overrides)
            assert contradicted.startswith(sentence)
            assert bool(contradicted) == bool(sentence)


def test_every_setting_is_applied_or_refused_with_its_flag() -> None:
    for run, key in EACH_SETTING:
        with row(run, key):
            value = another(run, key)
            if BEGUN_WITH.fullmatch(key):
                with pytest.raises(SettingsError, match=f"{flag_of(key)} .*a resumed run keeps .*remove the flag"):
                    resumed_run(run, {key: value})
            else:
                resumed = flat_settings(resumed_run(run, {key: value}).to_dict())
                assert resumed[key] == (tuple(value) if isinstance(value, list) else value)


@pytest.mark.parametrize("run", RUNS, ids=lambda run: str(type(run.algorithm).__name__))
def test_an_override_may_repeat_what_the_run_has(run: RunSpec) -> None:
    assert resumed_run(run, flat_settings(run.to_dict())) == run
    as_typed = msgspec.json.decode(msgspec.json.encode(flat_settings(run.to_dict())))
    assert resumed_run(run, as_typed) == run
