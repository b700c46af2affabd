"""A short game on video, read back from the file."""

import errno
import subprocess
from pathlib import Path

import imageio.v3
import imageio_ffmpeg  # type: ignore[import-untyped]
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from ps_common.errors import SettingsError
from ps_common.settings.run_spec import Environment, RunSpec
from rl_agent.agent import build_agent
from rl_agent.algorithms.algorithm import Algorithm
from rl_agent.environments.make import make_environments
from rl_eval import recording
from rl_eval.recording import record


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
    record("--video", path, agent_for(settings), settings, greedy=False, seed=1)
    screens = screens_of(path, height=height, width=width)
    assert len(screens) == 6
    assert all(screen.std() > 1 for screen in screens), "a picture is blank"


def test_a_game_that_never_ends_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "MOST_SCREENS", 3)
    settings = Environment(id="CartPole-v1")
    path = tmp_path / "game.mp4"
    record("--video", path, agent_for(settings), settings, greedy=True, seed=1)
    assert len(screens_of(path, height=400, width=600)) == 3


def test_a_gif_is_there_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    settings, path = Environment(id="CartPole-v1", max_episode_steps=3), tmp_path / "game.gif"
    path.write_bytes(b"GIF89a of an earlier game;")
    monkeypatch.setattr(Path, "replace", fails)
    with pytest.raises(SettingsError, match=r"^--gif .*game.gif: cannot be written: No space left"):
        record("--gif", path, agent_for(settings), settings, greedy=True, seed=1)
    assert path.read_bytes() == b"GIF89a of an earlier game;"
    assert list(tmp_path.iterdir()) == [path]


def gif_of(settings: Environment, path: Path) -> NDArray[np.uint8]:
    """[N, height, width, 3]"""
    record("--gif", path, agent_for(settings), settings, greedy=False, seed=1)
    return imageio.v3.imread(path)


@pytest.mark.parametrize(
    ("settings", "height", "width"),
    [
        (Environment(id="CartPole-v1", max_episode_steps=6), 200, 300),
        (Environment(id="ALE/Pong-v5", max_episode_steps=6), 420, 320),
    ],
)
def test_a_gif_shows_the_screen_as_it_is(settings: Environment, height: int, width: int, tmp_path: Path) -> None:
    """Or a whole number of times as large or as small."""
    pictures = gif_of(settings, tmp_path / "new" / "game.gif")
    assert pictures.shape[1:] == (height, width, 3)
    assert 1 < len(pictures) <= 6, "of pictures that are alike one is kept, for longer"
