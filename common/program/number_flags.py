"""Bounds of numeric flags. Each flag has two: Inf, NaN and numbers that overflow pass neither."""

import os

from common.errors import SettingsError

LEAST_SECONDS, MOST_SECONDS = 1e-3, 1e9  # 30 years: as good as never
MOST_MINUTES = 1e7
LEAST_MIB, MOST_MIB = 2**-20, 2.0**24  # a byte, 16 TiB
MOST_PORT = 65535
# More could not start in a usual container, and idle threads only cost.
MOST_THREADS = max(64, os.cpu_count() or 1)
MOST_WORKERS = 64 * (os.cpu_count() or 1)  # processes, of a quarter of a gigabyte each


def check_number(flag: str, value: float, *, least: float, most: float) -> None:
    """Raises SettingsError naming the flag unless it is `least` to `most`."""
    if not least <= value <= most:  # NaN is not
        raise SettingsError(f"{flag} {value}: must be {least:.10g} to {most:.10g}")
