"""
Settings of a run as keyword arguments of Python: `learning_rate=1e-3`, `environment="CartPole-v1"`, `optimizer="adam"`.

The name of an argument is that of the flag, with underscores. run_settings.py checks the values.
"""

import difflib
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

import msgspec

from ps_common.errors import SettingsError
from ps_common.protocol.names import as_text
from ps_common.settings.run_settings import NAMED_SECTIONS, flag_of, flat_settings, with_settings
from ps_common.settings.run_spec import RunSpec


def keyword_of(setting: str) -> str:
    """The keyword of a setting: "learning_rate" for "schedule.learning_rate", "environment" for "environment.id"."""
    return flag_of(setting).removeprefix("--").replace("-", "_")


def keywords_of(run: RunSpec) -> dict[str, Any]:
    """All settings of a run by keyword."""
    return {keyword_of(setting): value for setting, value in flat_settings(run.to_dict()).items()}


def plain(keywords: Mapping[str, Any], *, source: str) -> dict[str, Any]:
    """
    The keywords with values as a file has them: numbers of numpy and torch, arrays, paths and enums become plain ones.

    Raises SettingsError that names `source` and the first keyword whose value is an object of another kind.
    """
    values: dict[str, Any] = {}
    for keyword, value in keywords.items():
        try:
            values[keyword] = msgspec.to_builtins(value, enc_hook=_plain)
        except (NotImplementedError, TypeError) as error:
            raise SettingsError(
                f"{source}: {as_text(keyword)} is {as_text(repr(value))}; a setting is a number, a text or a list of "
                "these, and a part of your own its import path, such as my_env:Env"
            ) from error
    return values


def _plain(value: Any) -> Any:
    if isinstance(value, PurePath):
        return str(value)
    if hasattr(value, "tolist") and not isinstance(value, type):
        return value.tolist()
    raise NotImplementedError


def with_keywords(run: RunSpec, keywords: Mapping[str, Any], *, source: str) -> tuple[RunSpec, dict[str, Any]]:
    """
    The run with these settings, and the settings alone, flat.

    `algorithm` and `optimizer` decide which other keywords there are. Raises SettingsError that names `source`.
    """
    keywords = plain(keywords, source=source)
    sections = {f"{section}.name": keywords[section] for section in NAMED_SECTIONS if section in keywords}
    settings = {keyword_of(key): key for key in flat_settings(with_settings(run, sections, source=source).to_dict())}
    for keyword in keywords:
        if keyword not in settings:
            near = difflib.get_close_matches(keyword, settings, n=1, cutoff=0.6)
            meant = f"did you mean {near[0]}?" if near else f"there are {', '.join(settings)}"
            raise SettingsError(f"{source}: {as_text(keyword)} is no setting of this run; {meant}")
    given = {settings[keyword]: value for keyword, value in keywords.items()}
    changed = with_settings(run, given, source=source)
    flat = flat_settings(changed.to_dict())
    return changed, {key: flat[key] for key in given}
