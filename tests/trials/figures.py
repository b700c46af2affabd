"""What every trial begins and ends with: sizes from the environment, one last line of figures, and a status."""

import os
from collections.abc import Mapping


def sizes(**defaults: int) -> dict[str, int]:
    """Whole numbers by name, as the environment has them: `kills` is KILLS."""
    return {name: int(os.environ.get(name.upper(), default)) for name, default in defaults.items()}


def told(figures: Mapping[str, float], broken: Mapping[str, bool]) -> int:
    """Print the figures, after the promises that are broken, by what was promised; returns the exit status."""
    for promise in (promise for promise, is_broken in broken.items() if is_broken):
        print("broken:", promise)
    print(*(f"{name}={_short(value)}" for name, value in figures.items()))
    return 1 if any(broken.values()) else 0


def _short(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.3g}"
