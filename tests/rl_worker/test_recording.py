"""A short game on video, read back from the file."""

import subprocess
from pathlib import Path

import imageio.v3
import imageio_ffmpeg  # type: ignore[import-untyped]
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from common.errors import SettingsError
from common.run_spec import Environment, RunSpec
from rl_worker import recording
from rl_worker.agent import build_agent
from rl_worker.algorithms.algorithm import Algorithm
from rl_worker.environments import make_environments
from rl_worker.recording import record_game, record_gif


def agent_for(settings: Environment) -> Algorithm:
    environments = make_environments(settings, count=1)
    environments.close()
    return build_agent(RunSpec(environment=settings, seed=1), environments, device=torch.device("cpu"), seed=0)


def screens_of(path: Path, *, height: int, width: int) -> NDArray[np.uint8]:
    """[N, height, width, 3], as ffmpeg decodes them."""
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    decoded = subprocess.run(command, capture_output=True, check=True, timeout=60)
    return np.frombuffer(decoded.stdout, dtype=np.uint8).reshape(-1, height, width, 3)


@pytest.mark.parametrize(
    ("settings", "file", "height", "width"),
    [
        (Environment(id="CartPole-v1", max_episode_steps=6), "cartpole.mp4", 400, 600),
        (Environment(id="ALE/Pong-v5", max_episode_steps=6), "pong.MP4", 210, 160),
    ],
)
def test_a_game_becomes_a_video_with_a_picture_for_each_step(
    settings: Environment, file: str, height: int, width: int, tmp_path: Path
) -> None:
    path = tmp_path / "new" / "folder" / file
    record_game(agent_for(settings), settings, path, greedy=False, seed=1)
    screens = screens_of(path, height=height, width=width)
    assert len(screens) == 6
    assert all(screen.std() > 1 for screen in screens), "a picture is blank"


def test_a_game_that_never_ends_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "MOST_SCREENS", 3)
    settings = Environment(id="CartPole-v1")
    path = tmp_path / "game.mp4"
    record_game(agent_for(settings), settings, path, greedy=True, seed=1)
    assert len(screens_of(path, height=400, width=600)) == 3


def test_a_folder_that_cannot_be_made_is_said_with_the_flag(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    settings = Environment(id="CartPole-v1", max_episode_steps=3)
    with pytest.raises(SettingsError, match=r"^--video .*file/game.mp4: cannot be written: "):
        record_game(agent_for(settings), settings, tmp_path / "file" / "game.mp4", greedy=True, seed=1)


def gif_of(settings: Environment, path: Path) -> NDArray[np.uint8]:
    """[N, height, width, 3]"""
    environments = make_environments(settings, count=1, with_screen=True)
    record_gif(agent_for(settings), environments, path, greedy=False, seed=1)
    environments.close()
    return imageio.v3.imread(path)


@pytest.mark.parametrize(
    ("settings", "height", "width"),
    [
        (Environment(id="CartPole-v1", max_episode_steps=6), 100, 150),
        (Environment(id="ALE/Pong-v5", max_episode_steps=6), 105, 80),
    ],
)
def test_a_gif_is_small(settings: Environment, height: int, width: int, tmp_path: Path) -> None:
    pictures = gif_of(settings, tmp_path / "new" / "game.gif")
    assert pictures.shape[1:] == (height, width, 3)
    assert 3 < len(pictures) <= 6, "of pictures that are alike one is kept, for longer"


def test_a_long_game_is_thinned_in_a_gif(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 14 screens every 4th: more than 5 are halved, and halved again."""
    monkeypatch.setattr(recording, "GIF_MOST_PICTURES", 5)
    path = tmp_path / "game.gif"
    assert len(gif_of(Environment(id="ALE/Pong-v5", max_episode_steps=14), path)) == 4
    milliseconds = imageio.v3.immeta(path)["duration"]
    assert milliseconds == pytest.approx(4 * recording.GIF_MILLISECONDS, abs=10), "played at its own speed"


def test_a_game_that_never_ends_is_cut_in_a_gif(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "GIF_MOST_STEPS", 3)
    assert len(gif_of(Environment(id="ALE/Pong-v5"), tmp_path / "game.gif")) == 3
