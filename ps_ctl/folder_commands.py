"""
The commands of `ps-ctl` that need no server: they read run folders and write files.
"""

import re
import shutil
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from ps_common.errors import SettingsError
from ps_common.run_folder.paths import CURVE
from ps_common.sockets.curve import ADMINS, write_pair

AUTHORIZED = "authorized"
NAMES = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def plot(runs: tuple[Path, ...], /, *, out: Path | None = None) -> None:
    """
    Plot learning curves as a PNG: the mean return of the last 100 episodes against steps, minutes and episodes.

    Each run is a line of its own; the page (ps-web runs/) compares settings.

    Args:
        runs: run folders, or folders that contain run folders
        out: file for the plot; curve.png in the first folder when not given
    """
    if not runs:
        raise SettingsError("plot: name the run folders to draw")
    from ps_ctl.plots import plot_runs  # matplotlib takes a second to load

    print(plot_runs(runs, out or runs[0] / CURVE))


def reshard(run: Annotated[str, arg(metavar="RUN_DIR")], /, *, shards: int) -> None:
    """
    Cut a run that has ended into another number of shards; 1 is one server with the whole. What is there stays.

      ps-ctl reshard runs/pong --shards 2
      ps-server --resume runs/pong --shard 1/2 --shards HOST1:5555 HOST2:5555

    The folders shard-*-of-* of all old shards have to be in the folder of the run.

    Args:
        run: the folder of the run, or its object store (s3://BUCKET/NAME)
        shards: how many
    """
    from ps_ctl.reshard import cut_run  # torch takes a second to load

    for line in cut_run(run, shards):
        print(line)


def keygen(folder: Path, /, *, name: str | None = None, admin: bool = False) -> None:
    """
    Make the keys of a locked server in FOLDER: one pair for the server, one for its workers, one for an admin.

    The server reads FOLDER/authorized: every public key in it may connect. Remove a file to withdraw that right.

    Args:
        folder: folder for the keys
        name: add one more pair, of this name, to a folder that has keys
        admin: with --name: this pair may also save and stop the run
    """
    if admin and name is None:
        raise SettingsError("--admin: is of a pair that --name adds; give --name, too")
    for path in make_keys(folder) if name is None else [add_keys(folder, name, admin=admin)]:
        print(path)


def make_keys(folder: Path) -> list[Path]:
    """
    Make FOLDER/server.key and .key_secret, worker.key_secret, admin.key_secret, and authorise the last two.

    Returns the secret files. Raises SettingsError before anything is overwritten.
    """
    if (folder / "server.key_secret").exists():
        raise SettingsError(f"{folder}: has the keys of a server already; add those of a worker with --name")
    try:
        (folder / AUTHORIZED / ADMINS).mkdir(parents=True, exist_ok=True)
        server = write_pair(folder, "server")[1]
    except OSError as error:
        raise SettingsError(f"{folder}: keys cannot be kept there: {error.strerror}") from error
    return [server, add_keys(folder, "worker", admin=False), add_keys(folder, "admin", admin=True)]


def add_keys(folder: Path, name: str, *, admin: bool) -> Path:
    """Make FOLDER/NAME.key_secret, authorised as a worker or an admin. Raises SettingsError."""
    authorized = folder / AUTHORIZED / ADMINS if admin else folder / AUTHORIZED
    if NAMES.fullmatch(name) is None:
        raise SettingsError(f"--name {name}: must have 1 to 64 letters, digits, dots, dashes and underscores")
    if not authorized.is_dir():
        raise SettingsError(f"{folder}: has no keys of a server yet; run ps-ctl keygen without --name first")
    if (folder / f"{name}.key_secret").exists():
        raise SettingsError(f"--name {name}: {folder} has keys of that name already")
    try:
        public, secret = write_pair(folder, name)
        shutil.move(public, authorized / public.name)
    except OSError as error:
        raise SettingsError(f"{folder}: keys cannot be kept there: {error.strerror}") from error
    return secret
