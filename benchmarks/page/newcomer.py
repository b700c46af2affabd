"""
The newcomer's path, timed: `python -m benchmarks.page.newcomer [--venv FOLDER] [--preset NAME]`.

The repository is cloned into a new folder, everything is installed there as `make train` does, and `make train` is
started. The clock runs from that start until a browser at the printed address shows a curve of returns that has grown.
With --venv an installed environment is used instead of a new one.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import tyro
from playwright.sync_api import Page

from benchmarks.page.chromium import chromium

ROOT = Path(__file__).parents[2]
GIVE_UP_SECONDS = 600.0
CURVE = "last(runs.get(0)?.points.mean_return_100) === null ? 0 : last(runs.get(0).points.global_steps)"


@dataclass(frozen=True)
class Flags:
    """The newcomer's path, timed."""

    venv: Path | None = None
    preset: str = "pong"


def main(flags: Flags) -> None:
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "ps-rl"
        begun = time.monotonic()
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        _install(clone, flags.venv)
        start = time.monotonic()
        print(f"clone and installs: {start - begun:.0f} s", flush=True)
        with (clone / "output").open("wb") as output:
            train = subprocess.Popen(
                ["make", "train", f"PRESET={flags.preset}"],
                cwd=clone,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env=os.environ | {"PYTHONPATH": str(clone)},
            )
        try:
            _see(clone / "output", train, start)
        finally:
            os.killpg(train.pid, signal.SIGTERM)
            train.wait()


def _install(clone: Path, venv: Path | None) -> None:
    if venv is not None:
        (clone / ".venv").symlink_to(venv.resolve())
        os.utime(clone / "pyproject.toml", (0, 0))  # older than the mark of the installation
        os.utime(clone / "constraints.txt", (0, 0))
        return
    subprocess.run(["make", ".venv/run.ready"], cwd=clone, check=True, stdout=subprocess.DEVNULL)


def _see(output: Path, train: "subprocess.Popen[bytes]", start: float) -> None:
    def told(what: str) -> None:
        print(f"{what}: {time.monotonic() - start:.1f} s after make train", flush=True)

    while not (found := re.search(r"^page: (\S+)", output.read_text(), re.MULTILINE)):
        if train.poll() is not None or time.monotonic() - start > GIVE_UP_SECONDS:
            sys.exit(f"make train shows no page:\n{output.read_text()}")
        time.sleep(0.1)
    told("the page's address is printed")
    with chromium() as browser:
        page = browser.new_page()
        page.goto(found[1])
        page.locator("#tiles dd").first.wait_for()
        told("the page is drawn")
        first = _grown(page, 0, start)
        told(f"the curve of returns has begun, at step {first}")
        told(f"the curve has moved, at step {_grown(page, first, start)}")


def _grown(page: Page, before: int, start: float) -> int:
    """The newest step of the curve, when it is beyond this one."""
    while (steps := int(page.evaluate(CURVE))) <= before:
        if time.monotonic() - start > GIVE_UP_SECONDS:
            sys.exit("the curve does not move")
        page.wait_for_timeout(100)
    return steps


if __name__ == "__main__":
    main(tyro.cli(Flags))
