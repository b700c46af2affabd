"""The list of all games of a run, one line after another."""

import json
from pathlib import Path
from typing import Any

from ps_common.protocol.messages import Episode
from ps_common.run_folder.paths import EPISODES
from ps_common.run_folder.run_rows import read_episodes
from ps_server.records.history import EpisodesFile
from ps_server.state.effects import RecordReport


def a_report(**fields: Any) -> RecordReport:
    known: dict[str, Any] = {
        "worker_id": "host-1",
        "global_steps": 640,
        "updates": 32,
        "minutes": 0.5,
        "first_episode": 1,
        "episodes": (),
        "meters": {},
    }
    return RecordReport(**(known | fields))


def some(*returns: float) -> tuple[Episode, ...]:
    return tuple(Episode(value, 10) for value in returns)


def test_each_game_is_a_line_that_can_be_read_at_once(tmp_path: Path) -> None:
    episodes = EpisodesFile(tmp_path)
    episodes.add(a_report(episodes=(Episode(-21.0, 800), Episode(3.5, 90)), first_episode=7))
    rows = [json.loads(line) for line in (tmp_path / EPISODES).read_text().splitlines()]
    common = {"global_steps": 640, "minutes": 0.5, "worker": "host-1"}
    assert rows == [
        {"episode": 7, "episode_return": -21.0, "length": 800} | common,
        {"episode": 8, "episode_return": 3.5, "length": 90} | common,
    ]
    episodes.close()


def test_a_game_stands_at_the_step_where_it_ended_and_never_beyond_its_report(tmp_path: Path) -> None:
    episodes = EpisodesFile(tmp_path)
    games = (Episode(1.0, 8, 8), Episode(2.0, 8, 640), Episode(3.0, 8, 10**9), Episode(4.0, 8))
    episodes.add(a_report(episodes=games, global_steps=640))
    episodes.close()
    assert [row.global_steps for row in read_episodes(tmp_path)] == [8, 640, 640, 640]


def test_a_resumed_run_plays_anew_what_its_checkpoint_did_not_hold(tmp_path: Path) -> None:
    for report in (
        a_report(episodes=some(1, 2, 3), first_episode=1),
        a_report(episodes=some(4, 5), first_episode=4),
        a_report(episodes=some(30, 40), first_episode=3),
    ):
        episodes = EpisodesFile(tmp_path)
        episodes.add(report)
        episodes.close()
    rows = read_episodes(tmp_path)
    assert [(row.episode, row.episode_return) for row in rows] == [(1, 1), (2, 2), (3, 30), (4, 40)]
