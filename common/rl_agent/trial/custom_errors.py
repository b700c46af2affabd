"""Errors of custom code as one sentence: the flag that names the code, the error, and its line."""

import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ps_common.errors import PsRlError, SettingsError
from ps_common.program.reasons import reason_of

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
        except (Exception, SystemExit) as error:
            why = reason_of(error)
            hints = [*filter(None, [hint]), *gymnasium_warnings(warned)[-1:]]  # which often say the cause
            raise SettingsError("; ".join([f"{flag}: fails when it is tried: {why}", *hints])) from error
    for one in warned:
        warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)


def gymnasium_warnings(warned: Sequence[warnings.WarningMessage]) -> list[str]:
    """Each text of Gymnasium's own warnings among these, once."""
    texts = [" ".join(COLOUR.sub("", str(one.message)).split()) for one in warned]
    return list(dict.fromkeys(text.removeprefix("WARN: ") for text in texts if text.startswith("WARN: ")))
