"""A run as it is sent: what a release has added is left out where nobody asks for it."""

from typing import Any

import pytest

from ps_common.errors import SettingsError
from ps_common.settings.run_files import load_preset, presets
from ps_common.settings.run_settings import flat_settings, run_for_peers, run_from_dict, with_settings
from ps_common.settings.run_spec import RunSpec
from ps_common.settings.table import TABLE
from tests.rows import row

DEFAULTS = flat_settings(RunSpec().to_dict())
ADDED = {name for name, setting in TABLE.items() if setting.kinds.added} & DEFAULTS.keys()  # no sections


def test_every_run_is_the_same_when_it_has_been_sent() -> None:
    for name in presets():
        run = load_preset(name)
        with row(name):
            sent = run_for_peers(run)
            assert run_from_dict(sent, source="a peer") == run
            whole = flat_settings(run.to_dict())
            assert whole.keys() - flat_settings(sent).keys() == {
                name for name in ADDED if whole[name] == DEFAULTS[name]
            }


def test_what_a_release_has_added_is_sent_where_it_is_asked_for() -> None:
    custom = {"environment.id": "my_games:Maze", "environment.kwargs": {"size": 5}, "start_from": "runs/first"}
    run = with_settings(RunSpec(), custom, source="a test")
    sent = flat_settings(run_for_peers(run))
    assert {name: sent[name] for name in custom} == custom
    assert ADDED - sent.keys() == ADDED - custom.keys()


def test_a_run_with_a_setting_that_this_release_does_not_have_is_refused_by_its_name() -> None:
    sent = run_for_peers(RunSpec()) | {"temperament": "calm"}
    with pytest.raises(SettingsError, match="the server at here: object contains unknown field `temperament`"):
        run_from_dict(sent, source="the server at here")


@pytest.mark.parametrize(
    "gone",
    [
        {"wire": {"checksums": True}},
        {"records": {"summary_every_updates": 5}},
        {"records": {"gif_every_episodes": 1000, "summaries": "model"}},
        {"algorithm": {"value_target": "lambda_return"}, "network": {"same_padding": False, "lstm_forget_bias": 0.0}},
        {"optimizer": {"initial_square": 0.0}},
        {"environment": {"start_tic": 0, "decals_and_particles": True, "box_actions": "clipped"}},
        {"network": {"head_bias": True, "value_hidden": []}},
    ],
)
def test_settings_of_release_0_2_0_that_are_gone_change_nothing(gone: dict[str, dict[str, Any]]) -> None:
    kept: dict[str, dict[str, Any]] = {"wire": {"prefetch": 1}, "records": {"keep_checkpoints": 3}}
    kept |= {"algorithm": {"name": "a3c"}, "network": {"lstm": 8}, "optimizer": {"name": "rmsprop"}}
    kept |= {"environment": {"envs": 2}}
    sections = {section: values | gone.get(section, {}) for section, values in kept.items()}
    assert run_from_dict(sections, source="run.toml") == run_from_dict(kept, source="run.toml")


def test_a_gone_setting_takes_no_other_of_its_section_with_it() -> None:
    assert run_from_dict({"records": {"summaries": "none"}}, source="run.toml").records.summaries == "none"
    with pytest.raises(SettingsError, match=r"records\.summaries \(--summaries\); there are none, perf"):
        run_from_dict({"records": {"summaries": "all"}}, source="run.toml")
