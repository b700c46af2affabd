"""Tables of data in tests: a loop over rows, and the row that failed in the report."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from _pytest.mark import ParameterSet


@contextmanager
def row(*values: object) -> Iterator[None]:
    """Whatever its block raises says which row of the table it was."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the row {', '.join(map(repr, values))}")
        raise


def nightly(*values: object, id: str | None = None) -> ParameterSet:
    """A row that `make nightly` tests, and `make test` does not."""
    return pytest.param(*values, id=id, marks=pytest.mark.nightly)
