"""The beginning and the end of every trial: sizes from the environment; a last line of figures, and an exit status."""

import os
from collections.abc import Mapping


def sizes(**defaults: int) -> dict[str, int]:
    """Integers by name from the environment: `kills` is KILLS."""
    return {name: int(os.environ.get(name.upper(), default)) for name, default in defaults.items()}


def report(figures: Mapping[str, float], broken: Mapping[str, bool]) -> int:
    """Print the guarantees that are broken, then the figures. Returns the exit status."""
    for guarantee in (guarantee for guarantee, is_broken in broken.items() if is_broken):
        print("broken:", guarantee)
    print(*(f"{name}={_short(value)}" for name, value in figures.items()))
    return 1 if any(broken.values()) else 0


def _short(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.3g}"
