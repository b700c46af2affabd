"""
Two sides of a trial: this checkout, and an earlier release beside it, in a folder of its own.

The programs of a side are found by PYTHONPATH, and started by the entry points that its pyproject.toml names.
"""

import io
import subprocess
import tarfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.processes import Program, Programs, wait_for

ROOT = Path(__file__).parent.parent.parent
# The earlier side of the wire: the commit of 0.2.0, whose tag a clone may lack.
BEFORE = "d0b9e9a54246a931c556b0230ecb75fb06f46fd9"
ENTRY = "import sys; sys.argv[0] = {name!r}; from {module} import {function}; sys.exit({function}())"


@dataclass(frozen=True)
class Side:
    """The programs of one release."""

    name: str
    root: Path

    @property
    def variables(self) -> dict[str, str]:
        """The environment in which Python finds this release, whatever is installed."""
        return {"PYTHONPATH": f"{self.root}:{self.root / 'common'}"}

    def start(self, programs: Programs, name: str, *flags: str) -> Program:
        """The program of this name."""
        scripts = tomllib.loads((self.root / "pyproject.toml").read_text())["project"]["scripts"]
        module, _, function = scripts[name].partition(":")
        entry = ENTRY.format(name=name, module=module, function=function)
        return programs.start("python", "-P", "-c", entry, *flags, variables=self.variables)

    def start_server(self, programs: Programs, folder: Path, *flags: str) -> tuple[Program, str]:
        """A ps-server on loopback, and its HOST:PORT."""
        where = ("--host", "127.0.0.1", "--port", "0", *(() if "--resume" in flags else ("--run-dir", str(folder))))
        (folder / "endpoint").unlink(missing_ok=True)
        program = self.start(programs, "ps-server", *where, *flags)
        endpoint = folder / "endpoint"

        def address() -> str:
            return endpoint.read_text(encoding="utf-8").strip() if endpoint.exists() else ""

        return program, wait_for(address, within_seconds=300, program=program)


NEW = Side("new", ROOT)


def earlier_release(folder: Path) -> Side:
    """The release before this one, taken out of the history into a folder. Skips where the clone has no history."""
    taken = subprocess.run(["git", "archive", BEFORE], cwd=ROOT, capture_output=True, check=False)
    if taken.returncode:
        pytest.skip(f"this clone has no history with {BEFORE[:9]}, the release before this one")
    with tarfile.open(fileobj=io.BytesIO(taken.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return Side("old", folder)
