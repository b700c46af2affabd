"""How numeric flags are read, and their bounds. Each has two: Inf, NaN and numbers that overflow pass neither."""

import contextlib
import os
from typing import Annotated, Any, get_args, get_type_hints

from msgspec import Meta
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from ps_common.errors import SettingsError

LEAST_SECONDS, MOST_SECONDS = 1e-3, 1e9  # 30 years: as good as never
MOST_MINUTES = 1e7
LEAST_MIB, MOST_MIB = 2**-20, 2.0**24  # a byte, 16 TiB
MOST_PORT = 65535
# More could not start in a usual container, and idle threads only cost.
MOST_THREADS = max(64, os.cpu_count() or 1)
MOST_WORKERS = 64 * (os.cpu_count() or 1)  # processes, of a quarter of a gigabyte each

Seconds = Annotated[float, Meta(ge=LEAST_SECONDS, le=MOST_SECONDS)]
Port = Annotated[int, Meta(ge=0, le=MOST_PORT)]
Threads = Annotated[int, Meta(ge=1, le=MOST_THREADS)]
Workers = Annotated[int, Meta(ge=1, le=MOST_WORKERS)]

NUMBERS = ConstructorRegistry()  # for tyro


@NUMBERS.primitive_rule
def _whole(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[int] | None:
    if info.type is not int:
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="INT",
        instance_from_str=lambda texts: whole_number(texts[0]),
        is_instance=lambda value: isinstance(value, int) and not isinstance(value, bool),
        str_from_instance=lambda value: [str(value)],
    )


def whole_number(text: str) -> int:
    """ "100000", "100_000" or "1e5" as an integer. Raises ValueError for anything else."""
    try:
        return int(text)
    except ValueError:
        with contextlib.suppress(ValueError, OverflowError):
            if (value := float(text)).is_integer():
                return int(value)
        raise ValueError(f"{text}: must be a whole number") from None


def check_number(flag: str, value: float, *, least: float, most: float) -> None:
    """Raises SettingsError naming the flag unless it is `least` to `most`."""
    if not least <= value <= most:  # NaN is not
        raise SettingsError(f"{flag} {value}: must be {least:.10g} to {most:.10g}")


def check_numbers(settings: Any) -> None:
    """Raises SettingsError naming the first flag whose number is beyond the bounds of its type."""
    for name, kind in get_type_hints(type(settings), include_extras=True).items():
        value = getattr(settings, name)
        if not isinstance(value, int | float):
            continue
        for part in (kind, *get_args(kind)):  # Annotated[…], or that in a union
            for meta in getattr(part, "__metadata__", ()):
                if isinstance(meta, Meta) and meta.ge is not None and meta.le is not None:
                    check_number(f"--{name.replace('_', '-')}", value, least=meta.ge, most=meta.le)
