"""
Keys for CURVE, ZeroMQ's encryption: the flags that name their files, and how a client's socket uses them.

A secret file (`*.key_secret`) holds a pair of keys, and only its owner can read it. A public file (`*.key`) is for
everybody.
"""

import os
import stat
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zmq
import zmq.auth

from ps_common.errors import SettingsError
from ps_common.settings.regular_file import check_regular

MOST_KEY_BYTES = 2**16  # of a file with keys
ADMINS = "admins"  # folder, within that of the authorised keys, of the keys that may also stop and adjust a run


@dataclass(frozen=True)
class Pair:
    """The keys of one side, as ZeroMQ writes them: Z85, 40 characters."""

    public: bytes
    secret: bytes


@dataclass(frozen=True)
class ClientKeys:
    """The public key of the server that a client expects, and the client's own pair."""

    server: bytes
    own: Pair

    def lock(self, socket: zmq.Socket[Any]) -> None:
        """Encrypt this socket; to be called before `connect`."""
        socket.setsockopt(zmq.CURVE_SERVERKEY, self.server)
        socket.setsockopt(zmq.CURVE_PUBLICKEY, self.own.public)
        socket.setsockopt(zmq.CURVE_SECRETKEY, self.own.secret)


@dataclass(frozen=True, kw_only=True)
class CurveFlags:
    """The flags of every client of a server."""

    curve_server_key: Path | None = None
    """the server's public key, where it asks for keys: server.key of its `ps-ctl keygen`"""
    curve_secret: Path | None = None
    """an own secret key, whose public half the server knows: worker.key_secret of its `ps-ctl keygen`; an admin's
    key_secret to save or stop the run"""

    def client_keys(self) -> ClientKeys | None:
        """None without these flags. Raises SettingsError."""
        if self.curve_server_key is None and self.curve_secret is None:
            return None
        if self.curve_server_key is None or self.curve_secret is None:
            given, missing = ("secret", "server-key") if self.curve_server_key is None else ("server-key", "secret")
            raise SettingsError(
                f"--curve-{given}: is of no use without --curve-{missing}; ps-ctl keygen makes both files"
            )
        own = read_pair("--curve-secret", self.curve_secret)
        return ClientKeys(read_public("--curve-server-key", self.curve_server_key), own)


def client_keys(server_key: str | Path | None, secret: str | Path | None) -> ClientKeys | None:
    """The keys in the files of these two flags; None without either. Raises SettingsError."""
    paths = [None if path is None else Path(path) for path in (server_key, secret)]
    return CurveFlags(curve_server_key=paths[0], curve_secret=paths[1]).client_keys()


def read_public(what: str, path: Path) -> bytes:
    """The public key in a file. Raises SettingsError that names the flag `what`."""
    return _read(what, path)[0]


def read_pair(what: str, path: Path) -> Pair:
    """Both keys in a secret file, which only its owner may read. Raises SettingsError that names the flag `what`."""
    public, secret = _read(what, path)
    if secret is None:
        raise SettingsError(f"{what} {path}: holds no secret key; is it the public half (.key) of a .key_secret?")
    _check_private(what, path)
    return Pair(public, secret)


def write_pair(folder: Path, name: str) -> tuple[Path, Path]:
    """Make new keys: FOLDER/NAME.key and FOLDER/NAME.key_secret, which only the owner can read. Raises OSError."""
    umask = os.umask(0o077)
    try:
        public, secret = zmq.auth.create_certificates(folder, name)
    finally:
        os.umask(umask)
    return Path(public), Path(secret)


def _check_private(what: str, path: Path) -> None:
    """The rule of ssh: a file of another user, such as a secret that a container engine has mounted, is not checked."""
    found = path.stat()
    if found.st_uid == os.getuid() and found.st_mode & 0o077:
        mode = f"{stat.S_IMODE(found.st_mode):04o}"
        raise SettingsError(f"{what} {path}: other users may use it (mode {mode}); run chmod 600 {path}")


def _read(what: str, path: Path) -> tuple[bytes, bytes | None]:
    try:
        check_regular(path, most_bytes=MOST_KEY_BYTES)
        public, secret = zmq.auth.load_certificate(path)
        # Decoded here, so that the error for a damaged file names the file. A socket's error would not.
        for key in (public, *([secret] if secret else [])):
            if len(key) != 40 or len(zmq.utils.z85.decode(key)) != 32:
                raise ValueError("a key has 40 characters")
    except (OSError, ValueError, KeyError, IndexError, struct.error) as error:
        raise SettingsError(f"{what} {path}: holds no key; ps-ctl keygen makes such files") from error
    return public, secret
