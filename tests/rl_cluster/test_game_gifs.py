"""When a game is recorded while a run learns, with which weights, and what is said when that fails."""

from pathlib import Path
from typing import ClassVar

import pytest

from ps_common.run_folder.paths import CHECKPOINTS, GIFS, milestone_name
from rl_cluster import game_gifs
from rl_cluster.game_gifs import GameGifs


class Recording:
    """A process that records nothing, and ends when the test says so."""

    begun: ClassVar[list["Recording"]] = []

    def __init__(self, program: str, arguments: list[str], log: Path) -> None:
        assert program == "rl_eval"
        self.arguments, self.log = arguments, log
        self.exit_status: int | None = None
        self.begun.append(self)

    @property
    def has_done_its_work(self) -> bool:
        return self.exit_status == 0

    def cause_of_death(self) -> str:
        return "the game cannot be drawn"

    def wait(self, *, within_seconds: float) -> bool:
        self.exit_status = 0 if within_seconds > 0 else None
        return within_seconds > 0

    def end(self, *, within_seconds: float) -> None:
        self.exit_status = -9


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[Recording]:
    monkeypatch.setattr(game_gifs, "Child", Recording)
    monkeypatch.setattr(Recording, "begun", [])
    return Recording.begun


def keep(folder: Path, episodes: int) -> Path:
    """A checkpoint that is kept apart after so many episodes."""
    path = folder / CHECKPOINTS / milestone_name(episodes)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(str(episodes))
    return path


def gifs_of(folder: Path, *, every: int = 10, shards: int = 1, leaves: bool = False) -> GameGifs:
    return GameGifs(folder, every, shards, ["own"], lambda: leaves)


def test_a_game_is_recorded_with_a_checkpoint_after_every_25_episodes(tmp_path: Path, begun: list[Recording]) -> None:
    keep(tmp_path, 30)
    gifs, weights = gifs_of(tmp_path, every=25), tmp_path / GIFS / ".weights.safetensors"
    assert gifs.look() == []
    keep(tmp_path, 49)
    gifs.look()
    assert begun == [], "that of a resumed run had its chance, and the next is not due"
    keep(tmp_path, 50).unlink()
    keep(tmp_path, 51)
    gifs.look()
    assert begun[0].arguments == [
        "--checkpoint", str(weights), "--episodes", "1", "--gif", str(tmp_path / GIFS), "--import", "own",
    ]  # fmt: skip
    assert weights.read_text() == "51"
    keep(tmp_path, 75)
    keep(tmp_path, 120)
    gifs.look()
    assert len(begun) == 1, "one at a time"
    begun[0].exit_status = 0
    assert gifs.look() == []
    assert len(begun) == 2
    assert weights.read_text() == "120", "those that came meanwhile have none"


@pytest.mark.parametrize("leaves", [False, True])
def test_the_last_game_of_a_run_is_recorded_after_its_end(
    tmp_path: Path, begun: list[Recording], capsys: pytest.CaptureFixture[str], leaves: bool
) -> None:
    with gifs_of(tmp_path, leaves=leaves) as gifs:
        keep(tmp_path, 10)
        gifs.look()
        keep(tmp_path, 20)
    assert [one.exit_status for one in begun] == ([-9] if leaves else [0, 0])
    assert capsys.readouterr().out == ""
    assert list((tmp_path / GIFS).iterdir()) == []
