"""`ps-bench`, also `python -m ps_bench`."""

from functools import partial

from ps_common.program.start import start

main = partial(start, "ps_bench.cli", "bench")

if __name__ == "__main__":
    main()
