"""The twin: the whole idea in one file, which learns and ends its workers."""

import re
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from examples import twin

FILE = Path(twin.__file__)


def test_the_twin_is_short_and_stands_alone() -> None:
    code = FILE.read_text(encoding="utf-8")
    assert len(code.splitlines()) <= 150
    imported = set(re.findall(r"^(?:import|from) (\w+)", code, re.MULTILINE))
    assert imported - sys.stdlib_module_names == {"gymnasium", "msgpack", "numpy", "torch", "zmq"}


def test_the_table_of_the_twin_names_folders_that_exist() -> None:
    rows = re.findall(r"^    \S.*?   +(\S.*)$", str(twin.__doc__), re.MULTILINE)
    assert len(rows) > 5
    for place in " ".join(rows).split():
        folder, _, names = place.removesuffix("}").partition("{")
        for name in names.split(","):
            assert (FILE.parent.parent / folder / name).is_dir(), place


def test_a_server_and_two_workers_learn_and_all_end_by_themselves() -> None:
    """To a mean of 40, where random play has 22; the nightly test learns to 475."""
    before = psutil.Process().children()  # of other tests
    server = twin.ParameterServer(goal=40.0)
    twin.serve(server)
    assert server.is_solved
    assert server.steps == (server.version - 1) * twin.UNROLL * twin.ENVIRONMENTS
    assert [child for child in psutil.Process().children() if child not in before] == []


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_the_twin_learns_cartpole() -> None:
    printed = subprocess.run([sys.executable, str(FILE)], capture_output=True, check=True, encoding="utf-8").stdout
    assert float(re.findall(r"mean return +([\d.]+)", printed)[-1]) > 400
