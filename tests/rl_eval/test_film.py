"""Films of learning: which games they show, in which order, and files that play."""

from pathlib import Path

import imageio.v3
import numpy as np
import pytest
from PIL import Image

from ps_common.settings.run_spec import RunSpec
from rl_eval.cli import evaluate
from tests.rl_eval.test_cli import CARTPOLE, checkpoint
from tests.rl_eval.test_receipt import PONG
from tests.rl_eval.test_recording import screens_of


def filmed(run: Path, out: Path, *flags: str) -> None:
    assert evaluate(["--checkpoint", str(run), "--film", str(out), *flags]) == 0


def run_with_checkpoints(folder: Path, run: RunSpec = CARTPOLE) -> Path:
    names = ["episodes-000000010.safetensors", "episodes-000000020.safetensors", "checkpoint-000000000300.safetensors"]
    for number, name in enumerate(names, start=1):
        checkpoint(folder / "checkpoints" / name, run, steps=100 * number, minutes=5.0 * number)
    checkpoint(folder / "checkpoints" / "best.safetensors", run, steps=200, minutes=10.0)
    return folder


def run_with_gifs(folder: Path, *, games: int = 3, seconds: float = 2.0) -> Path:
    """Game k is all of one gray, 20 · k."""
    (folder / "gifs").mkdir(parents=True)
    for game in range(1, games + 1):
        frames = [Image.new("RGB", (160, 210), (20 * game, 20 * game, tint)) for tint in (0, 255)]
        path = folder / "gifs" / f"game-{100 * game:012d}.gif"
        frames[0].save(path, save_all=True, append_images=frames[1:], duration=500 * seconds, loop=0)
    return folder


@pytest.mark.parametrize("run", [CARTPOLE, PONG], ids=["CartPole", "Pong"])
def test_a_game_is_played_with_each_kept_checkpoint(
    run: RunSpec, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "film.mp4"
    filmed(run_with_checkpoints(tmp_path / "run", run), out)
    assert f"film: {out}, 3 games" in capsys.readouterr().out, "the best is one of the three"
    frames = screens_of(out, height=462, width=480)
    assert 3 <= len(frames) <= 3 * 8 * 15
    assert all(frame.std() > 5 for frame in frames)


def test_the_gifs_of_a_run_are_shown_one_after_another(tmp_path: Path) -> None:
    out = tmp_path / "film.mp4"
    filmed(run_with_gifs(tmp_path / "run"), out)
    _, height, width, _ = imageio.v3.improps(out, plugin="FFMPEG").shape
    frames = screens_of(out, height=height, width=width)
    assert len(frames) == 3 * 2 * 15
    shown = frames[:, 200, 200, 0].astype(int)
    assert np.abs(shown - np.repeat([20, 40, 60], 30)).max() < 12


def test_damaged_checkpoints_are_left_out_by_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = run_with_checkpoints(tmp_path / "run")
    (run / "checkpoints" / "episodes-000000010.safetensors").write_bytes(b"damaged")
    filmed(run, tmp_path / "film.gif", "--side-by-side")
    assert "episodes-000000010.safetensors" in caplog.text
    assert "leaving it out" in caplog.text
