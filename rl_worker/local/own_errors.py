"""Errors of a user's own code as one sentence: the flag that names the code, the error, and its line."""

import os
import re
import traceback
import warnings
from collections.abc import Iterator, Sequence
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
def tried(flag: str, *, hint: str = "") -> Iterator[None]:
    """
    Any error of the block becomes a SettingsError that names the flag and gives the hint; those of ps-rl stay as they
    are. Warnings of a block that passes are given once it is over.
    """
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            yield
        except PsRlError:
            raise
        except Exception as error:
            why = traceback.format_exception_only(error)[-1].strip() + place_of(error)
            hints = [*filter(None, [hint]), *gymnasium_warnings(warned)[-1:]]  # which often say the cause
            raise SettingsError("; ".join([f"{flag}: fails when it is tried: {why}", *hints])) from error
    for one in warned:
        warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)


def gymnasium_warnings(warned: Sequence[warnings.WarningMessage]) -> list[str]:
    """Each text of Gymnasium's own warnings among these, once."""
    texts = [" ".join(COLOUR.sub("", str(one.message)).split()) for one in warned]
    return list(dict.fromkeys(text.removeprefix("WARN: ") for text in texts if text.startswith("WARN: ")))


def place_of(error: BaseException) -> str:
    """The innermost line of the user's own code, in the first of chained errors that has one; "" without one."""
    cause = error.__cause__ or error.__context__
    if cause is not None and (place := place_of(cause)):
        return place
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not any(place in frame.filename for place in NOT_OWN)]
    return f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
