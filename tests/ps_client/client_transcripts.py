"""Helpers for the tests of the worker's machine: the test is the server, and the clock."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ps_client.machine.effects import Effect, Fail, Joined, LogLine, Reconnect, Resolve, Transmit
from ps_client.machine.handshake import Identity
from ps_client.machine.parameter_client import ParameterClient
from ps_common.protocol import messages
from ps_common.protocol.lineage import Shard
from ps_common.protocol.messages import ToServer, Welcome
from ps_common.protocol.tensors import Schema, TensorSpec

SCHEMA = Schema([TensorSpec("w", (2,))])
RUN: dict[str, Any] = {
    "preset": "cartpole",
    "environment": {"id": "CartPole-v1"},
    "algorithm": {"name": "a3c"},
    "network": {"name": "mlp"},
    "budget": {"max_steps": 1000},
}
RUN_ID = "0123"
PROOF = "what proves the epoch"
LEASE_SECONDS = 5.0
PATIENCE_SECONDS = 60.0
RESEND_BYTES = 10**9


def vector(*values: float) -> list[memoryview]:
    """A vector's bytes, as in frames."""
    return [np.array(values, dtype=np.float32).data.cast("B")]


def new_client(
    *,
    now: float = 0.0,
    overrides: dict[str, Any] | None = None,
    patience_seconds: float = PATIENCE_SECONDS,
    resend_bytes: int = RESEND_BYTES,
    addresses: int = 1,
    shard: Shard | None = None,
) -> ParameterClient:
    return ParameterClient(
        Identity(
            worker_id="w",
            secret="0123456789abcdef",
            overrides=overrides or {},
            proposed_run={"preset": "proposed"},
            host="here",
            environments=8,
            shard=shard,
        ),
        patience_seconds=patience_seconds,
        resend_bytes=resend_bytes,
        addresses=addresses,
        now=now,
    )


def sent(effects: Sequence[Effect]) -> list[ToServer]:
    """The messages that are sent. Other effects may only be joining, reconnecting and log lines."""
    assert all(isinstance(effect, Transmit | Joined | Reconnect | LogLine) for effect in effects), effects
    return [effect.message for effect in effects if isinstance(effect, Transmit)]


def kinds(effects: Sequence[Effect]) -> list[type]:
    """The types of messages that are sent, and of other effects, in order."""
    return [type(effect.message) if isinstance(effect, Transmit) else type(effect) for effect in effects]


def hello_of(effects: Sequence[Effect]) -> messages.Hello:
    (hello,) = [message for message in sent(effects) if isinstance(message, messages.Hello)]
    return hello


def welcome(request: int, **changes: Any) -> Welcome:
    fields: dict[str, Any] = {
        "protocol": 1,
        "epoch": 1,
        "epoch_proof": PROOF,
        "number": 0,
        "run": RUN,
        "schema": (),
        "version": 0,
        "run_id": RUN_ID,
        "incarnation": 1,
        "global_steps": 0,
        "settled_through": 0,
        "reported_through": 0,
        "lease_seconds": LEASE_SECONDS,
        "codecs": ("float32",),
    }
    return Welcome(request=request, **fields | changes)


def join(client: ParameterClient, *, now: float = 0.0, **changes: Any) -> list[Effect]:
    """HELLO and WELCOME; the effects of the latter. A server without weights is joined when no other has the run."""
    while kinds(effects := client.receive(welcome(hello_of(client.tick(now=now)).request, **changes), now=now)) == [
        Reconnect
    ]:
        pass
    return effects


def joined_client(
    *, now: float = 0.0, resend_bytes: int = RESEND_BYTES, addresses: int = 1, **changes: Any
) -> ParameterClient:
    """A client that has joined and seeded."""
    client = new_client(now=now, resend_bytes=resend_bytes, addresses=addresses)
    join(client, now=now, **changes)
    ticket, _ = client.seed(SCHEMA, "float32", vector(0, 0), now=now)
    client.receive(messages.Seeded(request=ticket, accepted=True, version=1), now=now)
    return client


def push(client: ParameterClient, *values: float, now: float = 0.0, computed_on: int = 1) -> tuple[int, list[Effect]]:
    fields: dict[str, Any] = {"epoch": 1, "computed_on": computed_on, "steps": 20, "weight_codec": "float32"}
    return client.push("float32", vector(*values), **fields, now=now)


def weights(request: int, *, version: int = 2, epoch: int = 1) -> messages.Weights:
    return messages.Weights(request=request, epoch=epoch, version=version, global_steps=20)


def alive(request: int) -> messages.Alive:
    return messages.Alive(request=request, epoch=1, version=1, global_steps=0, durable=0)


def unknown_worker(request: int) -> messages.Refused:
    return messages.Refused(request=request, code="unknown_worker", reason="send HELLO first, on this connection")


def resolved(effects: Sequence[Effect]) -> list[int]:
    """The tickets whose calls have their reply."""
    return [effect.ticket for effect in effects if isinstance(effect, Resolve)]


def failure(effects: Sequence[Effect]) -> Fail:
    """The only effect: calls fail."""
    (fail,) = effects
    assert isinstance(fail, Fail)
    return fail
