"""
Detection of a refusal loop: the server replies, but nothing that the worker requests is done.

The worker retries after a refusal that is not final ("send HELLO first", "outside the window"), and a push may turn out
to be a duplicate. A few of either are normal. A long row of them without progress is a fault: first the log gets a
line, then the worker ends with an error.
"""

from ps_common.errors import PsRlError, RequestRefused

MOST_REFUSALS = 50  # without progress, for at least as long as:
REFUSED_SECONDS = 60.0
MOST_DUPLICATES = 200  # in a row; no network repeats so many
WARN_AFTER = 10  # of either


class RefusalLoop:
    """Counts refusals and duplicates since the last progress."""

    def __init__(self) -> None:
        self._warning = ""
        self._refusals = 0
        self._refused_since = 0.0
        self._duplicates = 0

    def replied(self) -> None:
        """A call of the trainer has its reply."""
        self._refusals = 0

    def settled(self, verdict: str) -> None:
        """A push has its first verdict. Raises PsRlError when the worker should end."""
        self._duplicates = self._duplicates + 1 if verdict == "duplicate" else 0
        if self._duplicates == WARN_AFTER:
            self._warning = f"the server says of {WARN_AFTER} pushes in a row that it had settled them before"
        if self._duplicates >= MOST_DUPLICATES:
            raise PsRlError(
                f"the server says of {MOST_DUPLICATES} pushes in a row that it had settled them before: another "
                "process pushes as this worker, and nothing of this one counts; start it anew under a --name of its own"
            )

    def refused(self, code: str, reason: str, *, now: float) -> None:
        """A request was refused and is sent again. Raises RequestRefused when the worker should end."""
        if self._refusals == 0:
            self._refused_since = now
        self._refusals += 1
        if self._refusals == WARN_AFTER:
            self._warning = f"the server has refused {WARN_AFTER} times in a row ({code}): {reason}"
        if self._refusals >= MOST_REFUSALS and now - self._refused_since >= REFUSED_SECONDS:
            in_vain = f"{self._refusals} refusals in a row without anything that succeeded"
            raise RequestRefused(code, f"{reason}; {in_vain}: start this worker anew")

    def take_warning(self) -> str:
        """A line for the log, once; else ""."""
        warning, self._warning = self._warning, ""
        return warning
