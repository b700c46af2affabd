"""
A run folder from elsewhere may have a link in place of anything that a program writes there: nothing outside changes.

The places are not listed here: they are all that the programs leave in a folder of their own, or have there meanwhile.
"""

import os
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from ps_common.run_folder.paths import CHECKPOINTS, GAME_GIF
from tests.integration.processes import Programs, wait_for
from tests.rows import row

HOOK = """
class Hook:
    def on_episode(self, game): pass
"""
LOGS = """
import sys
from ps_rl import Run, SettingsError
try:
    Run.open(sys.argv[1]).log("mine", 1.0)
except SettingsError as error:
    print(error)
"""
CLUSTER = ["--workers", "1", "--hook", "hooked:Hook"]
NEW = ["--preset", "cartpole", "--checkpoint-every-episodes", "10", "--max-steps", "4000"]
OUTPUTS = {"--gif": GAME_GIF, "--json": "scores.json", "--receipt": "receipt.json"}


@contextmanager
def names_in(folder: Path) -> Iterator[set[Path]]:
    """The files and folders that are there at any time during the block."""
    seen: set[Path] = set()
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.01):
            with suppress(OSError):
                seen.update(path.relative_to(folder) for path in folder.rglob("*"))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def use(programs: Programs, run: Path, *flags: str) -> list[str]:
    """Everything that writes into the folder of a run, each program once. Returns what they have printed."""
    folder = run.parent
    (folder / "hooked.py").write_text(HOOK)
    (folder / "logs.py").write_text(LOGS)
    games = ["rl-eval", "--checkpoint", str(run), "--episodes", "1"]
    outputs = [text for flag, name in OUTPUTS.items() for text in (flag, str(run / name))]
    printed = []
    for program, *given in (
        ["rl-cluster", *flags, *CLUSTER, "--json", str(run / "summary.json")],
        [*games, *outputs],
        [*games, "--export", str(run / "policy")],
        ["ps-ctl", "plot", str(run)],
        ["python", "logs.py", str(run)],
    ):
        started = programs.start(program, *given, folder=folder)
        started.wait(120)
        printed.append(started.output)
    server = programs.start("ps-server", "--host", "127.0.0.1", "--port", "0", "--resume", str(run))
    wait_for(lambda: "listens on" in server.output or server.process.poll() is not None)
    server.signal(signal.SIGTERM)
    server.wait()
    return [*printed, server.output]


def planted(run: Path, place: Path, outside: Path) -> None:
    """Put a link in place of a file or folder, or of what is not there; it leads to what was there."""
    aim, path = outside / str(len(list(outside.iterdir()))), run / place
    if os.path.lexists(path):
        path.rename(aim)
    else:
        aim.write_text("my own")
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(aim)


def content_of(folder: Path) -> dict[Path, tuple[int, bytes]]:
    return {path: (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"") for path in folder.rglob("*")}


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_whatever_a_program_writes_in_a_run_folder_it_writes_to_no_link_there(
    programs: Programs, tmp_path: Path
) -> None:
    made = tmp_path / "made" / "run"
    made.mkdir(parents=True)
    with names_in(made) as seen:
        begun = use(programs, made, *NEW, "--run-dir", str(made))
    folders = {place for place in seen if (made / place).is_dir()}
    assert {Path(name) for name in ("curve.png", "endpoint", "page", *OUTPUTS.values())} <= seen, begun
    assert {Path(name) for name in (CHECKPOINTS, "tensorboard", "tensorboard/logged")} <= folders, begun
    transient = {place for place in seen if not (made / place).exists() and (made / place).parent.is_dir()}
    files = {place for place in seen if (made / place).is_file()}
    at_the_top = {place for place in folders if place.parent == Path()}
    replaced = {Path(name) for name in ("curve.png", "run.toml", "lineage.json", f"{CHECKPOINTS}/best.safetensors")}
    for which, places in {
        "what is replaced": replaced,
        "files of records": {place for place in files if place.suffix == ".jsonl"},
        "other files": {place for place in files - replaced if place.suffix != ".jsonl"},
        "what is there for a while": transient,
        "folders": at_the_top - {Path(CHECKPOINTS)},
        CHECKPOINTS: {Path(CHECKPOINTS)},
    }.items():
        with row(which):
            folder = tmp_path / which.replace(" ", "-")
            shutil.copytree(made.parent, folder)
            outside = folder / "outside"
            outside.mkdir()
            for place in sorted(places):
                planted(folder / "run", place, outside)
            before = content_of(outside)
            printed = use(programs, folder / "run", "--resume", str(folder / "run"), "--max-steps", "8000")
            assert content_of(outside) == before, printed
            assert "Traceback" not in "".join(printed)
            assert "link" in printed[0] or "over after" in printed[0], "it ran, or said why not"
            if places == replaced:
                assert "over after" in printed[0]
                assert not (folder / "run" / "curve.png").is_symlink(), printed
