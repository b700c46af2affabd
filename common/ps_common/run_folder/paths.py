"""
The folder of a run: the names of its files, and how the folder is made.

The user names the folder, or it is runs/EXPERIMENT/PRESET-DATE-seedN. Runs without given names never share a folder,
even if they start in the same second.
"""

import contextlib
import itertools
import os
import re
import secrets
import shlex
import time
from pathlib import Path

from ps_common.errors import SettingsError
from ps_common.settings.regular_file import flush, made_folder, opened_to_write
from ps_common.settings.run_files import SETTINGS

SHARD_FOLDERS = "shard-*-of-*"  # pattern of the folders, in that of the run, that its shards keep
FIRST_SHARDS = "shard-1-of-*"
SHARD_NAME = re.compile(r"shard-([1-9][0-9]*)-of-([1-9][0-9]*)")  # K and N
LINEAGE = "lineage.json"  # the run of this folder, and the newest epoch in which it was served
REPLACED = "replaced"  # folder with the older state of a server that another one has replaced, and that follows it now
ENDPOINT = "endpoint"  # HOST:PORT of the server while it serves
LOCK = "server.lock"
STORE = "store"  # the URL of the object store that keeps the checkpoints too
METRICS = "metrics.jsonl"
WORKERS = "workers.jsonl"
EPISODES = "episodes.jsonl"
EVENTS = "events.jsonl"
EVALUATIONS = "evaluations.jsonl"
LOGGED = "logged.jsonl"  # curves that a Python program has added
TENSORBOARD = "tensorboard"
CHECKPOINTS = "checkpoints"
BEST = "best.safetensors"
CANDIDATE = "candidate.safetensors"  # that is to be evaluated
NEWEST, MILESTONES = "checkpoint-*.safetensors", "episodes-*.safetensors"  # patterns of the names that are made below
# The names in full: 12 and 9 digits, or more without a leading zero. A copy under another name is not one.
_TWELVE, _NINE = "([0-9]{12}|[1-9][0-9]{12,})", "([0-9]{9}|[1-9][0-9]{9,})"
_NUMBERED = re.compile(rf"(?:checkpoint-{_TWELVE}(?:-{_TWELVE})?|episodes-{_NINE})\.safetensors")
WRITING = ".writing"  # the folder, in that of the checkpoints, of files that are not whole yet
ASIDE = ".aside"  # added to the name of a checkpoint that cannot be used
REPLAY = "replay"  # folder of the replay memories of the workers on this machine
GAME_GIF = "game.gif"  # that the user is advised to record
CURVE = "curve.png"
COMMAND = "command"  # the command that began the run
SERVER_LOG = "server.log"
WEB_LOG = "web.log"
PAGE = "page"  # address of the page while it is served, with its token


def shard_folder(run_folder: Path, shard: int, shards: int) -> Path:
    """The folder of one of `shards` shards; that of the run where there are no others."""
    return run_folder / f"shard-{shard}-of-{shards}" if shards > 1 else run_folder


def make_shard_folder(folder: Path) -> None:
    """Make the folder of a shard in that of its run, which is there. Raises SettingsError."""
    try:
        made_folder(folder)
    except OSError as error:
        raise SettingsError(f"{folder}: cannot be made: {error.strerror}") from error


def checkpoint_name(global_steps: int, version: int) -> str:
    """
    T alone is not enough: not every client counts steps, and a run that is resumed begins at the T of its checkpoint.
    """
    return f"checkpoint-{global_steps:012d}-{version:012d}.safetensors"


def milestone_name(episodes: int) -> str:
    """A checkpoint that is kept apart after this many episodes."""
    return f"episodes-{episodes:09d}.safetensors"


def numbers_in(name: str) -> tuple[int, ...]:
    """
    By which checkpoints of a kind are ordered: T and the version, in names of before 0.3 T alone; episodes in the name
    of a milestone; () of any other file.
    """
    match = _NUMBERED.fullmatch(name)
    return tuple(int(number) for number in match.groups() if number) if match else ()


def replacement_of(path: Path) -> Path:
    """The hidden file in the folder of `path` that its only writer completes before it takes the place of `path`."""
    return path.with_name(f".{path.name}.tmp")


