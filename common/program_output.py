"""
What a program says when nobody can hear it: into a pipe whose reader has left, or onto a full disk.

Output that cannot be written is dropped and counted. It never ends a program, nor leaves a traceback.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO


class LenientStream:
    """A text stream whose writes never fail. All else is the stream's own."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.dropped = 0  # writes that failed
        self.error: OSError | None = None  # why the last of them did

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError as error:
            self._failed(error)
            return len(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._failed(error)

    def _failed(self, error: OSError) -> None:
        self.dropped += 1
        self.error = error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def lenient_output(prog: str) -> Iterator[None]:
    """
    From here on, standard output and standard error drop what they cannot write; also after the block, when the
    interpreter flushes them. At its end lost output is told, but not of a reader that has left, as `head` does.
    """
    sys.stdout, sys.stderr = _lenient(sys.stdout), _lenient(sys.stderr)
    try:
        yield
    finally:
        if isinstance(sys.stdout, LenientStream):
            sys.stdout.flush()
            error = sys.stdout.error
            if error is not None and not isinstance(error, BrokenPipeError):
                print(f"{prog}: some of the output is lost: {error.strerror}", file=sys.stderr)


def _lenient(stream: TextIO | None) -> Any:
    """A program may have been started without the stream."""
    return stream if stream is None or isinstance(stream, LenientStream) else LenientStream(stream)
