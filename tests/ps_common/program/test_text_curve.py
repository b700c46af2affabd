"""A curve of characters: as wide and as high as asked for, for runs of any length."""

from ps_common.program.progress_display import LABEL_WIDTH, MOST_POINTS, TextCurve


def curve(*points: tuple[float, float]) -> TextCurve:
    drawn = TextCurve()
    for x, y in points:
        drawn.add(x, y)
    return drawn


def test_heights_go_from_the_lowest_to_the_highest() -> None:
    assert curve(*((x, x) for x in range(9))).lines(LABEL_WIDTH + 8, 1, target=None) == ["    8.00 ▁▂▃▄▅▆▇█"]
    assert curve((0, 0), (1, 0), (2, 10)).lines(LABEL_WIDTH + 4, 2, target=None) == ["   10.00    █", "    0.00 ▁▁▁█"]


def test_a_week_of_points_takes_no_more_memory_and_keeps_its_shape() -> None:
    points = 100_000
    drawn = curve(*((x, x) for x in range(points)))
    assert len(drawn._x) <= MOST_POINTS
    (line,) = drawn.lines(LABEL_WIDTH + 8, 1, target=None)
    assert line.endswith("▁▂▃▄▅▆▇█")
