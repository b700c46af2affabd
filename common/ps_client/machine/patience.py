"""How long a worker goes on without a server that serves it: when the log gets a line, and when the worker gives up."""

from ps_common.errors import ServerUnreachable

WARNING_SECONDS = 10.0  # between two lines about a server that does not serve this worker


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
