"""Errors of a user's own code as one sentence: the flag that names the code, the error, and its line."""

import os
import re
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from common.errors import PsRlError, SettingsError

PACKAGES = Path(__file__).parents[2]
# Parts of file names that are not the user's own code.
NOT_OWN = (
    "site-packages",
    "dist-packages",
    "<frozen ",
    str(Path(re.__file__).parents[1]),
    *(f"{PACKAGES / ours}{os.sep}" for ours in ("common", "rl_worker")),
)
COLOUR = re.compile("\x1b\\[[0-9;]*m")


@contextmanager
def tried(flag: str) -> Iterator[None]:
    """Any error of the block becomes a SettingsError that names the flag; those of ps-rl stay as they are."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            yield
        except PsRlError:
            raise
        except Exception as error:
            why = traceback.format_exception_only(error)[-1].strip() + place_of(error)
            # Gymnasium has often warned of the cause.
            hints = [COLOUR.sub("", str(one.message)) for one in warned if "WARN: " in str(one.message)]
            raise SettingsError("; ".join([f"{flag}: fails when it is tried: {why}", *hints[-1:]])) from error


def place_of(error: BaseException) -> str:
    """The innermost line of the user's own code, in the first of chained errors that has one; "" without one."""
    cause = error.__cause__ or error.__context__
    if cause is not None and (place := place_of(cause)):
        return place
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not any(place in frame.filename for place in NOT_OWN)]
    return f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
