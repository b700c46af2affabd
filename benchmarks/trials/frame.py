"""What every trial begins and ends with: sizes from the environment, programs; a line of figures, an exit status."""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.integration.processes import Programs, programs_in


def sizes(**defaults: int) -> dict[str, int]:
    """Integers by name from the environment: `kills` is KILLS."""
    return {name: int(os.environ.get(name.upper(), default)) for name, default in defaults.items()}


@contextmanager
def programs_of_a_trial() -> Iterator[Programs]:
    """Programs in a folder that lasts as long as they do."""
    with tempfile.TemporaryDirectory() as folder, programs_in(Path(folder)) as programs:
        yield programs


def report(figures: Mapping[str, float], broken: Mapping[str, bool]) -> int:
    """Print the guarantees that are broken, then the figures. Returns the exit status."""
    for guarantee in (guarantee for guarantee, is_broken in broken.items() if is_broken):
        print("broken:", guarantee)
    print(*(f"{name}={_short(value)}" for name, value in figures.items()))
    return 1 if any(broken.values()) else 0


def _short(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.3g}"
