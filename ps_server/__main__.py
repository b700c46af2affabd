"""`ps-server`, also `python -m ps_server`."""

from functools import partial

from ps_common.program.start import start

main = partial(start, "ps_server.cli", "serve", leaves_in_order=True)

if __name__ == "__main__":
    main()
