"""Stop signals for a ps-server that runs inside of a test, whose own signals they leave alone."""

from contextlib import nullcontext


class NoSignal:
    """None comes."""

    def __init__(self, *, raises: bool) -> None:
        self.postponed = nullcontext

    def is_set(self) -> bool:
        return False


class StopAtOnce(NoSignal):
    """One comes as soon as the server serves."""

    def is_set(self) -> bool:
        return True
