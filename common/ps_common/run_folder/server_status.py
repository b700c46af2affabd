"""A worker's machine asks the server for its status, before it joins or beside its workers. No reply is no error."""

import contextlib
import time
from collections.abc import Callable

from ps_common.errors import PsRlError
from ps_common.protocol import messages
from ps_common.run_folder.server_address import ServerAddress
from ps_common.sockets.request import ask
from rl_worker.settings import WorkerSettings

REPLY_SECONDS = 2.0  # until such a request has failed
STANDBY_PHASE = "standby"


def status_asker(settings: WorkerSettings) -> Callable[[], messages.StatusReply | None]:
    """A function that requests the status of the run; None when nobody who serves it replies."""
    address, keys = ServerAddress(settings.server), settings.client_keys()

    def ask_status() -> messages.StatusReply | None:
        if address.has_moved(now=time.monotonic()):
            address.advance()
        for one in address.known:
            with contextlib.suppress(PsRlError):  # the workers say so, too
                reply, _ = ask(one, messages.StatusRequest(request=1), timeout_seconds=REPLY_SECONDS, keys=keys)
                if isinstance(reply, messages.StatusReply) and reply.status.phase != STANDBY_PHASE:
                    return reply
        return None

    return ask_status
