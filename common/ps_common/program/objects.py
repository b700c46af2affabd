"""
Python objects that a program hands to its own child processes: parts of a run that no import finds.

cloudpickle writes them into a private file, which exists until the child has ended; a variable tells the child, and its
children, where it is. Nothing else is ever unpickled. The run names such a part `__main__:NAME`: nothing but its name
travels or is kept.
"""

import contextlib
import functools
import hashlib
import os
import pickle
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ps_common.errors import SettingsError
from ps_common.protocol.names import module_of

FILE = "PS_RL_OBJECTS"  # variable of a program: the file with the objects of the one that started it
MAIN = "__main__"  # the module of their names

_given: dict[str, Any] = {}  # of runs that this process has started or used, the newest of each name


def have(objects: Mapping[str, Any]) -> None:
    """Give these objects to this process."""
    _given.update(objects)


@contextlib.contextmanager
def handed(written: bytes) -> Iterator[dict[str, str]]:
    """The variables that tell a child process where the objects are; the file is there in this context."""
    if not written:
        yield {}
        return
    descriptor, path = tempfile.mkstemp(prefix="ps-rl-objects-")  # 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(written)
        yield {FILE: path}
    finally:
        Path(path).unlink(missing_ok=True)


def forget_objects() -> None:
    """Remove the file of a run that is over, also where the program that wrote it was killed."""
    if FILE in os.environ:
        Path(os.environ[FILE]).unlink(missing_ok=True)


def objects_here() -> Mapping[str, Any]:
    """The objects that this process has, by name. Raises SettingsError when they cannot be read."""
    return _received()[0] | _given


def objects_hash() -> str:
    """A hash of the objects of the program that started this one."""
    return _received()[1]


def missing(part: str) -> SettingsError:
    """The error for an object that this process does not have."""
    return SettingsError(
        f"{part}: __main__ is the program that began the run, and this is another one; give train the object itself, "
        "also with resume=FOLDER, or move it into a module that any program and host can import, such as "
        "my_parts.py, and name it as my_parts:NAME"
    )


def check_is_here(path: str) -> bool:
    """Whether it names an object. Raises SettingsError when this process does not have it."""
    if module_of(path) != MAIN:
        return False
    if path.rpartition(":")[2] not in objects_here():
        raise missing(path)
    return True


@functools.cache
def _received() -> tuple[dict[str, Any], str]:
    if FILE not in os.environ:
        return {}, "none"
    try:
        written = Path(os.environ[FILE]).read_bytes()
        objects: dict[str, Any] = pickle.loads(written)  # noqa: S301  (of the program that started this one)
    except Exception as error:
        raise SettingsError(f"the Python objects of the run cannot be loaded here: {error!r}") from error
    return objects, hashlib.sha256(written).hexdigest()[:16]
