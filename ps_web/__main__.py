"""`ps-web`, also `python -m ps_web`."""

from typing import NoReturn

from ps_common.program.start import start


def main() -> NoReturn:
    start("ps_web.cli")


if __name__ == "__main__":
    main()
