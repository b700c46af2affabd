"""The keys of a locked server in a folder: the pairs, and who is authorised as worker or admin."""

import re
import shutil
from pathlib import Path

from ps_common.errors import SettingsError
from ps_common.sockets.curve import ADMINS, write_pair

AUTHORIZED = "authorized"
NAMES = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


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
