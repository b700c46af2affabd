"""
The connections of one worker: one to its server, or one to each of the shards that the server names in WELCOME.

Each connection is whole: a machine, a socket, a resend buffer and slots of its own. A shard that is restarted or taken
over gets again what it lacks, and the others notice nothing.
"""

import os
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from msgspec.structs import replace

from ps_client.machine.identity import Identity
from ps_client.machine.parameter_client import ParameterClient
from ps_client.machine.stall_watch import StallWatch
from ps_client.shell.remote_parameters import DRAINED, RemoteParameters
from ps_client.shell.sharded_parameters import ShardedParameters
from ps_client.shell.zmq_client import ZmqClient
from ps_common.errors import RunEnded
from ps_common.protocol.messages import Code, Frame, Run, Welcome
from ps_common.protocol.names import as_name, as_text
from ps_common.protocol.shards import Shard
from ps_common.protocol.tensors import Schema
from ps_common.settings.run_spec import Wire
from ps_common.sockets.curve import ClientKeys


@dataclass(frozen=True)
class Connection:
    """One connection: its shell and its machine."""

    client: ZmqClient
    machine: ParameterClient


@dataclass(frozen=True, kw_only=True)
class Opening:
    """How a connection is opened: to which server of the run."""

    server: str
    shard: Shard | None = None  # which one it is, once that is known
    first_shard: Welcome | None = None  # of shard 1, for the others, whose run it is
    code: Mapping[str, Code] = field(default_factory=dict)  # of the run's own parts, once it is known


class Connections:
    """The connections of one worker, in the order of the shards."""

    def __init__(self, server: str, connect: Callable[[Opening], Connection]) -> None:
        """`connect` opens a connection, which begins to join at once."""
        self._server = server
        self._connect = connect
        self._code: Mapping[str, Code] = {}
        self._all = [connect(Opening(server=server))]

    def join_with(self, code: Mapping[str, Code]) -> Welcome:
        """Join again, and state the code of the run's own parts, which the first WELCOME named. Raises as `join`."""
        self.close("to state its code")
        self._code = code
        self._all = [self._connect(Opening(server=self._server, code=code))]
        return self.join()

    def join(self) -> Welcome:
        """
        Join the server, or all shards of its run: first shard 1, whose WELCOME is returned.

        Raises PsRlError, also when a server is not the shard that it should be.
        """
        welcome = self._all[0].client.welcome.result()
        if not welcome.shard.addresses:
            return welcome
        typed = {welcome.shard.number: self._server}  # the user may reach it by another address than the other shards
        self.close("to join all shards")
        self._all, first = [], None
        for number, address in enumerate(welcome.shard.addresses, 1):
            server, shard = typed.get(number) or address, replace(welcome.shard, number=number)
            opening = Opening(server=server, shard=shard, first_shard=first, code=self._code)
            self._all.append(self._connect(opening))
            first = first or self._all[0].client.welcome.result()
        assert first is not None, "there is a shard 1"
        for connection in self._all:
            connection.client.welcome.result()
        return first

    def parameters(self, schema: Schema, wire: Wire) -> RemoteParameters | ShardedParameters:
        """The weights of the run that the trainer's network, of this schema, is for. Raises SchemaMismatch."""
        if len(self._all) == 1:
            return RemoteParameters(self._all[0].client, self._all[0].machine, schema, wire)
        parts = [
            RemoteParameters(one.client, one.machine, schema.of_shard(number, len(self._all)), wire)
            for number, one in enumerate(self._all, 1)
        ]
        return ShardedParameters(parts, schema)

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
            one.client.show(frame)

    def shared_array(self, size: int) -> np.ndarray | None:
        """As ZmqClient's. No memory is shared with several shards at once: each range is copied to its shard."""
        return self._all[0].client.shared_array(size) if len(self._all) == 1 else None

    def close(self, reason: str = "") -> None:
        """Say GOODBYE everywhere, and end all connections."""
        for one in self._all:
            one.client.say_goodbye(reason)
        for one in self._all:
            one.client.close()


def name_of_this_process() -> str:
    """A name for a worker that has none: HOST-PID-RANDOM."""
    return as_name(f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}")


def connections_of(
    name: str,
    server: str,
    *,
    proposed_run: Run,
    overrides: dict[str, Any],
    environments: int,
    keys: ClientKeys | None,
    patience_seconds: float,
    resend_mib: float,
    postponing_signals: Callable[[], AbstractContextManager[None]],
    watch: StallWatch | None = None,
) -> Connections:
    """The connections of a new worker, which joins at once; with 0 `environments` the run decides their number."""
    secret = secrets.token_hex(16)

    def connect(opening: Opening) -> Connection:
        identity = Identity(
            worker_id=name,
            secret=secret,
            overrides=overrides,
            proposed_run=opening.first_shard.run if opening.first_shard else proposed_run,
            host=as_text(socket.gethostname()),
            environments=environments,
            shard=opening.shard,
            first_shard=opening.first_shard,
            code=opening.code,
        )
        machine = ParameterClient(
            identity,
            patience_seconds=patience_seconds,
            addresses=len(opening.server.split(",")),
            resend_bytes=int(resend_mib * 2**20) // (opening.shard.of if opening.shard else 1),
            now=time.monotonic(),
        )
        shell = ZmqClient(opening.server, machine, keys=keys, postponing_signals=postponing_signals, watch=watch)
        return Connection(shell, machine)

    return Connections(server, connect)
