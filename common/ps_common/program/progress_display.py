"""
The progress of a run, for a person: a live panel in a terminal or a notebook, plain lines in a pipe.

The display shows statuses and knows nothing of processes. The panel takes the terminal's width; its curve is the mean
return of the last 100 games over the minutes.
"""

import time
from bisect import bisect_right
from typing import Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from ps_common.protocol.status import Status, WorkerStatus, speed_of

LINE_SECONDS = 10.0  # between two lines in a pipe
COLUMNS = (4, 2, 1)  # of facts in the panel: the most that fit
CELL_WIDTH = 18  # of the longest fact, and a space
MOST_WORKERS = 8  # shown one by one
CURVE_ROWS, FEW_CURVE_ROWS = 6, 3
LOW_TERMINAL = 24  # rows: a terminal with no more gets the lower curve
FRAME_WIDTH = 4  # of the panel: its sides and the spaces inside them
MOST_POINTS = 2_000  # of the curve that are kept
BLOCKS = " ▁▂▃▄▅▆▇█"
LABEL_WIDTH = 9  # of the numbers at the left of the curve
PHASES = {"empty": "waiting for the first worker", "serving": "training"}  # as people read them


class ProgressDisplay:
    """Shows one status after another; use it as a context manager."""

    def __init__(self) -> None:
        self._console = Console()
        self._cell: Any = None  # where the panel is in a notebook, which rich takes for a terminal
        draws = self._console.is_terminal and not (self._console.is_dumb_terminal or self._console.is_jupyter)
        self._live = Live(console=self._console, auto_refresh=False) if draws else None
        self._line_due = 0.0
        self._curve = TextCurve()

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, status: Status) -> None:
        """Show a status."""
        if status.mean_return_100 is not None:
            self._curve.add(status.minutes, status.mean_return_100)
        if self._live is not None:
            self._live.update(self._panel(status), refresh=True)
        elif self._console.is_jupyter:
            self._draw_in_notebook(self._panel(status))
        elif time.monotonic() >= self._line_due:
            self._line_due = time.monotonic() + LINE_SECONDS
            facts = _facts(status) | {"workers": str(status.workers_alive)}
            self.print_line("  ".join(f"{name} {value}" for name, value in facts.items()))

    def finish(self, status: Status) -> None:
        """Show the last status of the run, however recent the line before it."""
        self._line_due = 0.0
        self.show(status)

    def print_line(self, text: str) -> None:
        """A separate line, above the panel."""
        print(text, flush=True) if self._live is None else self._console.print(text, highlight=False, markup=False)

    def _draw_in_notebook(self, panel: RenderableType) -> None:
        from IPython.display import display  # type: ignore[import-not-found]  # which a notebook has

        if self._cell is None:
            self._cell = display(panel, display_id=True)
        else:
            self._cell.update(panel)

    def _panel(self, status: Status) -> RenderableType:
        grid = Table.grid(expand=True, padding=(0, 1))
        width = self._console.width - FRAME_WIDTH
        columns = next((count for count in COLUMNS if count * CELL_WIDTH <= width), COLUMNS[-1])
        for _ in range(columns):
            grid.add_column(ratio=1, no_wrap=True)
        for cells in ([_fact(*fact) for fact in _facts(status).items()], _workers(status)):
            for first in range(0, len(cells), columns):
                grid.add_row(*cells[first : first + columns])
        title = Text(status.preset or "undecided", style="bold").append(f"  {status.environment}", style="not bold")
        state = Text(_phase(status))
        return Panel(Group(*self._curve_lines(status), grid), title=title, title_align="left", subtitle=state)

    def _curve_lines(self, status: Status) -> list[RenderableType]:
        """The curve, where the terminal can show block characters."""
        if self._console.options.ascii_only:
            return []
        rows = FEW_CURVE_ROWS if self._console.height <= LOW_TERMINAL else CURVE_ROWS
        width = self._console.width - FRAME_WIDTH
        lines = self._curve.lines(width, rows, target=status.until_return)
        return [Text(line, style="cyan", no_wrap=True) for line in lines]


def _phase(status: Status) -> str:
    """The state of the run in words."""
    if status.ending:
        if status.failed:
            return f"the run has failed: {status.ending}"
        if status.minutes_to_target is not None and status.until_return is not None:
            return f"the run is over: it reached {status.until_return:g} in training, as the mean of 100 games"
        return f"the run is over: {status.ending}"
    if status.drained:
        return "drained; ps-ctl resume admits workers"
    if status.paused:
        return "paused; continue with ps-ctl resume"
    if status.phase == "empty" and status.workers_alive:
        return "waiting for the first weights, which a worker makes after random play"
    if status.phase == "serving" and not status.workers_alive:
        return "waiting for a worker"
    return PHASES.get(status.phase, status.phase)


