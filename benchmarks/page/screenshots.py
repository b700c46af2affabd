"""
The pictures of the README that show runs: docs/images/page.png and runs.png in a browser, and docs/images/terminal.png.

    python -m benchmarks.page.screenshots --preset pong --steps 280000

CartPole is trained with two learning rates and three seeds each. Then a run is started in a terminal of its own, by the
same command that a user types. When it has so many steps, the page of all these runs is photographed by Chromium: the
live run, and the others compared. What then stands in the terminal is drawn with its colours, and the run is
interrupted.
"""

import fcntl
import io
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import tyro
from PIL import Image
from playwright.sync_api import Browser, Page, ViewportSize
from rich.console import Console
from rich.text import Text

from benchmarks.page.chromium import chromium

NAMES = ("page", "runs", "terminal")
PAGE, RUNS, TERMINAL = (Path(__file__).parents[2] / "docs" / "images" / f"{name}.png" for name in NAMES)
SCRIPTS = Path(sys.executable).parent
COLUMNS, ROWS = 104, 40
WIDTH, HEIGHT = 1280, 1120  # of the browser
COLOURS = 256
RATES, SEEDS = ("1.5e-3", "5e-4"), ("0", "1", "2")  # of the runs that are compared
STEPS = "last([...runs.values()].find((run) => run.status)?.points.global_steps) ?? 0"
ERASED = "\x1b[2K"  # rich erases each line of a panel before it draws the next one


@dataclass(frozen=True)
class Flags:
    """The pictures of the README that show a run."""

    preset: str = "pong"
    steps: int = 280_000
    workers: int = 2


class Terminal:
    """A program in a terminal, and all that it has written there."""

    def __init__(self, *command: str, folder: str) -> None:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        variables = os.environ | {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
        self.process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, env=variables, start_new_session=True
        )
        os.close(theirs)
        self.written = bytearray()
        threading.Thread(target=self._read, args=(ours,), daemon=True).start()

    def _read(self, end: int) -> None:
        try:
            while some := os.read(end, 65536):
                self.written += some
        except OSError:  # the program has ended
            pass

    @property
    def text(self) -> str:
        return self.written.decode(errors="ignore").replace("\r", "")

    def screen(self) -> str:
        """The screen now: the lines before the panel, and the panel as it was drawn last."""
        before, *drawn = self.text.split(ERASED)
        panels = [part for part in drawn if "╭" in part and "╯" in part]
        return before[: before.index("╭")] + panels[-1] if panels else before


def main(flags: Flags) -> None:
    with tempfile.TemporaryDirectory() as folder:
        _train_others(folder)
        command = ("rl-cluster", "--preset", flags.preset, "--workers", str(flags.workers), "--seed", "0")
        terminal = Terminal(str(SCRIPTS / command[0]), *command[1:], folder=folder)
        web = Terminal(str(SCRIPTS / "ps-web"), "runs", "--port", "0", folder=folder)
        try:
            with chromium() as browser:
                page = _page(browser, web)
                while int(page.evaluate(STEPS)) < flags.steps:
                    if terminal.process.poll() is not None:
                        sys.exit(terminal.text)
                    page.wait_for_timeout(200)
                page.screenshot(path=PAGE)
                page.locator(".group", has_text="rates").get_by_role("button").click()
                page.locator("#band").check()
                page.locator("#compared-section").scroll_into_view_if_needed()
                page.evaluate("document.getElementById('compared-section').scrollIntoView()")
                page.wait_for_timeout(1000)
                page.screenshot(path=RUNS)
                _draw(browser, terminal.screen(), " ".join(command))
        finally:
            for program in (terminal, web):
                program.process.send_signal(signal.SIGINT)
                program.process.wait()
    for picture in (PAGE, RUNS, TERMINAL):
        with Image.open(picture) as photograph:
            few_colours = photograph.convert("RGB").quantize(COLOURS, method=Image.Quantize.FASTOCTREE)
        few_colours.save(picture, optimize=True)
        print(f"{picture}: {picture.stat().st_size:,} bytes")


def _train_others(folder: str) -> None:
    """The runs that are compared, one after another."""
    for rate, seed in product(RATES, SEEDS):
        flags = ("--preset", "cartpole-fast", "--learning-rate", rate, "--seed", seed, "--experiment", "rates")
        subprocess.run([SCRIPTS / "rl-cluster", *flags, "--no-web"], cwd=folder, check=True, capture_output=True)


def _page(browser: Browser, web: Terminal) -> Page:
    """The page of all runs, with the live one open and the live game of its first worker."""
    while not (found := re.search(r"^page: (\S+)", web.text, re.MULTILINE)):
        if web.process.poll() is not None:
            sys.exit(web.text)
        time.sleep(0.1)
    size = ViewportSize(width=WIDTH, height=HEIGHT)
    page = browser.new_page(viewport=size, color_scheme="dark", device_scale_factor=1.5)
    page.goto(found[1])
    page.locator(".run-row", has_text="live").get_by_role("button").click(timeout=600_000)
    page.locator("#watch-choice").wait_for(timeout=600_000)
    page.locator("#watch").select_option(index=1)
    return page


def _draw(browser: Browser, text: str, title: str) -> None:
    """The text of a terminal with its colours, as a picture."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), color_system="truecolor")
    console.print(Text.from_ansi(text))
    page = browser.new_page(device_scale_factor=1.5)
    page.set_content(console.export_svg(title=title))
    page.locator("svg").first.screenshot(path=TERMINAL)


if __name__ == "__main__":
    main(tyro.cli(Flags))
