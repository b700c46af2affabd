"""The entry points of `ps-server` (also `python -m ps_server`) and `ps-ctl`."""

import os
import sys
from typing import NoReturn

OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def main() -> NoReturn:
    _start("ps_server.cli", leaves_in_order=True)


def control() -> NoReturn:
    _start("ps_ctl.cli")


def _start(module: str, *, leaves_in_order: bool = False) -> NoReturn:
    sys.path.insert(0, OURS)
    import common  # noqa: F401  (the one beside this package, whatever else has its name)

    del sys.path[0]
    from ps_common.program.start import start

    start(module, leaves_in_order=leaves_in_order)


if __name__ == "__main__":
    main()
