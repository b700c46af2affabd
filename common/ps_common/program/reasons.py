"""
The reason for which a program ends, reported to the program that started it through a pipe of their own. Through it a
server reports its address, too.

An exit status is not a message, and the last line of a log may be anybody's. A program reports that it leaves in order,
or why it fails. A program without a report has died, whatever its exit status.
"""

import contextlib
import ctypes
import os
import re
import signal
import sys
import traceback
from pathlib import Path
from typing import Literal

import msgspec

LAUNCHED = "PS_RL_LAUNCHED"  # variable of a started program: the parent's id and the channel's descriptor
PR_SET_PDEATHSIG = 1
MOST_CHARACTERS = 10_000  # of a text: the pipe holds several
CHECKOUT = Path(__file__).parents[3]  # where ps-rl is not among the installed packages
OURS = "common ps_server ps_ctl ps_web ps_track rl_worker rl_eval rl_cluster ps_rl"
# Parts of the names of files that are not the user's.
NOT_CUSTOM = (
    *("site-packages", "dist-packages", "<frozen ", str(Path(re.__file__).parents[1])),
    *(f"{CHECKOUT / folder}{os.sep}" for folder in OURS.split()),
)


class Reason(msgspec.Struct, frozen=True):
    """The reason that a program gives for its end."""

    # over: in order, and there is nothing left to do; left: in order, as it was asked to; refused: it has failed, and
    # would fail again. Of a program that runs: it hangs, or serves at an address.
    how: Literal["over", "left", "failed", "refused", "hangs", "serves"]
    text: str

    @property
    def is_failure(self) -> bool:
        return self.how in ("failed", "refused")

    @property
    def is_in_order(self) -> bool:
        return self.how in ("over", "left")


CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
LONGEST_LINE = 500  # characters of an error's message

# The descriptor, by the id of this process: a forked child has another id, and no channel.
_channel: dict[int, int] = {}
_reported: list[Reason] = []


def answer_to_parent() -> None:
    """
    Take the channel of this process, and end with its parent, if one of our programs has started it.

    Programs that this one starts find no trace of its parent.
    """
    launched = os.environ.pop(LAUNCHED, "")
    if not launched:
        return
    parent, descriptor = map(int, launched.split())
    die_with_parent()
    if os.getppid() != parent:  # the parent died before the kernel was asked
        os._exit(1)
    os.set_inheritable(descriptor, False)
    os.set_blocking(descriptor, False)
    _channel[os.getpid()] = descriptor


def die_with_parent() -> None:
    """On Linux the kernel sends SIGTERM to this process when its parent dies; elsewhere nothing happens."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def report_reason(how: Literal["over", "left", "failed", "refused", "hangs", "serves"], text: str) -> None:
    """Report a reason to the parent, if there is one; the last report counts."""
    reason = Reason(how, text[:MOST_CHARACTERS])
    _reported[:] = [reason]
    descriptor = _channel.get(os.getpid())
    if descriptor is not None:
        with contextlib.suppress(OSError):
            os.write(descriptor, msgspec.json.encode(reason) + b"\n")


def is_leaving_in_order() -> bool:
    """Whether this program has reported that it leaves in order."""
    return any(reason.is_in_order for reason in _reported)


def last_reason_in(lines: bytes) -> Reason | None:
    """The last whole reason in what came over a channel."""
    for line in reversed(lines.split(b"\n")[:-1]):
        with contextlib.suppress(msgspec.MsgspecError):
            return msgspec.json.decode(line, type=Reason)
    return None


def reason_of(error: BaseException) -> str:
    """An error as one line, with its place in the user's own code."""
    lines, name = traceback.format_exception_only(error), type(error).__qualname__
    what = next(line for line in reversed(lines) if name in line.partition(":")[0])  # behind that line come notes
    if isinstance(error, SystemExit):
        what = f"sys.exit({'' if error.code is None else repr(error.code)}) was called"
    return one_line(what) + place_of(error)


def one_line(text: str) -> str:
    """A text of any origin as one line of bounded length, with escapes in place of a terminal's control characters."""
    shown = CONTROL.sub(lambda found: ascii(found[0])[1:-1], " ".join(text.split()))
    return shown if len(shown) <= LONGEST_LINE else f"{shown[:LONGEST_LINE]}…"


def place_of(error: BaseException) -> str:
    """The innermost line of the user's own code, in the first of chained errors that has one; "" without one."""
    cause = error.__cause__ or error.__context__
    if cause is not None and (place := place_of(cause)):
        return place
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not any(place in frame.filename for place in NOT_CUSTOM)]
    return f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""


def is_of_flags(error: SystemExit) -> bool:
    """Whether --help or a mistake in the flags ends the program, and no code of the user or of a package."""
    raised_in = traceback.extract_tb(error.__traceback__)[-1].filename
    return Path(raised_in) == Path(__file__).with_name("flags.py") or "tyro" in Path(raised_in).parts
