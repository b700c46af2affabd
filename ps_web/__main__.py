"""`ps-web`, also `python -m ps_web`."""

from functools import partial

from ps_common.program.start import start

main = partial(start, "ps_web.cli", "show")

if __name__ == "__main__":
    main()
