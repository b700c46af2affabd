"""
Classes and functions of the calling program as parts of a run: by their import path, or, where no import finds them,
pickled for the processes of the run (ps_common/program/objects.py).
"""

import contextlib
import functools
import importlib.util
import io
import re
import sys
from collections.abc import Mapping
from typing import Any

import msgspec

from ps_common.errors import SettingsError
from ps_common.program.objects import MAIN
from ps_common.protocol.names import is_import_path


def path_of(part: Any, objects: dict[str, Any]) -> str:
    """The import path of a class or function; of one that no import finds, which `objects` gets, by its name there."""
    module, name = getattr(part, "__module__", None), getattr(part, "__qualname__", None)
    if module != MAIN and is_import_path(path := f"{module}:{name}"):
        with contextlib.suppress(AttributeError, KeyError, ValueError):
            found = functools.reduce(getattr, path.rpartition(":")[2].split("."), sys.modules[str(module)])
            if found is part and importlib.util.find_spec(str(module)) is not None:
                return path
    name = re.sub(r"\W", "", getattr(part, "__name__", type(part).__name__), flags=re.ASCII) or "part"
    alike = [name, *(f"{name}_{number}" for number in range(2, len(objects) + 2))]
    name = next(one for one in alike if objects.setdefault(one, part) is part)
    return f"{MAIN}:{name}"


def pickled(objects: Mapping[str, Any]) -> bytes:
    """The objects for child processes; no bytes for none. Raises SettingsError."""
    written = b""
    for name, part in (*objects.items(), ("", dict(objects))):  # one by one for the error, then all in one
        try:
            written = _pickled(part)
        except Exception as error:
            raise SettingsError(
                f"{name}: cannot be handed to the processes of the run: {error}; make what it holds inside of it"
            ) from error
    return written if objects else b""


def _pickled(part: Any) -> bytes:
    import cloudpickle  # which programs that hand nothing on need not have

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        """cloudpickle would write a struct of msgspec, such as the settings of an algorithm, without its fields."""

        def reducer_override(self, part: Any) -> Any:
            reduced = super().reducer_override(part)
            if isinstance(part, type(msgspec.Struct)) and isinstance(reduced, tuple):
                raise TypeError(f"{part.__name__} is a msgspec.Struct, which must be in a module that can be imported")
            return reduced

    file = io.BytesIO()
    Pickler(file).dump(part)
    return file.getvalue()