def _facts(status: Status) -> dict[str, str]:
    """The numbers of the panel, and of a line in a pipe."""
    share = f" {status.global_steps / status.max_steps:.0%}" if status.max_steps else ""
    frames_per_second = status.steps_per_second * status.frames_per_step
    return {
        "last 100": _score(status.mean_return_100),
        "best": _score(status.best_mean_return_100),
        **({"evaluation": _score(status.evaluation)} if status.evaluation is not None else {}),
        "target": _score(status.until_return),
        "games": f"{status.episodes:,}",
        "minutes": f"{status.minutes:.1f}",
        "left": _minutes_left(status),
        "T": f"{status.global_steps:,}{share}",
        "of": f"{status.max_steps:,}" if status.max_steps else "any",
        "steps/s": f"{status.steps_per_second:,.0f}",
        **({"frames/s": f"{frames_per_second:,.0f}"} if status.frames_per_step > 1 else {}),
        "updates/s": f"{status.updates_per_second:,.1f}",
        "staleness": f"{status.staleness_recent:.2f}",
    }


def _workers(status: Status) -> list[Text]:
    """Workers that are alive, and how many more there are."""
    living = [worker for worker in status.workers if worker.alive]
    cells = [_worker(worker) for worker in living[:MOST_WORKERS]]
    if status.workers_alive > len(cells):
        cells.append(Text(f"and {status.workers_alive - len(cells)} more workers", style="dim"))
    return cells


def _worker(worker: WorkerStatus) -> Text:
    # Text, not markup: a worker's name comes from the network.
    return _fact(worker.worker_id, "stalled" if worker.stalled else f"{speed_of(worker):,.0f}/s")


def _fact(name: str, value: str) -> Text:
    return Text(f"{name} ", style="dim", overflow="ellipsis").append(value, style="not dim bold")


def _score(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _minutes_left(status: Status) -> str:
    """Minutes until the first limit of the budget, unless the target comes first."""
    left = []
    if status.max_minutes:
        left.append(status.max_minutes - status.minutes)
    if status.max_steps and status.steps_per_second:
        left.append((status.max_steps - status.global_steps) / status.steps_per_second / 60)
    return f"at most {max(0.0, min(left)):.1f}" if left and not status.ending else "-"


class TextCurve:
    """y over x. An x that falls back, as after a restart from a checkpoint, is drawn at the largest x so far."""

    def __init__(self) -> None:
        self._x: list[float] = []
        self._y: list[float] = []
        self._every = 1  # of this many points one is kept
        self._added = 0

    def add(self, x: float, y: float) -> None:
        self._added += 1
        if self._added % self._every:
            return
        self._x.append(max(x, self._x[-1]) if self._x else x)
        self._y.append(y)
        if len(self._x) > MOST_POINTS:  # old points are thinned, new ones are kept as rarely
            self._x, self._y, self._every = self._x[1::2], self._y[1::2], 2 * self._every

    def lines(self, width: int, rows: int, *, target: float | None) -> list[str]:
        """`rows` lines of `width` characters, with the highest and lowest value and a dotted line at the target."""
        columns = width - LABEL_WIDTH
        if len(self._x) < 2 or columns < 1:
            return [" " * width] * rows
        heights = self._at(columns)
        top, bottom = max(heights + ([] if target is None else [target])), min(heights)
        scale = (rows * (len(BLOCKS) - 1) - 1) / (top - bottom) if top > bottom else 0.0
        levels = [1 + round((height - bottom) * scale) for height in heights]
        dotted = None if target is None or target < bottom else round((target - bottom) * scale) // (len(BLOCKS) - 1)
        lines = []
        for row in reversed(range(rows)):
            filled = [min(max(level - row * (len(BLOCKS) - 1), 0), len(BLOCKS) - 1) for level in levels]
            drawn = "".join(BLOCKS[level] for level in filled)
            if row == dotted:
                drawn = drawn.replace(" ", "┈")
            label = _number(top) if row == rows - 1 else _number(bottom) if row == 0 else ""
            lines.append(f"{label:>{LABEL_WIDTH - 1}} {drawn}")
        return lines

    def _at(self, columns: int) -> list[float]:
        """The value at the end of each of `columns` equal stretches of x."""
        first, last = self._x[0], self._x[-1]
        ends = (first + (last - first) * (column + 1) / columns for column in range(columns))
        return [self._y[max(0, bisect_right(self._x, end) - 1)] for end in ends]


def _number(value: float) -> str:
    return f"{value:.{0 if abs(value) >= 1000 else 2}f}"[: LABEL_WIDTH - 1]
