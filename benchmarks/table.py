"""A row of the table: ours and the alternative, as medians of several turns, and their ratio."""

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Row:
    """Medians; `ratio` is the median of the ratios of the turns, `low` and `high` their extremes."""

    name: str
    ours: float
    alternative: float
    ratio: float
    unit: str
    against: str
    low: float
    high: float


def in_turn(
    name: str, ours: Callable[[], float], alternative: Callable[[], float], *, turns: int, unit: str, against: str
) -> Row:
    """Measure both alternately, `turns` times: the speed of a shared machine drifts, the ratio drifts much less."""
    pairs = [(ours(), alternative()) for _ in range(turns)]
    ratios = [one / other for one, other in pairs]
    return Row(
        name=name,
        ours=statistics.median(one for one, _ in pairs),
        alternative=statistics.median(other for _, other in pairs),
        ratio=statistics.median(ratios),
        unit=unit,
        against=against,
        low=min(ratios),
        high=max(ratios),
    )


def show(rows: Sequence[Row], path: Path) -> None:
    """Print the rows and write them as JSON."""
    table = Table("what", "ours", "alternative", "unit", "ratio", "spread of the ratio", "alternative is")
    for row in rows:
        table.add_row(
            row.name,
            f"{row.ours:,.1f}",
            f"{row.alternative:,.1f}",
            row.unit,
            f"{row.ratio:.2f}",
            f"{row.low:.2f}–{row.high:.2f}",
            row.against,
        )
    Console(width=160).print(table)
    path.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")