def write_whole(path: Path, content: str | bytes, *, mode: int = 0o666) -> None:
    """
    A reader finds the file as it was, or with all of this content, also after a loss of power, and whoever else writes
    it at the same time; it is on disk when this returns. `mode` is that of a new file. Raises OSError.
    """
    beside = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        with opened_to_write(beside, replaces=True, mode=mode) as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
        flush(path.parent)
    except OSError:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise


def written_at(path: Path) -> float:
    """When a file was written to last, in seconds since 1970; 0 without one."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def tracker_position(folder: Path, tracker: str) -> Path:
    """The file with how much of a run an experiment tracker has."""
    return folder / f"{tracker}.json"


def make_run_folder(given: Path | None, *, experiment: str, preset: str, seed: int | None) -> Path:
    """
    The given folder, made if it is missing; without one a new folder.

    An empty `experiment` is left out of the path, and so is a seed of None. A name in use gets a suffix: -2, -3, …
    Raises SettingsError.
    """
    name = f"{preset}-{time.strftime('%Y%m%d-%H%M%S')}" + ("" if seed is None else f"-seed{seed}")
    folder = given or Path("runs") / experiment / name
    try:
        if given is None:
            return _make_new(folder)
        os.fsencode(folder).decode()
        folder.mkdir(parents=True, exist_ok=True)
    except UnicodeDecodeError as error:
        raise SettingsError(f"--run-dir {folder}: is not UTF-8, as safetensors takes it; name another") from error
    except OSError as error:
        raise SettingsError(f"--run-dir {folder}: cannot be made: {error.strerror}") from error
    return folder


def shards_in(run_folder: Path) -> int:
    """The number of shards that a run had last; 1 where one server holds the whole vector."""
    match = re.fullmatch(r"shard-1-of-(\d+)", records_folder(run_folder).name)
    return int(match[1]) if match else 1


def check_whole_run(folder: Path, *, flag: str) -> None:
    """Raises SettingsError, which names the flag and the folder of the run, when `folder` is that of one shard."""
    if match := SHARD_NAME.fullmatch(folder.resolve().name):
        which = f"{match[1]}/{match[2]}"
        raise SettingsError(f"{flag}: is the folder of shard {which} alone; give that of its run, {folder.parent}")


def records_folder(run_folder: Path) -> Path:
    """The folder with the records of a run; with shards that of shard 1, the newest where their number changed."""
    return max([run_folder, *run_folder.glob(FIRST_SHARDS)], key=lambda folder: written_at(folder / METRICS))


def run_name(folder: Path) -> str:
    """The name of a run: that of its folder, also where `folder` is that of one shard."""
    folder = folder.resolve()
    return folder.parent.name if SHARD_NAME.fullmatch(folder.name) else folder.name


def run_folders_below(path: Path) -> list[Path]:
    """The run folders below a folder, of shards the first. Raises SettingsError when there is none."""
    having = {metrics.parent for metrics in path.rglob(METRICS)}
    runs = {folder.parent if folder.match(SHARD_FOLDERS) else folder for folder in having}
    if folders := sorted(map(records_folder, runs)):
        return folders
    raise SettingsError(f"{path}: is not a run folder, and contains none: there is no {METRICS}")


def claim_run_folder(folder: Path) -> None:
    """Make the folder's settings file, empty. One of several callers succeeds; the others get a SettingsError."""
    try:
        (folder / SETTINGS).touch(exist_ok=False)
    except FileExistsError:
        raise SettingsError(
            f"--run-dir {folder}: holds a run already; take another, or continue it: "
            f"rl-cluster --resume {shlex.quote(str(folder))}"
        ) from None
    except OSError as error:
        raise SettingsError(f"--run-dir {folder}: cannot be written to: {error.strerror}") from error


def _make_new(folder: Path) -> Path:
    """Make a folder that did not exist. Raises OSError."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    for number in itertools.count(1):
        new = folder if number == 1 else folder.with_name(f"{folder.name}-{number}")
        try:
            new.mkdir()
        except FileExistsError:
            continue
        return new
    raise AssertionError("itertools.count does not end")
