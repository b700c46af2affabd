"""
Admission: which process may join a run under which worker id, and how the first worker's proposal becomes the run.

A process draws a secret when it starts, and shows it in each HELLO. The server numbers the processes of a worker id in
order of joining; that number is the incarnation. Of a secret it keeps a hash alone: no checkpoint and no standby holds
the secret. A worker id belongs to the process that joined last. When its lease has ended, another process may take its
place and supersede it. Where keys are asked for, a worker id stays with the first key that used it until its worker was
silent for a day.
"""

import hashlib
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from ps_common.errors import SettingsError
from ps_common.protocol.codecs import CODEC_NAMES
from ps_common.protocol.lineage import Lineage
from ps_common.protocol.messages import PROTOCOL_VERSION, Hello, Opened, Welcome
from ps_common.protocol.record import Account
from ps_common.release import beside, of_other, release
from ps_common.settings.overrides import contradiction
from ps_common.settings.run_settings import run_for_peers, run_from_dict, with_settings
from ps_common.settings.run_spec import RunSpec
from ps_server.machine.parts import Parts, Request
from ps_server.state.effects import Effect, LogLine, Send
from ps_server.state.guards import Denied
from ps_server.state.training_run import TrainingRun

MAX_WORKERS = 100_000  # worker ids of one run, heard of in the last day
SAME_CODE = "bring the same source to all hosts; after a change on purpose, resume the server with --new-code"


def run_for(hello: Hello, run: TrainingRun | None, lineage: Lineage, *, overrides: dict[str, Any]) -> TrainingRun:
    """
    The run that this worker is to train. Raises Denied.

    While `run` is None the worker is the first: its proposed_run, with the server's own flags on top, is the run.
    `overrides` are these flags, as flat settings.
    """
    if not lineage.is_of(hello.run_id):
        raise Denied(
            "other_run",
            f"this server has run {lineage.run_id}, and {hello.worker_id} is of run {hello.run_id}: start the worker "
            "anew, or resume its run here (ps-server --resume)",
        )
    lowest, highest = hello.protocols
    if not lowest <= PROTOCOL_VERSION <= highest:
        raise Denied(
            "protocol",
            f"this server speaks protocol {PROTOCOL_VERSION}, the worker {lowest} to {highest}"
            + beside("the worker", hello.release, here="this server"),
        )
    if "float32" not in hello.codecs:
        raise Denied("unknown_codec", f"float32 is required, and the worker speaks only {', '.join(hello.codecs)}")
    spec = run.spec if run else _decide(hello, overrides)
    adjusted = run.adjustments.settings if run else ()
    is_first = lineage.shard.number == 1  # shard 1 alone knows the settings of this moment
    if is_first and (sentence := contradiction(spec, hello.overrides, adjusted=adjusted)):
        raise Denied("contradiction", sentence)
    for module, code in hello.code.items():
        first = run.code.get(module, code) if run else code
        if first.hash != code.hash:
            differs = f"{module} of this run is {first.hash} ({first.place}), and differs from {code.hash}"
            where = f"({code.place}) of {hello.worker_id} on {hello.host or 'its host'}"
            raise Denied("other_code", f"{differs} {where}: {SAME_CODE}")
    return run or TrainingRun(spec, lineage)


MOST_RUN_BYTES = 2**15  # of the settings in a message: a status has those of the run beside its workers and its schema


def _decide(hello: Hello, overrides: dict[str, Any]) -> RunSpec:
    try:
        proposed = run_from_dict(hello.proposed_run or {}, source=f"worker {hello.worker_id}")
        if proposed.start_from:
            raise SettingsError(f"--start-from {proposed.start_from}: the server reads it; give it to ps-server")
        spec = with_settings(proposed, overrides, source="ps-server's flags")
        if len(msgspec.msgpack.encode(run_for_peers(spec))) > MOST_RUN_BYTES:
            raise SettingsError(f"the settings of the run take more than {MOST_RUN_BYTES} bytes: no reply carries them")
        return spec
    except SettingsError as error:
        raise Denied("bad_run", str(error)) from error


