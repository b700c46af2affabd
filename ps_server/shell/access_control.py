"""
Who may connect to a locked server: those whose public keys lie in its folder of authorised keys.

The folder is read at every handshake: a key that is put there may connect at once, and one that is taken away never
again (a connection that stands is not cut). Keys in its subfolder `admins` may also save and stop the run, and so may
who has the server's own secret key: its standby.
"""

import logging
from pathlib import Path
from typing import Any

import zmq
from zmq.auth.thread import ThreadAuthenticator

from common.errors import SettingsError
from common.sockets.curve import Pair, read_public
from ps_server.shell.keys import ADMINS

log = logging.getLogger("ps-server")


class AccessControl:
    """The lock of one server socket. Opens nothing before `hang`."""

    def __init__(self, own: Pair, authorized: Path) -> None:
        """Raises SettingsError when the folder is none, or holds a file that is no key."""
        if not authorized.is_dir():
            raise SettingsError(f"--authorized-keys {authorized}: there is no such folder; ps-ctl keygen makes one")
        self._own = own
        self._authorized = authorized
        self._admins: set[str] = set()  # keys, as messages name their sender
        self._turned_away = 0
        self._authenticator: ThreadAuthenticator | None = None
        for path in self._files():
            read_public("--authorized-keys", path)

    def install(self, context: zmq.Context[Any], socket: zmq.Socket[Any]) -> None:
        """Lock a socket. To be called before it is bound."""
        self._authenticator = ThreadAuthenticator(context)
        self._authenticator.configure_curve_callback("*", self)
        self._authenticator.start()
        socket.setsockopt(zmq.CURVE_SERVER, 1)
        socket.setsockopt(zmq.CURVE_PUBLICKEY, self._own.public)
        socket.setsockopt(zmq.CURVE_SECRETKEY, self._own.secret)

    def is_admin(self, sender: str) -> bool:
        """Whether this key, as ZeroMQ's User-Id of a message gives it, may save and stop the run."""
        return sender in self._admins

    def close(self) -> None:
        """To be called before the context ends."""
        if self._authenticator is not None:
            self._authenticator.stop()
            self._authenticator = None

    def callback(self, domain: str, key: bytes) -> bool:
        """In the authenticator's thread, at a handshake: whether this key (Z85) may come in."""
        if key == self._own.public:  # our standby, or our primary: they have the same pair
            self._admins = self._admins | {key.decode()}
            return True
        try:
            files = self._files()
        except OSError as error:  # too many are open; raised, it would end the thread: nobody could ever come in again
            log.warning("--authorized-keys %s cannot be read now: %s", self._authorized, error)
            files = []
        for path in files:
            try:
                if read_public("--authorized-keys", path) != key:
                    continue
            except SettingsError as error:
                log.warning("%s", error)
                continue
            # A set of its own each time: the serving thread reads while this one writes.
            admins = self._admins | {key.decode()}
            self._admins = admins if path.parent.name == ADMINS else admins - {key.decode()}
            return True
        self._turned_away += 1
        if self._turned_away & (self._turned_away - 1) == 0:  # 1, 2, 4, …: whoever knocks must not fill the disk
            log.warning("turned away: the key %s is not authorised (%d so far)", key.decode(), self._turned_away)
        return False

    def _files(self) -> list[Path]:
        return sorted([*self._authorized.glob("*.key"), *self._authorized.glob(f"{ADMINS}/*.key")])
