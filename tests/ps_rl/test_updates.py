"""What callbacks and iterations see of a run's files, and the curves that a program adds; no process is started."""

import math
from pathlib import Path

import msgspec
import numpy as np
import pytest

from ps_common.protocol.status import Status
from ps_common.run_folder.paths import EPISODES, LOGGED, METRICS, TENSORBOARD
from ps_common.run_folder.run_rows import EpisodeRow, LoggedRow, rows_in
from ps_rl import Run
from ps_rl.updates import VALUES_AT_ONCE, LoggedCurves, Updates
from tests.ps_server.records.test_event_file import loaded
from tests.rows import row


def add_row(folder: Path, minutes: float, *, time: float | None = None) -> None:
    status = Status(
        phase="serving", epoch=1, refused={}, not_modified=0, checkpoint_version=0, checkpoint_failures=0,
        workers_alive=1, minutes=minutes, global_steps=round(100 * minutes),
    )  # fmt: skip
    row = msgspec.structs.asdict(status) | {"time": time or 1e9 + 60 * minutes}
    with (folder / METRICS).open("ab") as file:
        file.write(msgspec.json.encode(row) + b"\n")


def add_game(folder: Path, episode: int, minutes: float) -> None:
    row = EpisodeRow(episode=episode, global_steps=0, minutes=minutes, worker="w", episode_return=1.0, length=1)
    with (folder / EPISODES).open("ab") as file:
        file.write(msgspec.json.encode(row) + b"\n")


def seen(updates: Updates) -> list[tuple[float, list[int]]]:
    return [(update.minutes, [game.episode for game in update.games]) for update in updates.read()]


def test_an_update_has_the_games_since_the_one_before(tmp_path: Path) -> None:
    updates = Updates(tmp_path)
    assert seen(updates) == []
    for episode, minutes in enumerate((0.5, 0.9, 1.0, 1.5, 2.5), 1):
        add_game(tmp_path, episode, minutes)
    for minutes in (1.0, 2.0):
        add_row(tmp_path, minutes)
    assert seen(updates) == [(1.0, [1, 2, 3]), (2.0, [4])]
    assert seen(updates) == []
    add_row(tmp_path, 3.0)
    assert seen(updates) == [(3.0, [5])]


def test_a_logged_value_is_a_point_of_the_folder_and_of_tensorboard(tmp_path: Path) -> None:
    (tmp_path / TENSORBOARD).mkdir()
    add_row(tmp_path, 2.0)
    run = Run.open(tmp_path)
    run.log("gap", 3)
    run.log("my/gap", 0.5)
    rows = list(rows_in(tmp_path / LOGGED, LoggedRow))
    assert [(row.name, row.value, row.global_steps, row.minutes) for row in rows] == [
        ("logged/gap", 3.0, 200, 2.0),
        ("my/gap", 0.5, 200, 2.0),
    ]
    (tmp_path / TENSORBOARD / "logged").rename(tmp_path / "logged")
    (tmp_path / TENSORBOARD).rmdir()
    (tmp_path / "logged").rename(tmp_path / TENSORBOARD)
    events = loaded(tmp_path)
    assert set(events.Tags()["scalars"]) == {"logged/gap", "my/gap"}


def test_points_that_are_no_numbers_or_too_many_are_left_out_and_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    curves = LoggedCurves(tmp_path)
    for value in (math.nan, math.inf, *[1.0] * (2 * VALUES_AT_ONCE)):
        curves.add("x", value)
    curves.close()
    assert len(caplog.records) == 1
    assert VALUES_AT_ONCE <= len(list(rows_in(tmp_path / LOGGED, LoggedRow))) < 2 * VALUES_AT_ONCE


def test_updates_and_their_games_come_in_the_order_of_the_file_whatever_clocks_and_minutes_do(tmp_path: Path) -> None:
    """A clock that is set back, a run that goes back to a checkpoint, and reading often or once: the same updates."""
    random = np.random.default_rng(3)
    for number in range(30):
        folder = tmp_path / str(number)
        folder.mkdir()
        often, minutes, clock, found = Updates(folder), 0.0, 1e9, list[tuple[float, list[int]]]()
        written: list[float] = []
        for episode in range(1, 40):
            minutes += 1.0
            clock += 60.0
            if random.random() < 0.1:
                clock -= 10_000.0
            if random.random() < 0.1:
                minutes = max(1.0, minutes - 5.0)
            add_game(folder, episode, minutes - 0.5)
            if random.random() < 0.7:
                add_row(folder, minutes, time=clock)
                written.append(minutes)
            if random.random() < 0.5:
                found += seen(often)
        found += seen(often)
        with row(number):
            assert [minutes for minutes, _ in found] == written
            at_once = seen(Updates(folder))
            assert [minutes for minutes, _ in at_once] == written
            for updates in (found, at_once):
                games = [game for _, games in updates for game in games]
                assert len(games) == len(set(games)), "each game is of one update"


@pytest.mark.parametrize("times", ["back", "on"])
def test_a_thinned_file_is_read_on_from_the_row_that_was_read_last(tmp_path: Path, times: str) -> None:
    updates = Updates(tmp_path)
    for minutes in (1, 2, 3):
        add_row(tmp_path, minutes, time=1e9 - 60 * minutes if times == "back" else None)
    assert len(seen(updates)) == 3
    lines = (tmp_path / METRICS).read_bytes().splitlines(keepends=True)
    (tmp_path / METRICS).write_bytes(b"".join(lines[1:]))
    add_row(tmp_path, 4.0, time=1e9 - 600 if times == "back" else None)
    assert seen(updates) == [(4.0, [])]