# A restored server may not know the newest incarnations, so it accepts higher ones, but at most so much higher: a claim
# of the highest number would leave none for later processes.
FURTHEST = 1000


def proof_of(secret: str) -> str:
    """The hash that is kept of a secret: half of its SHA-256, in hexadecimal digits."""
    return hashlib.sha256(secret.encode()).hexdigest()[:32]


def incarnation_of(
    hello: Hello, account: Account | None, *, key: str, owner_lives: bool, may_return: bool, superseded: int
) -> int:
    """
    The incarnation of the process that sent this HELLO. Raises Denied when the worker id belongs to another.

    `account` is that of the newest process of this worker id; `owner_lives` says whether its lease may still run, and
    `may_return` whether it was heard of in the last day. Processes up to the incarnation `superseded` were forgotten.
    """
    name = hello.worker_id
    if account is None:
        if 0 < hello.incarnation <= superseded:
            raise Denied("superseded", f"{name} was silent for so long that the run has forgotten it; start it anew")
        if owner_lives:
            reason = f"a process named {name} may have joined after the state that this server was restarted from"
            raise Denied("name_taken", f"{reason}; names that it does not know are free after the length of a lease")
        return max(superseded + 1, min(hello.incarnation, superseded + FURTHEST))
    if key and account.key and key != account.key and may_return:
        raise Denied("not_yours", f"the name {name} belongs to a worker with another key; take another --name")
    if account.proof == proof_of(hello.secret):
        return account.incarnation
    if 0 < hello.incarnation <= account.incarnation:
        raise Denied("superseded", f"a newer process named {name} has joined; give each worker its own --name")
    if owner_lives:
        reason = f"a process named {name} has joined and may be alive; this one can take its place when its lease has"
        raise Denied("name_taken", f"{reason} ended. Give each worker its own --name")
    return max(account.incarnation + 1, min(hello.incarnation, account.incarnation + FURTHEST))


def hello(parts: Parts, request: Request[Hello]) -> list[Effect]:
    """Reply WELCOME to a HELLO. Raises Denied when the worker is of another run, or its id belongs to another."""
    message = request.message
    if parts.first_shard.is_followed and not message.first_shard:
        return [Send(request.peer, welcome(message, parts.lineage, lease_seconds=parts.membership.lease_seconds))]
    run = run_for(message, parts.run, parts.lineage, overrides=parts.overrides)
    if run is not parts.run:
        parts.decide(run)
    return _join(parts, run, request)


def _join(parts: Parts, run: TrainingRun, request: Request[Hello]) -> list[Effect]:
    """Make a member of the process: give it an incarnation, an account, a lease and credit."""
    message, peer, now, worker = request.message, request.peer, request.now, request.message.worker_id
    before = run.ledger.accounts.get(worker)
    opened = _opened(parts, run, request, before)
    parts.pushes.gate.drop(worker)
    is_proven = run.lineage.proves(message.latest_epoch, message.epoch_proof)
    lost = run.ledger.lacking(worker, opened.proof, oldest=message.oldest, is_proven=is_proven)
    account = run.join(worker, opened)
    joining = replace(message, environments=opened.environments, incarnation=opened.incarnation)
    is_back = parts.membership.join(joining, peer, number=account.number, now=now)
    line = LogLine(f"{worker} {'is back' if is_back else 'joined'}{of_other(message.release)}", worker_id=worker)
    effects: list[Effect] = [Send(peer, _welcome(parts, run, message, account)), line]
    if lost:
        sentence = f"{worker} has dropped {lost} pushes that this server lacks"
        effects.append(LogLine(sentence, warning=True, worker_id=worker))
    return effects


