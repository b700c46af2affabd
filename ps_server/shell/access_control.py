"""
Access control (ZAP) of a locked server: a peer may connect if its public key is in the folder of authorised keys.

A new key may connect at once, a removed key never again, and what comes on its open connections is ignored within
LOOK_SECONDS. Keys in the subfolder `admins` may also adjust, save and stop the run, as long as they are there. So may
the server's own key, which its standby has.
"""

import logging
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import zmq
from zmq.auth.thread import ThreadAuthenticator

from ps_common.sockets.curve import ClientKeys, Pair
from ps_server.shell.authorized_keys import LOOK_SECONDS, AuthorizedKeys

log = logging.getLogger("ps-server")


class AccessControl:
    """CURVE and ZAP of one server socket. Opens nothing before `install`."""

    def __init__(self, own: Pair, authorized: Path) -> None:
        """Raises SettingsError when there is no such folder, or a file in it is no key."""
        self._own = own
        self.server_keys = ClientKeys(own.public, own)  # to the other servers of the run: all have the same pair
        self._authorized = authorized
        self._refused = 0
        self._troubles: Counter[str] = Counter()  # how often each sentence on files that cannot be read came up
        self._keys = AuthorizedKeys(authorized, self._warn)
        self._authenticator: ThreadAuthenticator | None = None
        self._closed = threading.Event()

    def install(self, context: zmq.Context[Any], socket: zmq.Socket[Any]) -> None:
        self._authenticator = ThreadAuthenticator(context)
        self._authenticator.configure_curve_callback("*", self)
        self._authenticator.start()
        threading.Thread(target=self._watch, name="authorized-keys", daemon=True).start()
        socket.setsockopt(zmq.CURVE_SERVER, 1)
        socket.setsockopt(zmq.CURVE_PUBLICKEY, self._own.public)
        socket.setsockopt(zmq.CURVE_SECRETKEY, self._own.secret)

    def is_admin(self, sender: str) -> bool:
        """Whether the key in the User-Id of a message may save and stop the run at this moment."""
        return sender == self._own.public.decode() or self._rights().get(sender, False)

    def is_authorised(self, sender: str) -> bool:
        """Whether the key in the User-Id of a message was authorised at the newest look. Touches no file."""
        return sender in self._keys.newest or sender == self._own.public.decode()

    def close(self) -> None:
        """To be called before the context ends."""
        self._closed.set()
        if self._authenticator is not None:
            self._authenticator.stop()
            self._authenticator = None

    def callback(self, domain: str, key: bytes) -> bool:
        """
        Whether this key (Z85) may connect. Called at each handshake, in the authenticator's thread: an error would end
        that, and lock everybody out.
        """
        sender = key.decode()
        if sender == self._own.public.decode() or sender in self._rights():  # our standby or primary has the same pair
            return True
        self._refused += 1
        if _is_power_of_two(self._refused):
            log.warning("connection refused: the key %s is not authorised (%d so far)", sender, self._refused)
        return False

    def _watch(self) -> None:
        """The serving thread must not wait for a file system at each message."""
        while not self._closed.wait(LOOK_SECONDS):
            self._rights()

    def _rights(self) -> Mapping[str, bool]:
        """The keys in the folder now; none while it cannot be read, and open connections of workers go on then."""
        try:
            return self._keys.rights()
        except OSError as error:
            self._warn(f"--authorized-keys {self._authorized} cannot be read now: {error}")
            return {}

    def _warn(self, sentence: str) -> None:
        self._troubles[sentence] += 1
        if _is_power_of_two(self._troubles[sentence]):
            log.warning("%s (%d times so far)", sentence, self._troubles[sentence])


def _is_power_of_two(count: int) -> bool:
    """1, 2, 4, …: attempts of strangers must not fill the disk with lines."""
    return count & (count - 1) == 0
