"""
Access control (ZAP) of a locked server: a peer may connect if its public key is in the folder of authorised keys.

The folder is read at every handshake: a new key may connect at once, a removed key never again (an open connection is
not cut). Keys in the subfolder `admins` may also save and stop the run. So may the server's own key, which its standby
has.
"""

import logging
from collections import Counter
from pathlib import Path
from typing import Any

import zmq
from zmq.auth.thread import ThreadAuthenticator

from ps_common.errors import SettingsError
from ps_common.sockets.curve import ADMINS, ClientKeys, Pair, read_public

log = logging.getLogger("ps-server")


class AccessControl:
    """CURVE and ZAP of one server socket. Opens nothing before `install`."""

    def __init__(self, own: Pair, authorized: Path) -> None:
        """Raises SettingsError when there is no such folder, or a file in it is no key."""
        if not authorized.is_dir():
            raise SettingsError(f"--authorized-keys {authorized}: there is no such folder; ps-ctl keygen makes one")
        self._own = own
        self.server_keys = ClientKeys(own.public, own)  # to the other servers of the run: all have the same pair
        self._authorized = authorized
        self._admins: set[str] = set()  # keys, as the User-Id of a message names them
        self._refused = 0
        self._troubles: Counter[str] = Counter()  # how often each sentence on files that cannot be read came up
        self._authenticator: ThreadAuthenticator | None = None
        for path in self._files():
            read_public("--authorized-keys", path)

    def install(self, context: zmq.Context[Any], socket: zmq.Socket[Any]) -> None:
        """Lock a socket before it is bound."""
        self._authenticator = ThreadAuthenticator(context)
        self._authenticator.configure_curve_callback("*", self)
        self._authenticator.start()
        socket.setsockopt(zmq.CURVE_SERVER, 1)
        socket.setsockopt(zmq.CURVE_PUBLICKEY, self._own.public)
        socket.setsockopt(zmq.CURVE_SECRETKEY, self._own.secret)

    def is_admin(self, sender: str) -> bool:
        """Whether the key in the User-Id of a message may save and stop the run."""
        return sender in self._admins

    def close(self) -> None:
        """To be called before the context ends."""
        if self._authenticator is not None:
            self._authenticator.stop()
            self._authenticator = None

    def callback(self, domain: str, key: bytes) -> bool:
        """
        Whether this key (Z85) may connect. Called at each handshake, in the authenticator's thread: an error would end
        that, and lock everybody out.
        """
        try:
            return self._may_connect(key)
        except Exception as error:
            self._warn(f"--authorized-keys {self._authorized} cannot be read now: {error!r}")
            return False

    def _may_connect(self, key: bytes) -> bool:
        if key == self._own.public:  # our standby or primary, which has the same pair
            self._admins = self._admins | {key.decode()}
            return True
        for path in self._files():
            try:
                if read_public("--authorized-keys", path) != key:
                    continue
            except SettingsError as error:
                self._warn(str(error))
                continue
            # Replaced, never changed: the serving thread reads the set meanwhile.
            admins = self._admins | {key.decode()}
            self._admins = admins if path.parent.name == ADMINS else admins - {key.decode()}
            return True
        self._refused += 1
        if _is_power_of_two(self._refused):
            log.warning("connection refused: the key %s is not authorised (%d so far)", key.decode(), self._refused)
        return False

    def _warn(self, sentence: str) -> None:
        self._troubles[sentence] += 1
        if _is_power_of_two(self._troubles[sentence]):
            log.warning("%s (%d times so far)", sentence, self._troubles[sentence])

    def _files(self) -> list[Path]:
        return sorted([*self._authorized.glob("*.key"), *self._authorized.glob(f"{ADMINS}/*.key")])


def _is_power_of_two(count: int) -> bool:
    """1, 2, 4, …: attempts of strangers must not fill the disk with lines."""
    return count & (count - 1) == 0
