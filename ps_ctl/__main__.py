"""`ps-ctl`, also `python -m ps_ctl`."""

from functools import partial

from ps_common.program.start import start

main = partial(start, "ps_ctl.cli", "control")

if __name__ == "__main__":
    main()
