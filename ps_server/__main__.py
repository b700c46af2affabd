"""`ps-server`, also `python -m ps_server`."""

from typing import NoReturn

from ps_common.program.start import start


def main() -> NoReturn:
    start("ps_server.cli", leaves_in_order=True)


if __name__ == "__main__":
    main()
