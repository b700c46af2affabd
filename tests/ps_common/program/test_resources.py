"""Freed memory is used again."""

import os
import subprocess
import sys

import pytest

from ps_common.program.resources import MALLOC_VARIABLES

# Page faults of a round once the heap has grown: three blocks at a time, more than is kept as it comes.
ROUNDS = """
import resource
from ps_common.program.resources import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [bytearray(2**23) for _ in range(3)]
    del blocks
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

{call}
print(min(faults() for _ in range(20)))
"""
PAGES = 3 * 2**23 // 4096


@pytest.mark.skipif(sys.platform != "linux" or not os.confstr("CS_GNU_LIBC_VERSION"), reason="it is glibc's malloc")
@pytest.mark.parametrize(
    ("call", "overrides", "least", "most"),
    [
        ("keep_freed_memory()", {}, 0, PAGES // 10),
        ("", {}, PAGES // 3, 2 * PAGES),
        ("keep_freed_memory()", {"MALLOC_TRIM_THRESHOLD_": "0"}, PAGES // 3, 2 * PAGES),
    ],
    ids=["kept", "as it comes", "as the environment overrides"],
)
def test_freed_memory_costs_no_page_faults_again(call: str, overrides: dict[str, str], least: int, most: int) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in MALLOC_VARIABLES} | overrides
    command = [sys.executable, "-c", ROUNDS.format(call=call)]
    assert least <= int(subprocess.check_output(command, env=environment)) <= most
