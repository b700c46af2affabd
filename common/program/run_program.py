"""How a program runs its main function, and ends: exit status 0, 1 with one sentence, or 130."""

import atexit
import gc
import sys
from typing import Any, NoReturn

from common.errors import PsRlError
from common.program.allocator import keep_freed_memory
from common.program.output import lenient_output
from common.program.stop_signals import Interrupted, ignore_stop_signals

NO_MEMORY = "can't allocate memory"  # in torch's RuntimeError


def run_program(main: Any, prog: str) -> NoReturn:
    """Call a program's main. An error that the user can mend becomes one sentence and exit status 1."""
    # Imported objects are never garbage, and torch's 180,000 would stop a server for 0.1 s in each full collection.
    gc.freeze()
    gc.enable()  # disabled by common/program/start.py
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
