"""Thinning of a long file: the newest lines stay, and before them points at equal distances."""

import errno
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ps_common.protocol.messages import Episode
from ps_common.run_folder.run_rows import read_episodes
from ps_server.records import bounded_file, history
from ps_server.records.bounded_file import BoundedLinesFile, evenly_in_time
from ps_server.records.history import EpisodesFile
from tests.ps_server.records.test_episodes import a_report

MOST_BYTES = 40_000


def lines_of(*rows: dict[str, Any]) -> list[bytes]:
    return [json.dumps(row).encode() + b"\n" for row in rows]


def test_rows_of_a_week_are_within_the_bound_evenly_spread_and_the_newest_all_there(tmp_path: Path) -> None:
    path, every = tmp_path / "metrics.jsonl", 1 / 30
    file = BoundedLinesFile(path, most_bytes=MOST_BYTES)
    week = round(7 * 24 * 60 / every)
    largest = 0
    for number in range(0, week, 10):  # a tenth of the rows: the bound is small, too
        file.add([{"minutes": number * every, "number": number}])
        largest = max(largest, path.stat().st_size)
    file.close()
    numbers = [json.loads(line)["number"] for line in path.read_text().splitlines()]
    assert largest < 1.01 * MOST_BYTES
    assert numbers[0] == 0
    assert numbers[-1] == week - 10
    distances = [after - before for before, after in itertools.pairwise(numbers)]
    newest = distances[-len(distances) // 4 :]
    assert set(newest) == {10}, "the newest quarter of the lines is as it was written"
    assert max(distances) < week / 50, "no stretch of the run is without points"


def test_each_worker_keeps_rows_of_the_whole_time() -> None:
    rows = [{"minutes": minute, "worker_id": name} for minute in range(100) for name in "abcd"]
    kept = [json.loads(line) for line in evenly_in_time(lines_of(*rows))]
    assert len(kept) == 200
    for name in "abcd":
        minutes = [row["minutes"] for row in kept if row["worker_id"] == name]
        assert len(minutes) == 50
        assert max(after - before for before, after in itertools.pairwise([0, *minutes, 99])) <= 3


def test_the_games_of_a_week_are_within_the_bound_and_their_mean_is_about_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "EPISODES_BYTES", MOST_BYTES)
    file = EpisodesFile(tmp_path)
    games = 20_000
    for first in range(1, games, 10):
        played = tuple(Episode(float(number), 10) for number in range(first, first + 10))
        file.add(a_report(episodes=played, first_episode=first, minutes=first / 100))
    file.close()
    rows = read_episodes(tmp_path)
    assert (tmp_path / "episodes.jsonl").stat().st_size <= 1.01 * MOST_BYTES
    numbers = [row.episode for row in rows]
    assert (numbers[0], numbers[-1], numbers) == (1, games, sorted(numbers))
    distances = [after - before for before, after in itertools.pairwise(numbers)]
    assert max(distances) < games / 20
    spans = [(after.episode - before.episode) * after.episode_return for before, after in itertools.pairwise(rows)]
    assert sum(spans) == pytest.approx(games * (games + 1) / 2, rel=0.02)


def test_a_file_is_replaced_in_one_step(tmp_path: Path) -> None:
    """A reader during thinning sees all of the old file, or all of the new one."""
    path = tmp_path / "x.jsonl"
    file = BoundedLinesFile(path, most_bytes=1000)
    file.add([{"minutes": minute} for minute in range(50)])
    with path.open("rb") as reader:
        file.add([{"minutes": minute} for minute in range(50, 100)])
        assert len(reader.read().splitlines()) == 100
    assert len(path.read_bytes().splitlines()) < 90
    assert [child.name for child in tmp_path.iterdir()] == [path.name]
    file.close()


def test_a_disk_without_room_for_the_smaller_file_keeps_the_larger_with_a_warning(
    tmp_path: Path, full_disk: Callable[[str], None], caplog: pytest.LogCaptureFixture
) -> None:
    full_disk(".x.jsonl.tmp")
    path = tmp_path / "x.jsonl"
    file = BoundedLinesFile(path, most_bytes=8000)
    for minute in range(600):
        file.add([{"minutes": minute}])
    file.close()
    assert len(path.read_bytes().splitlines()) == 600
    assert 1 < len(caplog.records) < 20, "not with each line"
    assert "x.jsonl: cannot be thinned now: No space left" in caplog.text


def test_a_file_that_cannot_be_opened_again_goes_on_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As on a network's file system, whose files are sometimes gone for a moment."""
    path = tmp_path / "x.jsonl"
    file = BoundedLinesFile(path, most_bytes=1000)
    opened_to_write = bounded_file.opened_to_write

    def stale(path: Path, *, replaces: bool = False) -> Any:
        if not replaces:
            raise OSError(errno.ESTALE, "Stale file handle")
        return opened_to_write(path, replaces=replaces)

    monkeypatch.setattr(bounded_file, "opened_to_write", stale)
    file.add([{"minutes": minute} for minute in range(90)])
    file.add([{"minutes": 90}])
    assert len(path.read_bytes().splitlines()) == 91
    assert "x.jsonl: cannot be thinned now: Stale file handle" in caplog.text
    monkeypatch.undo()
    file.add([{"minutes": minute} for minute in range(91, 100)])
    assert len(path.read_bytes().splitlines()) < 91
    assert [child.name for child in tmp_path.iterdir()] == [path.name]
    file.close()


# -- events -----------------------------------------------------------------------------------------------------------


def an_event(number: int, kind: str) -> dict[str, Any]:
    return {"time": 1.0, "epoch": 1, "number": number, "kind": kind, "text": "x", "global_steps": 0, "minutes": number}


def test_of_old_events_the_few_adjustments_stay() -> None:
    rows = [an_event(number, "adjustment" if number % 10 == 0 else "note") for number in range(100)]
    kept = [json.loads(line)["number"] for line in evenly_in_time(lines_of(*rows))]
    assert len(kept) <= 50
    assert set(range(0, 100, 10)) <= set(kept)
    assert kept == sorted(kept)
