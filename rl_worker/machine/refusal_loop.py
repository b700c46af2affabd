"""
When a conversation is stuck: the server answers, and nothing of what the worker asks for happens.

A refusal that is not the last word ("send HELLO first", "too far ahead") is followed by a retry, and a push may turn
out to have been settled before. Both are ordinary a few times. A long row of them without progress is a fault: the log
tells it first, and an error ends the worker.
"""

from common.errors import PsRlError, RequestRefused

MOST_REFUSALS = 50  # without progress, for at least as long as:
REFUSED_SECONDS = 60.0
MOST_DUPLICATES = 200  # in a row; no network repeats so many
TOLD_FIRST = 10  # of either: a line in the log before the worker ends


class Stuck:
    """Counts refusals and duplicates since the newest progress. `now` is seconds of any monotonic clock."""

    def __init__(self) -> None:
        self.complaint = ""  # to be told once; who tells it empties it
        self._refusals = 0
        self._refused_since = 0.0
        self._duplicates = 0

    def answered(self) -> None:
        """A call of the trainer has its reply."""
        self._refusals = 0

    def settled(self, verdict: str) -> PsRlError | None:
        """A push has its first answer. Returns why the worker should end, if it should."""
        self._duplicates = self._duplicates + 1 if verdict == "duplicate" else 0
        if self._duplicates == TOLD_FIRST:
            self.complaint = f"the server says of {TOLD_FIRST} pushes in a row that it had settled them before"
        if self._duplicates < MOST_DUPLICATES:
            return None
        return PsRlError(
            f"the server says of {MOST_DUPLICATES} pushes in a row that it had settled them before: another process "
            "pushes as this worker, and nothing of this one counts; start it anew under a --name of its own"
        )

    def refused(self, code: str, reason: str, *, now: float) -> PsRlError | None:
        """Something was refused, and is tried again. Returns why the worker should end, if it should."""
        if self._refusals == 0:
            self._refused_since = now
        self._refusals += 1
        if self._refusals == TOLD_FIRST:
            self.complaint = f"the server has refused {TOLD_FIRST} times in a row ({code}): {reason}"
        if self._refusals < MOST_REFUSALS or now - self._refused_since < REFUSED_SECONDS:
            return None
        again = f"{reason}; {self._refusals} refusals in a row without anything that succeeded: start this worker anew"
        return RequestRefused(code, again)
