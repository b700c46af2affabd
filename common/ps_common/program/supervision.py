"""
The supervision of a child process: when it dies it is started again, at once the first time, then after a pause.

A child that dies several times without progress is given up: its fault will not go away. So is one that reports that
another would fail, too. Each death is reported once, in a sentence. The file does not know which programs it
supervises.

"""

import time
from collections.abc import Callable, Iterable

from ps_common.errors import PsRlError
from ps_common.program.child_processes import Child

MOST_DEATHS = 3  # in a row, of one process, without progress between them
PROGRESS_SECONDS = 60.0  # of work: a child that has worked for so long has made progress
BACKOFF_SECONDS = 2.0  # before a child is started after its second death in a row; longer after each further one
LONGEST_BACKOFF_SECONDS = 10.0


class SupervisedProcess:
    """A process that is started again, with its present child, and the deaths of earlier ones."""

    def __init__(
        self,
        name: str,
        start: Callable[[], Child],
        *,
        may_leave: bool = False,
        counts_work: bool = False,
        must_come_up: bool = False,
        most_deaths: int = MOST_DEATHS,
    ) -> None:
        """
        `may_leave`: a child that has left in order stays away, whoever has asked it to. `counts_work`: progress is what
        `note_work` counts, else the age of the child. `must_come_up`: the first child is final if it fails.
        """
        self.name = name
        self.start = start  # makes the next child; may be changed
        self.child = start()
        self._may_leave, self._counts_work, self._must_come_up = may_leave, counts_work, must_come_up
        self._most_deaths = most_deaths
        self._done = 0  # units of work, by the present child
        self._worked_from = self._worked_until = 0.0  # ages of the child when `_done` first and last rose
        self.deaths = 0  # in a row, without progress between them
        self._due: float | None = None  # when the next child is to be started; None: the child is there

    def look(self) -> str | None:
        """How the child died, if it has since the last look. Raises PsRlError as `replace` does."""
        if not self.start_if_due() or self.child.exit_status is None:
            return None
        is_gone = self.child.has_left if self._may_leave else self.child.is_over
        return None if is_gone else self.replace(self.child.cause_of_death())

    def note_work(self, done: int) -> None:
        """The child has done this many units of work by now."""
        if done <= self._done:
            return
        self._worked_until = self.child.age_seconds
        if self._done == 0:
            self._worked_from = self._worked_until
        self._done = done

    def replace(self, why: str) -> str:
        """Start the next child, or plan that. Returns how this one died. Raises PsRlError when it is given up."""
        worked = self._worked_until - self._worked_from if self._counts_work else self.child.age_seconds
        self.deaths = 1 if worked >= PROGRESS_SECONDS else self.deaths + 1
        story = why if self.child.log is None else f"{why} (its log: {self.child.log})"
        if self.child.reason is not None and self.child.reason.how == "refused":
            raise PsRlError(f"{self.name} ended, and would again: {story}")
        if self._must_come_up and not self.child.was_killed:
            raise PsRlError(f"{self.name} failed: {story}")
        self._must_come_up = False
        if self.deaths >= self._most_deaths:
            raise PsRlError(
                f"{self.name} died {self.deaths} times in a row, each within {PROGRESS_SECONDS:.0f} s of work: {story}"
            )
        self._begin_after(min(BACKOFF_SECONDS * (self.deaths - 1), LONGEST_BACKOFF_SECONDS))
        return f"{self.name} died: {story}; it is started again"

    def begin_again(self) -> None:
        """Start another child after one that has left in order."""
        self._begin_after(0.0)

    def start_if_due(self) -> bool:
        """Whether `child` is the present one: started now, if its pause is over, or before."""
        if self._due is not None and time.monotonic() >= self._due:
            self._due, self.child = None, self.start()
        return self._due is None

    def _begin_after(self, seconds: float) -> None:
        self._done, self._worked_from, self._worked_until = 0, 0.0, 0.0
        self._due = time.monotonic() + seconds
        self.start_if_due()


def deaths_of(processes: Iterable[SupervisedProcess]) -> list[str]:
    """One look at each: how those died that did. Raises PsRlError when one is given up."""
    return [death for process in processes if (death := process.look()) is not None]
