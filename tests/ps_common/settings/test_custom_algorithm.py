"""Settings of an algorithm that nobody here knows: names and values that travel, checked as far as they can be."""

import keyword
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps_common.errors import SettingsError
from ps_common.program.flags import Parsed, parse_with_run
from ps_common.protocol.names import MOST
from ps_common.settings.custom_algorithm import KNOWN_TO_THE_SERVER, NAME
from ps_common.settings.overrides import contradiction, resumed_run
from ps_common.settings.run_settings import run_from_dict
from ps_common.settings.run_spec import LONGEST_UNROLL, CustomAlgorithmSettings, RunSpec
from ps_server.settings import ServerSettings
from rl_worker.settings import WorkerSettings
from tests.ps_common.generated import PRINTABLE
from tests.rows import row

OWN = {"name": "my_pkg:Method", "unroll_length": 8, "temperature": 0.5, "is_on": True, "words": ["a"], "none": None}


def a_run(**settings: Any) -> RunSpec:
    return run_from_dict({"algorithm": OWN | settings}, source="a test")


def test_settings_that_nobody_knows_survive_files_and_messages() -> None:
    run = a_run()
    assert run_from_dict(msgspec.json.decode(msgspec.json.encode(run.to_dict())), source="a test") == run
    back = run_from_dict(tomllib.loads(run.to_toml()), source="a test").to_dict()["algorithm"]
    assert back == {name: ("a",) if name == "words" else value for name, value in OWN.items()}
    assert contradiction(run, {"algorithm.temperature": 0.5, "algorithm.words": ["a"]}) == ""
    assert contradiction(run, {"algorithm.temperature": 2}).startswith("--temperature 2 contradicts this run")
    assert contradiction(run, {"algorithm.colour": 2}).startswith("--colour is not a setting of this run")
    changed: Any = resumed_run(run, {"algorithm.temperature": 2.0}).algorithm
    assert changed.temperature == 2.0
    with pytest.raises(SettingsError, match=r"^--algorithm a3c: a resumed run keeps my_pkg:Method"):
        resumed_run(run, {"algorithm.name": "a3c"})


VALUES = st.none() | st.booleans() | st.integers(-MOST, MOST) | st.floats(allow_nan=False, allow_infinity=False)
NAMES = st.from_regex(NAME, fullmatch=True).filter(lambda name: name not in KNOWN_TO_THE_SERVER and name != "name")


@given(st.dictionaries(NAMES, VALUES | st.text(PRINTABLE, max_size=9) | st.lists(VALUES.filter(bool), max_size=3)))
def test_settings_of_any_value_survive_a_file(settings: dict[str, Any]) -> None:
    settings = {name: value for name, value in settings.items() if not keyword.iskeyword(name)}
    run = run_from_dict({"algorithm": {"name": "my_pkg:Method"} | settings}, source="a test")
    assert run_from_dict(tomllib.loads(run.to_toml()), source="a test") == run


def test_the_server_acts_on_two_settings_and_knows_what_they_are_where_they_are_missing() -> None:
    run = a_run(target_interval=100)
    assert (run.algorithm.unroll_length, getattr(run.algorithm, "target_interval", None)) == (8, 100)
    bare = run_from_dict({"algorithm": {"name": "my_pkg:Method"}}, source="a test").algorithm
    assert isinstance(bare, CustomAlgorithmSettings)
    assert (bare.unroll_length, bare.target_interval) == (LONGEST_UNROLL, 0)


def test_what_cannot_travel_is_refused() -> None:
    for name, value, sentence in [
        ("unroll_length", 0, "`int` >= 1.* for algorithm.unroll_length"),
        ("unroll_length", "x", "got `str` for algorithm.unroll_length"),
        ("target_interval", -1, "for algorithm.target_interval"),
        ("temperature", float("nan"), "algorithm.temperature must be true, false, a finite number"),
        ("temperature", 2**60, "algorithm.temperature must be"),
        ("temperature", {"nested": 1}, "algorithm.temperature must be"),
        ("temperature", [[1]], "algorithm.temperature must be"),
        ("temperature", "\x1b[2J", "algorithm.temperature must be"),
        ("to_dict()", 1, "is not a name for a setting"),
        ("class", 1, "is not a name for a setting"),
        ("__slots__", 1, "is not a name for a setting"),
    ]:
        with row(name, value, sentence), pytest.raises(SettingsError, match=f"^a test: .*{sentence}"):
            a_run(**{name: value})


def test_a_server_takes_flags_of_the_settings_that_a_file_gives(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(a_run().to_toml())
    typed = ["--config", str(tmp_path / "mine.toml"), "--temperature", "2", "--words", "x", "y", "--no-is-on"]
    flags = parse_with_run(ServerSettings, typed, prog="ps-server")
    settings: Any = flags.run.algorithm
    assert (settings.temperature, settings.words, settings.is_on) == (2, ("x", "y"), False)
    assert flags.modules == ()  # a file names no module to import


class Mine(msgspec.Struct, frozen=True, kw_only=True):
    unroll_length: int = 5
    temperature: float = 1.0
    """how hot"""


def parsed(*typed: str, kind: type[msgspec.Struct] = Mine) -> Parsed[Any]:
    def own(path: str, given: Any, without_it: Any) -> msgspec.Struct:
        return msgspec.convert(given, kind)

    return parse_with_run(WorkerSettings, ["--server", "a:1", *typed], prog="w", custom_settings=own)


def test_the_settings_of_ones_custom_algorithm_are_flags_with_their_types() -> None:
    flags = parsed("--algorithm", "my_pkg:Method", "--temperature", "2")
    assert flags.run.to_dict()["algorithm"] == {"name": "my_pkg:Method", "unroll_length": 5, "temperature": 2.0}
    assert flags.overrides == {"algorithm.name": "my_pkg:Method", "algorithm.temperature": 2.0}
    assert flags.modules == ("my_pkg",)


@pytest.mark.parametrize("taken", ["learning_rate", "hidden", "threads", "name"])
def test_a_setting_that_has_the_name_of_another_flag_is_refused(taken: str) -> None:
    kind = msgspec.defstruct("Taken", [("unroll_length", int, 5), (taken, int, 1)])
    with pytest.raises(SettingsError, match=f"--algorithm my_pkg:Method: its setting --{taken.replace('_', '-')} is a"):
        parsed("--algorithm", "my_pkg:Method", kind=kind)
