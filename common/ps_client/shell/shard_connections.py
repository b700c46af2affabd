"""
The connections of one worker: one to its server, or one to each of the shards that the server names in WELCOME.

Each connection is whole: a machine, a socket, a resend buffer and slots of its own. A shard that is restarted, or
whose standby is promoted, gets again what it lacks, and the others notice nothing.
"""

import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import numpy as np
from msgspec.structs import replace

from ps_client.machine.handshake import Identity
from ps_client.machine.parameter_client import ParameterClient
from ps_client.shell.remote_parameters import DRAINED, RemoteParameters
from ps_client.shell.stall_watch import StallWatch
from ps_client.shell.zmq_client import GOODBYE_SECONDS, ZmqClient
from ps_common.errors import RunEnded
from ps_common.protocol.lineage import Shard
from ps_common.protocol.messages import Code, Frame, Run, Welcome
from ps_common.protocol.names import as_name, as_text, check_address
from ps_common.protocol.tensors import Schema
from ps_common.run_folder.endpoint_file import typed_addresses
from ps_common.settings.run_spec import Wire
from ps_common.sockets.curve import ClientKeys


@contextmanager
def postponed_interrupt() -> Iterator[None]:
    """A SIGINT in this block is handled at its end. Only the main thread handles signals; elsewhere nothing changes."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    came: list[tuple[int, Any]] = []
    signal.signal(signal.SIGINT, lambda number, frame: came.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    for number, frame in came[:1]:
        handler(number, frame)


class ShardConnections:
    """The connections of one worker, in the order of the shards."""

    def __init__(
        self,
        name: str,
        server: str,
        *,
        proposed_run: Run,
        patience_seconds: float,
        resend_mib: float,
        overrides: Mapping[str, Any] | None = None,
        environments: int = 0,
        keys: ClientKeys | None = None,
        postponing_signals: Callable[[], AbstractContextManager[None]] = postponed_interrupt,
        watch: StallWatch | None = None,
        connection: Callable[..., Any] = ZmqClient,
    ) -> None:
        """Begins to join at once; with 0 `environments` the run decides their number. `connection` makes each."""
        self._identity = partial(
            Identity,
            worker_id=name,
            secret=secrets.token_hex(16),
            host=as_text(socket.gethostname()),
            overrides=dict(overrides or {}),
        )
        self._proposed_run = proposed_run
        self._patience_seconds, self._resend_bytes = patience_seconds, int(resend_mib * 2**20)
        self._connection = partial(connection, keys=keys, postponing_signals=postponing_signals, watch=watch)
        self._environments = environments
        self._code: Mapping[str, Code] = {}  # of the custom parts of the run
        self._server = server
        self._all = [self._connect(server)]

    def _connect(self, server: str, shard: Shard | None = None, first: Welcome | None = None) -> ZmqClient:
        identity = self._identity(
            proposed_run=first.run if first else self._proposed_run,
            shard=shard,
            first_shard=first,
            environments=self._environments,
            code=self._code,
        )
        machine = ParameterClient(
            identity,
            patience_seconds=self._patience_seconds,
            addresses=len(typed_addresses(server)) or 1,
            resend_bytes=self._resend_bytes // (shard.of if shard else 1),
            now=time.monotonic(),
        )
        made: ZmqClient = self._connection(server, machine)
        return made

    def join_with(self, code: Mapping[str, Code], *, environments: int) -> Welcome:
        """
        Join again, and state what the run in the first WELCOME asks for: the code of its custom parts, and the number
        of environments. Raises as `join`.
        """
        self.close("to state its code and its environments")
        self._code, self._environments = code, environments
        self._all = [self._connect(self._server)]
        return self.join()

    def join(self) -> Welcome:
        """
        Join the server, or all shards of its run: first shard 1, whose WELCOME is returned.

        Raises PsRlError, also when a server is not the shard that it should be.
        """
        welcome = self._all[0].welcome.result()
        if not welcome.shard.addresses:
            return welcome
        for address in ",".join(welcome.shard.addresses).split(","):
            check_address("the server's list of shards:", address)
        typed = {welcome.shard.number: self._server}  # maybe by another address than the other shards use
        self.close("to join all shards")
        self._all, first = [], None
        for number, address in enumerate(welcome.shard.addresses, 1):
            shard = replace(welcome.shard, number=number)
            self._all.append(self._connect(typed.get(number, address), shard, first))
            first = first or self._all[0].welcome.result()
        for one in self._all:
            one.machine.links_elsewhere = [other.machine.link_timeout for other in self._all if other is not one]
        for one in self._all:
            one.welcome.result()
        assert first is not None, "there is a shard 1"
        return first

    def parameters(self, schema: Schema, wire: Wire) -> RemoteParameters:
        """The weights of the run that the trainer's network, of this schema, is for. Raises SchemaMismatch."""
        return RemoteParameters(self._all, schema, wire)

    @property
    def is_watched(self) -> bool:
        """Whether somebody watches this worker's game, at whichever shard."""
        return any(one.machine.is_watched for one in self._all)

    def check_drain(self) -> None:
        """Raises RunEnded when this worker is asked to leave; for one that has pushed nothing yet."""
        if self._all[0].machine.is_drained:
            raise RunEnded(DRAINED)

    def check(self) -> None:
        """Raises the error that ended a conversation: RunEnded when the run is over."""
        for one in self._all:
            if one.machine.error is not None:
                raise one.machine.error

    def show(self, frame: Frame) -> None:
        """Send a frame of the game to those who watch it."""
        for one in self._all:
            one.show(frame)

    def shared_array(self, size: int) -> np.ndarray | None:
        """ZmqClient.shared_array of the one server; None with shards: no memory is shared with several at once."""
        return self._all[0].shared_array(size) if len(self._all) == 1 else None

    def close(self, reason: str = "", *, failed: bool = False) -> None:
        """Say GOODBYE everywhere, and end all connections. Shards that are absent are waited for together."""
        for one in self._all:
            one.say_goodbye(reason, failed=failed)
        end = time.monotonic() + GOODBYE_SECONDS
        for one in self._all:
            one.close(seconds=max(0.0, end - time.monotonic()))


def name_of_this_process() -> str:
    """A name for a worker that has none: HOST-PID-RANDOM."""
    return as_name(f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}")
