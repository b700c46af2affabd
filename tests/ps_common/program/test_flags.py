import dataclasses
import json

import pytest

from ps_common.errors import SettingsError
from ps_common.program.flags import Parsed, parse_with_run
from ps_common.program.run_program import run_program
from ps_common.settings.run_files import load_preset, recipe_for
from ps_common.settings.run_settings import with_settings
from tests.rows import row


@dataclasses.dataclass(frozen=True, kw_only=True)
class Oven:
    """A program with settings of its own."""

    degrees: int = 200
    """how hot"""
    name: str | None = None
    """what it is called"""

    def __post_init__(self) -> None:
        if not 50 <= self.degrees <= 300:
            raise SettingsError(f"--degrees {self.degrees}: must be 50 to 300")


def parsed(*arguments: str) -> Parsed[Oven]:
    return parse_with_run(Oven, arguments, prog="oven")


def test_a_typed_flag_is_an_override_and_becomes_part_of_the_run() -> None:
    for arguments, overrides in [
        ([], {}),
        (["--degrees", "100", "--name", "seed"], {}),
        (["--name=--seed"], {}),
        (["--unroll-length", "7"], {"algorithm.unroll_length": 7}),
        (["--unroll-length=7"], {"algorithm.unroll_length": 7}),
        (["--unroll_length", "7"], {"algorithm.unroll_length": 7}),
        (["--unroll-length", "128"], {"algorithm.unroll_length": 128}),  # the preset's own value, yet typed
        (["--envs", "4", "--envs", "5"], {"environment.envs": 5}),
        (["--normalize-advantages"], {"algorithm.normalize_advantages": True}),
        (["--no-normalize-advantages"], {"algorithm.normalize_advantages": False}),
        (["--no_normalize_advantages"], {"algorithm.normalize_advantages": False}),
        (["--hidden", "64", "32"], {"network.hidden": (64, 32)}),
        (["--hidden"], {"network.hidden": ()}),
        (["--network", "mlp"], {"network.name": "mlp"}),
        (["--consistency", "ssp", "--slack", "3"], {"consistency.rule": "ssp", "consistency.slack": 3}),
        (["--until-return", "-21"], {"budget.until_return": -21.0}),
        (["--until-return", "None"], {"budget.until_return": None}),
        (["--optimizer", "rmsprop", "--decay", "0.5"], {"optimizer.name": "rmsprop", "optimizer.decay": 0.5}),
        (["--algorithm", "a3c", "--discount", "0.5"], {"algorithm.name": "a3c", "algorithm.discount": 0.5}),
    ]:
        with row(arguments, overrides):
            flags = parsed(*arguments)
            assert flags.overrides == overrides
            assert flags.run == with_settings(load_preset("pong"), overrides, source="a test")
            assert not flags.names_a_run


def test_an_environment_alone_starts_from_the_recipe_and_not_from_settings_tuned_for_pong() -> None:
    flags = parsed("--environment", "CartPole-v1")
    assert flags.run == recipe_for("CartPole-v1")
    assert (flags.run.preset, flags.run.environment.id) == ("CartPole-v1", "CartPole-v1")
    assert flags.overrides == {"environment.id": "CartPole-v1"}
    assert flags.names_a_run


def test_a_bad_flag_ends_the_program_with_status_2_and_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, words in [
        (["--unroll-length", "many"], "--unroll-length"),
        (["--colour", "red"], "--colour"),
        (["--unroll", "7"], "--unroll-length"),  # no abbreviations; it says which was meant
        (["--optimizer", "sgd", "--beta1", "0.5"], "--beta1"),
        (["--normalize-advantages=maybe"], "maybe"),
        (["--consistency", "wild"], "--consistency"),
        (["--degrees"], "--degrees"),
        (["--seed", "--envs", "3"], "--seed"),
        (["--learning-rate", "--"], "--learning-rate"),
        (["banana"], "banana"),
    ]:
        with row(arguments, words):
            with pytest.raises(SystemExit) as exit_:
                run_program(lambda typed=arguments: parsed(*typed), "oven")
            assert exit_.value.code == 2
            printed = capsys.readouterr()
            assert words in printed.err
            assert "Traceback" not in printed.err
            assert printed.out == ""


def test_a_table_is_typed_as_json_and_the_error_shows_how(capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("size=5", "5"):
        with row(text):
            with pytest.raises(SystemExit):
                parsed("--environment", "CartPole-v1", "--environment-kwargs", text)
            assert '{"size": 5}' in " ".join(capsys.readouterr().err.replace("│", " ").split())
    kwargs = {"size": 5, "name": "large"}
    typed = parsed("--environment", "CartPole-v1", "--environment-kwargs", json.dumps(kwargs))
    assert typed.run.environment.kwargs == kwargs
