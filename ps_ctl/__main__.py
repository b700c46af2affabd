"""`ps-ctl`, also `python -m ps_ctl`."""

from typing import NoReturn

from ps_common.program.start import start


def main() -> NoReturn:
    start("ps_ctl.cli")


if __name__ == "__main__":
    main()
