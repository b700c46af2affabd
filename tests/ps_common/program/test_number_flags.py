"""Numeric flags of every program: none takes a number that is not finite, or absurd."""

import dataclasses
import math
import typing
from collections.abc import Iterator
from itertools import product
from typing import Any

import msgspec
import pytest

from ps_common.errors import SettingsError
from ps_common.program.flags import parse_with_run
from ps_common.settings.run_settings import flag_of, run_from_dict
from ps_common.settings.run_spec import ALGORITHM_SETTINGS, OPTIMIZER_SETTINGS, RunSpec
from ps_server.settings import ServerSettings
from rl_cluster.settings import ClusterSettings
from rl_eval.settings import EvaluationSettings
from rl_worker.settings import WorkerSettings
from tests.rows import row

PROGRAMS: dict[type[Any], dict[str, Any]] = {
    ServerSettings: {},
    WorkerSettings: {"server": "here:5555"},
    ClusterSettings: {},
    EvaluationSettings: {"server": "here:5555"},
}
ABSURD = [math.nan, math.inf, -math.inf, 1e308, -1e308, -1.0, 10**30, -(10**30), 2**63]


def numbers_of(settings: type[Any]) -> list[str]:
    """The fields that may hold a number."""
    kinds = typing.get_type_hints(settings)
    fields = [field.name for field in dataclasses.fields(settings)]
    return [name for name in fields if {int, float} & {kinds[name], *typing.get_args(kinds[name])}]


PROGRAM_NUMBERS = [(settings, name) for settings in PROGRAMS for name in numbers_of(settings)]


def test_a_program_refuses_an_absurd_number_naming_its_flag() -> None:
    for (settings, name), value in product(PROGRAM_NUMBERS, ABSURD):
        with row(settings, name, value):
            flag = "--" + name.replace("_", "-")
            with pytest.raises(SettingsError, match=f"^{flag} .*: must be .* to "):
                settings(**PROGRAMS[settings], **{name: value})


def sections() -> Iterator[tuple[str, type[Any]]]:
    for field in msgspec.structs.fields(RunSpec):
        if isinstance(field.default, msgspec.Struct):
            yield field.name, type(field.default)
    yield from (("algorithm", kind) for kind in ALGORITHM_SETTINGS.values())
    yield from (("optimizer", kind) for kind in OPTIMIZER_SETTINGS.values())


def is_number(kind: Any) -> bool:
    """Of a field's type: a number, with or without bounds, or None."""
    if typing.get_origin(kind) is typing.Annotated:
        return is_number(typing.get_args(kind)[0])
    return kind in (int, float) or any(is_number(one) for one in typing.get_args(kind))


def run_numbers() -> list[tuple[str, str, bool]]:
    """(section, setting, whether it is a tuple) of each number of a run."""
    found = []
    for section, kind in sections():
        name = kind.__struct_config__.tag
        for field in msgspec.structs.fields(kind):
            is_tuple = typing.get_origin(field.type) is tuple
            if is_number(typing.get_args(field.type)[0] if is_tuple else field.type):
                found.append((f"{section}:{name}" if name else section, field.name, is_tuple))
    return sorted(set(found))


def test_a_run_refuses_numbers_that_are_not_finite_or_do_not_travel() -> None:
    for section, name, is_tuple in run_numbers():
        with row(section, name, is_tuple):
            part, _, tag = section.partition(":")
            for value in (math.nan, math.inf, -math.inf, 1e300, -1e300, 10**30, 2**63):
                given = {name: [value] if is_tuple else value} | ({"name": tag} if tag else {})
                with pytest.raises(SettingsError, match=f"^flags: .* for .*{flag_of(f'{part}.{name}')}"):
                    run_from_dict({part: given}, source="flags")


def test_the_error_for_a_bad_number_names_its_flag(capsys: pytest.CaptureFixture[str]) -> None:
    for value, flag in product(
        ["inf", "-inf", "nan", "1e400", "-1", "1" + "0" * 30, "", "ten"],
        ["--threads", "--receive-mib", "--hidden", "--learning-rate", "--max-steps", "--seed"],
    ):
        with row(value, flag):
            with pytest.raises((SettingsError, SystemExit)) as refused:
                parse_with_run(ServerSettings, [flag, value], prog="ps-server")
            said = capsys.readouterr().err if isinstance(refused.value, SystemExit) else str(refused.value)
            assert flag in said
            assert refused.value.args != (0,)
