"""
How long a worker goes on without progress: when the log gets a line, and when the worker gives up.

Patience is for a server that does not serve the worker. A refusal loop is a server that replies while nothing that the
worker requests is done: it retries after a refusal that is not final ("send HELLO first", "outside the window"), and a
push may turn out to be a duplicate. A few of either are normal; a long row of them without progress is a fault.
"""

from ps_common.errors import PsRlError, RequestRefused, ServerUnreachable

WARNING_SECONDS = 10.0  # between two lines about a server that does not serve this worker
MOST_REFUSALS = 50  # without progress
REFUSED_SECONDS = 60.0  # for which they last at least
MOST_DUPLICATES = 200  # in a row; no network repeats so many
WARN_AFTER = 10  # of either


class Patience:
    """One worker's time without service. `refusal` is the reason of the server, "" if none has replied."""

    def __init__(self, seconds: float, *, now: float) -> None:
        self.warning_due = now + WARNING_SECONDS
        self._seconds = seconds
        self._served = now  # when last

    def served(self, *, now: float) -> None:
        """A message has come from a server that serves this worker."""
        self._served = now
        self.warning_due = now + WARNING_SECONDS

    def error(self, refusal: str, *, now: float) -> ServerUnreachable | None:
        """Why the worker gives up, if it does."""
        if now - self._served <= self._seconds:
            return None
        hint = "" if refusal else "; is it running, are --server and keys right?"
        return ServerUnreachable(self._trouble(refusal, now) + hint)

    def warning(self, refusal: str, *, now: float) -> str:
        """A line for the log, if one is due; else ""."""
        if now < self.warning_due:
            return ""
        self.warning_due = now + WARNING_SECONDS
        return f"{self._trouble(refusal, now)}; still trying"

    def _trouble(self, refusal: str, now: float) -> str:
        seconds = now - self._served
        return f"not served for {seconds:.0f} s: {refusal}" if refusal else f"no reply for {seconds:.0f} s"


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
