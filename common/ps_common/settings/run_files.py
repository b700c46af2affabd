"""Runs in TOML files: the presets that come with ps-rl, and a user's own file (--config)."""

import contextlib
import difflib
import itertools
import re
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from ps_common.errors import SettingsError
from ps_common.protocol.messages import Run
from ps_common.protocol.names import as_text
from ps_common.settings.regular_file import toml_in
from ps_common.settings.run_settings import run_from_dict, without_staleness
from ps_common.settings.run_spec import RunSpec

SETTINGS = "run.toml"  # the file of a run folder that has the settings of its run
DEFAULT_PRESET = "pong"  # of a run that no flag, file or server has decided


def presets() -> list[str]:
    """Names of the presets that come with ps-rl."""
    return sorted(path.name.removesuffix(".toml") for path in _preset_folder().iterdir() if path.name.endswith(".toml"))


def what_preset_is(name: str) -> str:
    """The first sentence of its file."""
    lines = (_preset_folder() / f"{name}.toml").read_text(encoding="utf-8").splitlines()
    comment = itertools.takewhile(lambda line: line.startswith("#"), lines)
    sentences = re.split(r"(?<=\.) (?=[A-Z])", " ".join(line.removeprefix("#").strip() for line in comment))
    return sentences[0]


def load_preset(name: str) -> RunSpec:
    """Raises SettingsError when there is no such preset."""
    if name not in presets():
        near = difflib.get_close_matches(name, presets(), n=1, cutoff=0.5)
        meant = f"did you mean {near[0]}? There are" if near else "there are"
        raise SettingsError(f"--preset {name}: no such preset; {meant} {', '.join(presets())}")
    settings = tomllib.loads((_preset_folder() / f"{name}.toml").read_text(encoding="utf-8"))
    return run_from_dict({"preset": name, **settings}, source=f"preset {name}")


def load_config(path: Path) -> RunSpec:
    """The run specification in a TOML file. Raises SettingsError that names the file."""
    try:
        settings = toml_in(path)
    except OSError as error:
        raise SettingsError(f"--config {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise SettingsError(f"--config {path}: not TOML: {error}") from error
    if isinstance(section := settings.get("staleness"), dict) and section.get("rule") == "bounded":
        raise SettingsError(f"--config {path}: the rule bounded is gone; leave the section staleness out")
    return run_from_dict({"preset": as_text(path.stem), **settings}, source=f"--config {path}")


def settings_as_written(path: Path) -> dict[str, Any]:
    """The settings in a run.toml, as another version may have written them; empty if unreadable, or no settings."""
    with contextlib.suppress(OSError, ValueError):
        settings = toml_in(path)
        msgspec.convert(settings, Run)  # raises for values that no setting has
        return without_staleness(settings)
    return {}


def _preset_folder() -> Any:
    return resources.files("ps_common") / "presets"
