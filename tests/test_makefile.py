"""The Makefile tells what it can do."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_make_help_lists_every_target() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    listed = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout
    assert [line.split()[1] for line in listed.splitlines()] == targets
