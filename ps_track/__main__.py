"""`python -m ps_track`: sends a run to an experiment tracker. `--track` starts it."""

from typing import NoReturn

from ps_common.program.start import start


def main() -> NoReturn:
    start("ps_track.cli")


if __name__ == "__main__":
    main()
