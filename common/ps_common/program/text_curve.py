"""A curve of block characters, of any width. The number of points kept is bounded, however long the run."""

from bisect import bisect_right

MOST_POINTS = 2_000
BLOCKS = " ▁▂▃▄▅▆▇█"
LABEL_WIDTH = 9  # of the numbers at the left


class TextCurve:
    """y over x. An x that falls back, as after a restart from a checkpoint, is drawn at the largest x so far."""

    def __init__(self) -> None:
        self._x: list[float] = []
        self._y: list[float] = []
        self._every = 1  # one point in so many is kept
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
