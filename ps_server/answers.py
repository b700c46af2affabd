"""What peers are told of the run: when they join, when they ask for weights, and when they ask how it is."""

from typing import Any

import msgspec

from common import messages
from common.codecs import CODECS
from common.messages import Hello, NotModified, Pull, PushPull, Settlement, Weights, Welcome
from common.status import Status
from ps_server.effects import Send
from ps_server.guards import codec_for_weights
from ps_server.ledger import Account
from ps_server.membership import PeerId
from ps_server.training_run import TrainingRun


def welcome(hello: Hello, run: TrainingRun, account: Account, *, lease_seconds: float, credit: int) -> Welcome:
    """The answer to who may join."""
    return Welcome(
        request=hello.request,
        protocol=messages.PROTOCOL_VERSION,
        run_id=run.lineage.run_id,
        epoch=run.epoch,
        epoch_proof=run.lineage.proof,
        incarnation=account.incarnation,
        number=account.number,
        run=run.spec.to_dict(),
        schema=run.store.schema.specs if run.store else (),
        version=run.store.version if run.store else 0,
        global_steps=run.progress.global_steps,
        settled_through=account.through,
        reported_through=account.reported,
        lease_seconds=lease_seconds,
        codecs=tuple(CODECS),
        credit=credit,
    )


def newest(
    peer: PeerId, message: Pull | PushPull, run: TrainingRun | None, settled: Settlement | None, *, epoch: int
) -> Send:
    """The newest weights, or the news that the peer has them. Raises Denied."""
    store = run.store if run else None
    is_target = isinstance(message, Pull) and message.target
    version = 0 if store is None else store.target_version if is_target else store.version
    answer: dict[str, Any] = {
        "request": message.request,
        "epoch": epoch,
        "version": version,
        "global_steps": run.progress.global_steps if run else 0,
        "target_version": store.target_version if store else 0,
        "settled": settled,
    }
    codec = codec_for_weights(message.codec if isinstance(message, Pull) else message.weight_codec)
    if store is None or (message.have_epoch, message.have_version) == (epoch, version):
        return Send(peer, NotModified(**answer))
    return Send(peer, Weights(**answer, codec=codec), store.snapshot(codec, target=is_target))


def renewed(send: Send, run: TrainingRun, *, target: bool) -> Send:
    """An answer that carries weights (or target weights), with the newest."""
    assert isinstance(send.message, Weights), "nothing else carries weights"
    store = run.weights
    message = msgspec.structs.replace(
        send.message,
        version=store.target_version if target else store.version,
        global_steps=run.progress.global_steps,
        target_version=store.target_version,
    )
    return Send(send.to, message, store.snapshot(message.codec, target=target))


def how_it_is(peer: PeerId, asked: messages.StatusRequest, run: TrainingRun | None, status: Status) -> Send:
    """The answer to an admin's question."""
    schema = run.store.schema.specs if run and run.store else ()
    spec = run.spec.to_dict() if run else {}
    return Send(peer, messages.StatusReply(request=asked.request, status=status, run=spec, schema=schema))
