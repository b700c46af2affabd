"""
Keys for CURVE, ZeroMQ's encryption: which files they are in, and how a client's socket is locked with them.

A secret file holds a whole pair of keys, and only its owner can read it. A public file (`*.key`) may go to anybody.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zmq
import zmq.auth

from common.errors import SettingsError


@dataclass(frozen=True)
class Pair:
    """Both keys of one side, as ZeroMQ writes them: Z85, 40 characters."""

    public: bytes
    secret: bytes


@dataclass(frozen=True)
class ClientKeys:
    """What a client needs to talk to a locked server: whom it expects there, and who it is."""

    server: bytes
    own: Pair

    def lock(self, socket: zmq.Socket[Any]) -> None:
        """To be called before `connect`."""
        socket.setsockopt(zmq.CURVE_SERVERKEY, self.server)
        socket.setsockopt(zmq.CURVE_PUBLICKEY, self.own.public)
        socket.setsockopt(zmq.CURVE_SECRETKEY, self.own.secret)


def read_client_keys(server_key: Path | None, secret: Path | None) -> ClientKeys | None:
    """What the flags --curve-server-key and --curve-secret name; None without either. Raises SettingsError."""
    if server_key is None and secret is None:
        return None
    if server_key is None or secret is None:
        given, missing = ("secret", "server-key") if server_key is None else ("server-key", "secret")
        raise SettingsError(f"--curve-{given}: is of no use without --curve-{missing}; ps-ctl keygen makes both files")
    return ClientKeys(read_public("--curve-server-key", server_key), read_pair("--curve-secret", secret))


def read_public(what: str, path: Path) -> bytes:
    """The public key in a file. Raises SettingsError naming `what`."""
    return _read(what, path)[0]


def read_pair(what: str, path: Path) -> Pair:
    """Both keys in a secret file. Raises SettingsError naming `what`."""
    public, secret = _read(what, path)
    if secret is None:
        raise SettingsError(f"{what} {path}: holds no secret key; is it the public half (.key) of a .key_secret?")
    return Pair(public, secret)


def write_pair(folder: Path, name: str) -> tuple[Path, Path]:
    """Make new keys: FOLDER/NAME.key and FOLDER/NAME.key_secret, which only the owner can read. Raises OSError."""
    others = os.umask(0o077)
    try:
        public, secret = zmq.auth.create_certificates(folder, name)
    finally:
        os.umask(others)
    return Path(public), Path(secret)


def _read(what: str, path: Path) -> tuple[bytes, bytes | None]:
    try:
        public, secret = zmq.auth.load_certificate(path)
        # Decoded here, so that a damaged file is told by its name and not by a socket.
        for key in (public, *([secret] if secret else [])):
            if len(key) != 40 or len(zmq.utils.z85.decode(key)) != 32:
                raise ValueError("a key has 40 characters")
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise SettingsError(f"{what} {path}: holds no key; ps-ctl keygen makes such files") from error
    return public, secret
