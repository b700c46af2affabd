"""Where the program `ps-web`, which is `python -m ps_web` too, starts."""

import os
import sys
from typing import NoReturn

OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def main() -> NoReturn:
    _start("ps_web.cli")


def _start(module: str) -> NoReturn:
    sys.path.insert(0, OURS)
    import common  # noqa: F401  (the one beside this package, whatever else has its name)

    del sys.path[0]
    from ps_common.program.start import start

    start(module)


if __name__ == "__main__":
    main()
