"""
The picture of the README: the GIF of a game that a trained agent plays, beside the learning curve of its run.

    rl-eval --checkpoint RUN_DIR --gif game.gif
    ps-ctl plot RUN_DIR --out curve.png
    python -m benchmarks.picture game.gif curve.png docs/images/pong.gif
"""

import argparse
from pathlib import Path

from PIL import Image, ImageSequence

FIRST_PANEL = (0.0, 0.0, 0.358, 0.915)  # of the curves: the return against environment steps
COLOURS = 128
MOST_BYTES = 1_500_000


def main() -> None:
    """Join the two files of the command line, and say how large the result is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("game", "curve", "out"):
        parser.add_argument(name, type=Path)
    files = parser.parse_args()
    with Image.open(files.game) as game, Image.open(files.curve) as curve:
        frames, durations = beside(game, curve)
    frames[0].save(files.out, save_all=True, append_images=frames[1:], duration=durations, loop=0, optimize=False)
    size = files.out.stat().st_size
    print(f"{files.out}: {len(frames)} frames of {frames[0].width}x{frames[0].height}, {size:,} bytes")
    if size > MOST_BYTES:
        raise SystemExit(f"{files.out} has more than {MOST_BYTES:,} bytes: record a shorter game")


def beside(game: Image.Image, curve: Image.Image) -> tuple[list[Image.Image], list[int]]:
    """Each frame of the game with the curve's first panel to its right, all in one palette; and their milliseconds."""
    left, top, right, bottom = (int(part * side) for part, side in zip(FIRST_PANEL, 2 * curve.size, strict=True))
    panel = curve.convert("RGB").crop((left, top, right, bottom))
    panel = panel.resize((round(panel.width * game.height / panel.height), game.height), Image.Resampling.LANCZOS)
    frames: list[Image.Image] = []
    durations: list[int] = []
    for frame in ImageSequence.Iterator(game):
        both = Image.new("RGB", (game.width + panel.width, game.height))
        both.paste(frame.convert("RGB"), (0, 0))
        both.paste(panel, (game.width, 0))
        palette = frames[0] if frames else both.quantize(COLOURS, dither=Image.Dither.NONE)
        frames.append(both.quantize(palette=palette, dither=Image.Dither.NONE))
        durations.append(frame.info["duration"])
    return frames, durations


if __name__ == "__main__":
    main()
