"""How a run goes, for a person: a live panel in a terminal, plain lines into a pipe."""

import time
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

from common.run_spec import Budget
from common.status import Status

LINE_SECONDS = 10.0  # between two lines into a pipe


class ProgressDisplay:
    """Shows one status after another; use it as a context manager."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._console = Console()
        self._live = Live(console=self._console, auto_refresh=False) if self._console.is_terminal else None
        self._line_due = 0.0

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, status: Status, *, minutes: float) -> None:
        """`minutes` since the run was started here."""
        facts = _facts(status, self._budget, minutes)
        if self._live is not None:
            panel = Table(show_header=False, title=f"{status.preset}: {status.phase}", min_width=60)
            for name, value in facts.items():
                panel.add_row(name, value)
            self._live.update(panel, refresh=True)
        elif time.monotonic() >= self._line_due:
            self._line_due = time.monotonic() + LINE_SECONDS
            self.say("  ".join(f"{name} {value}" for name, value in facts.items()))

    def say(self, text: str) -> None:
        """A line of its own, above the panel."""
        print(text, flush=True) if self._live is None else self._console.print(text, highlight=False)


def _facts(status: Status, budget: Budget, minutes: float) -> dict[str, str]:
    frames = status.steps_per_second * status.frames_per_step
    mean = status.mean_return_100
    return {
        "minutes": f"{minutes:.1f}",
        "T": f"{status.global_steps:,}",
        "steps/s": f"{status.steps_per_second:,.0f}",
        "frames/s": f"{frames:,.0f}",
        "updates/s": f"{status.updates_per_second:,.1f}",
        "staleness": f"{status.staleness_recent:.2f}",
        "workers": str(status.workers_alive),
        "episodes": f"{status.episodes:,}",
        "mean return of the last 100": "-" if mean is None else f"{mean:.2f}",
        "minutes left": _minutes_left(status, budget, minutes),
    }


def _minutes_left(status: Status, budget: Budget, minutes: float) -> str:
    """Until the first limit of the budget, should the target not come before it."""
    left = []
    if budget.max_minutes:
        left.append(budget.max_minutes - minutes)
    if budget.max_steps and status.steps_per_second:
        left.append((budget.max_steps - status.global_steps) / status.steps_per_second / 60)
    return f"at most {max(0.0, min(left)):.1f}" if left else "-"
