"""Tables of data in tests: a loop over rows, and the row that failed in the report."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def row(*values: object) -> Iterator[None]:
    """Whatever its block raises says which row of the table it was."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the row {', '.join(map(repr, values))}")
        raise