def _opened(parts: Parts, run: TrainingRun, request: Request[Hello], before: Account | None) -> Opened:
    """The account that the process is admitted to. Raises Denied."""
    message, now, worker = request.message, request.now, request.message.worker_id
    if run.adjustments.drained and (before is None or before.proof != proof_of(message.secret)):
        raise Denied("drained", "this run is drained, and admits no worker before ps-ctl resume")
    incarnation = incarnation_of(
        message,
        before,
        key=request.key,
        owner_lives=parts.membership.may_live(worker, now=now) and _may_have_an_owner(run, message),
        may_return=parts.membership.may_return(worker, now=now),
        superseded=run.ledger.superseded,
    )
    if before is None and not parts.membership.allowances.allow(request.key or request.peer, "name", now=now):
        whose = "key" if request.key else "connection"
        raise Denied("too_many_workers", f"too many new names of one {whose}; take one that the run knows")
    return Opened(
        incarnation=incarnation,
        proof=proof_of(message.secret),
        key=request.key,
        oldest=message.oldest,
        environments=message.environments or run.spec.environment.envs,
        code=message.code,
        # Rounds take the pushes in order of these numbers: all shards have to agree on them.
        number=message.number if run.shard.number > 1 else None,
        forgotten=_forget(parts, run, now=now) if before is None else (),
    )


def _forget(parts: Parts, run: TrainingRun, *, now: float) -> tuple[str, ...]:
    """The workers that are forgotten for a new name. Raises Denied when there is no place for it all the same."""
    forgotten = run.ledger.to_forget(partial(parts.membership.may_return, now=now))
    if len(run.ledger.accounts) - len(forgotten) >= MAX_WORKERS:
        reason = f"this run has heard of {MAX_WORKERS} workers in the last day; start one under a name it knows"
        raise Denied("too_many_workers", reason)
    for name in forgotten:
        parts.membership.forget(name)
        parts.pushes.gate.drop(name)
    return tuple(forgotten)


def _welcome(parts: Parts, run: TrainingRun, message: Hello, account: Account) -> Welcome:
    # One vector at first: other workers may join at once, and the first reply brings the even share.
    credit = parts.pushes.credit()
    return welcome(
        message,
        run.lineage,
        lease_seconds=parts.membership.lease_seconds,
        incarnation=account.incarnation,
        number=account.number,
        run=run_for_peers(run.spec),
        schema=run.store.schema.specs if run.store else (),
        version=parts.version,
        global_steps=run.progress.global_steps,
        settled_through=account.through,
        reported_through=account.reported,
        credit=min(credit, parts.pushes.vector_bytes or credit),
        settings_version=run.adjustments.version,
        first_shard=run.first_shard,
        drained=run.adjustments.drained,
    )


def _may_have_an_owner(run: TrainingRun, hello: Hello) -> bool:
    """Whether another process may have the name of this one, as far as accounts tell."""
    account = run.ledger.accounts.get(hello.worker_id)
    if account is not None:
        return not account.left
    # A process with an incarnation was admitted by a server of this run: a name that is unknown here is its own.
    return run.may_lack_workers and not hello.incarnation


_NOTHING: dict[str, Any] = {"run": {}, "schema": ()} | dict.fromkeys(
    ("incarnation", "number", "version", "global_steps", "settled_through", "reported_through"), 0
)


def welcome(hello: Hello, lineage: Lineage, *, lease_seconds: float, **admitted: Any) -> Welcome:
    """
    The reply to a HELLO. `admitted` are the fields for a worker that is.

    A shard after the first replies without them to a worker that has not joined shard 1, which needs its address first.
    """
    return Welcome(
        request=hello.request,
        protocol=PROTOCOL_VERSION,
        run_id=lineage.run_id,
        epoch=lineage.epoch,
        epoch_proof=lineage.proof,
        shard=lineage.shard,
        lease_seconds=lease_seconds,
        codecs=CODEC_NAMES,
        release=release(),
        **(_NOTHING | admitted),
    )
