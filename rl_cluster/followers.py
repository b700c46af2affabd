"""
The followers of a run: child processes that read its folder, such as its page and the experiment trackers that it is
sent to. The files are the queue: a follower that fails, hangs or is slow holds nothing up, and gets the rows later.

A follower that dies is started again. One that keeps dying is given up, and the run continues without it.
"""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from signal import SIGKILL, SIGTERM
from typing import Self

from ps_common.errors import PsRlError, SettingsError
from ps_common.program.child_processes import Child, end_all
from ps_common.program.output import line_of_page
from ps_common.program.supervision import SupervisedProcess, deaths_of
from ps_common.run_folder.paths import PAGE, WEB_LOG
from ps_common.run_folder.trackers import TrackerName

PAGE_SECONDS = 10.0  # for the page to be served
LEAVE_SECONDS = 10.0  # for all together to do the last of their work when the run has ended
POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Follower:
    """How a follower is started."""

    name: str  # "page" or a tracker's
    start: Callable[[], Child]
    advice: str = ""  # how the user does what a failed follower leaves undone


class Followers:
    """The followers of a run while a block runs. `report` gets a line for each end that is news."""

    def __init__(self, folder: Path, followers: Sequence[Follower], *, report: Callable[[str], None]) -> None:
        """Raises SettingsError when a log cannot be written."""
        self._report = report
        self._folder = folder
        self._advice = {follower.name: follower.advice for follower in followers}
        self._all: list[SupervisedProcess] = []
        try:
            for follower in followers:
                self._all.append(SupervisedProcess(follower.name, follower.start))
        except BaseException:
            self.end()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.end(is_quiet=kind is KeyboardInterrupt)

    def look(self) -> list[str]:
        """Start those again that have died. A line for each death."""
        lines: list[str] = []
        for process in list(self._all):
            try:
                lines += deaths_of([process])
            except (PsRlError, OSError) as error:
                self._all = [one for one in self._all if one is not process]
                who = f"{process.name}: " if isinstance(error, OSError) else ""
                lines.append(f"{who}{error}; it is not started again{self._advice[process.name]}")
        return lines

    def announce_page(self, *, leaving: Callable[[], bool]) -> None:
        """Print the page's address, or where that will be; or why there is no page, if it fails."""
        for process in list(self._all):
            if process.name == PAGE:
                print(self._first_line(process, leaving), flush=True)

    def _first_line(self, page: SupervisedProcess, leaving: Callable[[], bool]) -> str:
        file = self._folder / PAGE
        while not file.exists():
            if page.child.exit_status is not None:
                self._all.remove(page)
                return f"there is no page: {page.child.cause_of_death()} (its log: {page.child.log})"
            if page.child.age_seconds > PAGE_SECONDS or leaving():
                return f"page: its address will be in {file}"
            page.child.wait(within_seconds=POLL_SECONDS)
        return line_of_page(file.read_text(encoding="utf-8"), token_is=f"in {file}")

    def ask_to_leave(self) -> None:
        """Ask all to do the last of their work, since the run is over."""
        for process in self._all:
            process.child.ask_to_leave()

    def end(self, *, is_quiet: bool = False) -> None:
        """Have all leave at the same time, and report how they ended."""
        end_all([process.child for process in self._all], within_seconds=LEAVE_SECONDS)
        lines = [_ending(process, self._advice[process.name]) for process in self._all if not is_quiet]
        self._all = []
        for line in filter(None, lines):
            self._report(line)


def _ending(process: SupervisedProcess, advice: str) -> str:
    """How a follower ended, if that is worth a line."""
    child = process.child
    if child.has_left:
        text = child.reason.text if child.reason is not None else ""
        return f"{process.name}: {text}" if text else ""
    if child.exit_status == -SIGTERM and not advice:  # the follower had not begun
        return ""
    was_killed = child.reason is None and child.exit_status == -SIGKILL
    why = f"was not done within {LEAVE_SECONDS:g} s" if was_killed else child.cause_of_death()
    return f"{process.name}: {why} (its log: {child.log}){advice}"


def followers_of(
    folder: Path,
    *,
    track: Sequence[TrackerName],
    web_port: int | None,
    report: Callable[[str], None],
) -> Followers:
    """Trackers and a page (None: none). Raises SettingsError."""
    followers = [_tracker(folder, name) for name in dict.fromkeys(track)]
    if web_port is not None:
        followers.append(_page(folder, web_port))
    return Followers(folder, followers, report=report)


def _tracker(folder: Path, name: TrackerName) -> Follower:
    """The process that sends the run to an experiment tracker; ps_track decides which rows."""
    flags = [str(folder), "--track", name, "--follow"]
    advice = f". The rest of the run is sent by: python -m ps_track {shlex.quote(str(folder))} --track {name}"
    return Follower(name, partial(Child, "ps_track", flags, folder / f"{name}.log"), advice)


def _page(folder: Path, port: int) -> Follower:
    """The process with the page of the run, on the loopback interface; a restart keeps the port that 0 has taken."""
    try:
        (folder / PAGE).unlink(missing_ok=True)
    except OSError as error:
        raise SettingsError(f"{folder / PAGE}: cannot be written: {error.strerror}") from error
    flags = [str(folder), "--wait", "--port", str(port), "--address-file", str(folder / PAGE)]
    return Follower(PAGE, partial(Child, "ps_web", flags, folder / WEB_LOG))
