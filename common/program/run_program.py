"""How a program runs its main function, and ends: exit status 0, 1 with one sentence, or 130."""

import atexit
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from common.errors import PsRlError
from common.program.allocator import keep_freed_memory
from common.program.output import lenient_output
from common.program.stop_signals import Interrupted, ignore_stop_signals

NO_MEMORY = "can't allocate memory"  # in torch's RuntimeError


def run_program(main: Any, prog: str) -> NoReturn:
    """Call a program's main. An error that the user can mend becomes one sentence and exit status 1."""
    _imports_are_over()  # common/program/start.py has disabled the garbage collector
    keep_freed_memory()
    atexit.register(ignore_stop_signals)
    with lenient_output(prog):
        try:
            sys.exit(main())
        except PsRlError as error:
            print(f"{prog}: {error}", file=sys.stderr)
            sys.exit(1)
        except (MemoryError, RuntimeError) as error:
            if not isinstance(error, MemoryError) and NO_MEMORY not in str(error):
                raise
            print(f"{prog}: there is not enough memory for these settings: {error}", file=sys.stderr)
            sys.exit(1)
        except Interrupted:  # it has not begun yet, or has ended already
            sys.exit(0)
        except KeyboardInterrupt:
            sys.exit(130)


@contextmanager
def quick_imports() -> Iterator[None]:
    """Imports in this block take less time: nothing looks for garbage."""
    known = len(sys.modules)
    gc.disable()
    try:
        yield
    finally:
        _imports_are_over(any_new=len(sys.modules) > known)


def _imports_are_over(*, any_new: bool = True) -> None:
    # Imported objects are never garbage, and torch's 180,000 would stop a server for 0.1 s in each full collection.
    if any_new:
        gc.freeze()
    gc.enable()
