"""Python objects that a program hands to its child processes."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from ps_common.errors import SettingsError
from ps_common.program.objects import FILE, check_is_here, handed
from ps_common.settings.run_spec import A3CSettings
from ps_rl.custom_objects import path_of, pickled
from tests.rows import row


def at_the_top() -> int:
    return 1


class AtTheTop:
    class Inside: ...


def in_a_child(expression: str, objects: dict[str, Any]) -> str:
    """What a new process prints that was handed the objects `o`."""
    program = f"from ps_common.program.objects import objects_here; o = objects_here(); print({expression})"
    with handed(pickled(objects)) as variables:
        ran = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            check=False,
        )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def test_what_an_import_finds_has_its_import_path_and_anything_else_a_name() -> None:
    class Local: ...

    other: Any = type("Local", (), {})
    for part, path in [
        (at_the_top, f"{__name__}:at_the_top"),
        (AtTheTop.Inside, f"{__name__}:AtTheTop.Inside"),
        (Local, "__main__:Local"),
        (lambda: 1, "__main__:lambda"),
    ]:
        with row(path):
            objects: dict[str, Any] = {}
            assert path_of(part, objects) == path
            assert list(objects.values()) == ([part] if path.startswith("__main__") else [])
    objects = {}
    assert [path_of(part, objects) for part in (Local, other, Local)] == [
        "__main__:Local",
        "__main__:Local_2",
        "__main__:Local",
    ]


def test_classes_lambdas_and_closures_arrive() -> None:
    data = [2, 3]

    class Local:
        def sum(self) -> int:
            return sum(data)

    assert in_a_child("o['L']().sum() + o['f'](4)", {"L": Local, "f": lambda more: more + data[0]}) == "11"


def test_the_file_is_private_and_gone_when_the_child_has_ended() -> None:
    with handed(pickled({"f": lambda: 1})) as variables:
        path = Path(variables[FILE])
        assert path.stat().st_mode & 0o777 == 0o600
    assert not path.exists()
    with handed(pickled({})) as variables:
        assert variables == {}


def test_what_cannot_be_handed_on_is_named() -> None:
    lock = threading.Lock()
    with pytest.raises(SettingsError, match=r"^reader: cannot be handed"):
        pickled({"reader": lambda: lock})

    class Settings(A3CSettings, frozen=True, kw_only=True):
        temperature: float = 2.0

    with pytest.raises(SettingsError, match=r"^method: .*Settings is a msgspec.Struct, which must be in a module"):
        pickled({"method": lambda: Settings})
    assert in_a_child("o['method']().gae_lambda", {"method": lambda: A3CSettings()}) == "1.0"


def test_an_object_of_another_program_is_named_and_no_flag_that_nobody_typed() -> None:
    with pytest.raises(SettingsError, match=r"^__main__:Nothing: __main__ is the program that began the run"):
        check_is_here("__main__:Nothing")
    assert not check_is_here("my_parts:Env")


NOTEBOOK = """
import os, subprocess, sys
from ps_common.program.objects import handed
from ps_rl.custom_objects import path_of, pickled

class Env:
    size = 7

objects = {}
assert path_of(Env, objects) == "__main__:Env"
with handed(pickled(objects)) as variables:
    program = "from ps_common.program.objects import objects_here; print(objects_here()['Env'].size)"
    subprocess.run([sys.executable, "-c", program], env={**os.environ, **variables}, check=True)
"""


def test_a_class_of_a_script_or_notebook_arrives() -> None:
    ran = subprocess.run([sys.executable, "-c", NOTEBOOK], capture_output=True, text=True, check=True)
    assert ran.stdout == "7\n"
