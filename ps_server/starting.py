"""
What a server starts from: the run that its folder or its flags tell, in an epoch of its own, which is on disk before
anybody is served.
"""

import logging
import secrets
from typing import Any

from common.curve import ClientKeys
from common.errors import Fenced, Refused, ServerUnreachable, SettingsError, WireError
from common.flags import Parsed
from common.messages import StatusReply, StatusRequest
from common.run_spec import run_from_dict, with_settings
from common.zmq_request import ask
from ps_server.checkpointing import newest_checkpoint
from ps_server.fencing import advice
from ps_server.limits import Limits
from ps_server.lineage import DRAWN, RUN_ID_DIGITS, Lineage
from ps_server.lineage_file import read_lineage, write_lineage
from ps_server.parameter_server import ParameterServer
from ps_server.run_storage import RunStorage
from ps_server.settings import ServerSettings
from ps_server.standby import STANDBY_PHASE, Standby
from ps_server.training_run import TrainingRun

STANDBY_ANSWER_SECONDS = 2.0
MOST_LOST = 16  # runs that one folder remembers to have lost

log = logging.getLogger("ps-server")


def machine_for(
    flags: Parsed[ServerSettings], storage: RunStorage, *, keys: ClientKeys | None, now: float
) -> ParameterServer | Standby:
    """What is to be served. `keys` are what it takes to talk to a standby. Raises PsRlError."""
    settings = flags.program
    limits = Limits(
        lease_seconds=settings.lease_seconds,
        checkpoint_seconds=settings.checkpoint_seconds,
        receive_bytes=int(settings.receive_mib * 2**20),
    )
    draw = secrets.randbelow(DRAWN)
    if settings.standby_of is not None:
        return Standby(
            primary=settings.standby_of, draw=draw, takeover_seconds=settings.takeover_seconds, limits=limits, now=now
        )
    run: TrainingRun | None = None
    if settings.resume is not None:
        run = _resumed(flags, storage, keys=keys, draw=draw, now=now)
        lineage = run.lineage
    else:
        lineage = _begun(storage, rescued=settings.rescue, draw=draw)
        if flags.names_a_run:
            run = TrainingRun(flags.run, lineage, now=now)
    overrides: dict[str, Any] = flags.wishes if run is None else {}
    write_lineage(storage.folder, lineage)
    return ParameterServer(run, lineage=lineage, overrides=overrides, limits=limits, now=now)


def _begun(storage: RunStorage, *, rescued: str | None, draw: int) -> Lineage:
    """
    A new run.

    It goes on with one that was lost, and whose workers may live: that of the same folder, which has no checkpoints any
    more or never had one, or the one that the user names.
    """
    before = read_lineage(storage.folder)
    lost = [rescued] if rescued else []
    if before is not None:
        lost += [before.run_id, *before.continues]
    if lost:
        log.info("workers of run %s, whose checkpoints are lost, may bring the weights that they have", lost[0])
    run_id = secrets.token_hex(RUN_ID_DIGITS // 2)
    return Lineage.begun(run_id, draw=draw, continues=tuple(lost[:MOST_LOST]))


def _resumed(
    flags: Parsed[ServerSettings], storage: RunStorage, *, keys: ClientKeys | None, draw: int, now: float
) -> TrainingRun:
    """The run of the newest sound checkpoint, with what the flags change, in the next epoch."""
    path, vectors, record = newest_checkpoint(storage.folder, storage.checkpoints)
    kept = run_from_dict(record["run"], source=str(path))
    spec = with_settings(kept, flags.wishes, source="flags")
    if spec.optimizer.__class__ is not kept.optimizer.__class__:
        raise SettingsError("--optimizer: a resumed run keeps its optimizer and what it remembers; leave it out")
    run = TrainingRun.restored(vectors, record | {"run": spec.to_dict()}, now=now)
    _check_standby(run, keys=keys)
    newest = read_lineage(storage.folder)
    if newest is not None and newest.run_id == run.lineage.run_id and newest.epoch > run.epoch:
        run.lineage = newest
    run.lineage = run.lineage.resumed(draw=draw)
    log.info("resumed %s at step %d", path, run.progress.global_steps)
    return run


def _check_standby(run: TrainingRun, *, keys: ClientKeys | None) -> None:
    """Raises Fenced when the standby of this run has taken over."""
    if not run.standby:
        return
    try:
        reply, _ = ask(run.standby, StatusRequest(request=1), timeout_seconds=STANDBY_ANSWER_SECONDS, keys=keys)
    except (ServerUnreachable, Refused, WireError) as error:
        log.warning("the standby %s cannot be asked whether it has taken over; starting: %s", run.standby, error)
        return
    assert isinstance(reply, StatusReply), "a question for the status is answered by it"
    serves = reply.status.phase != STANDBY_PHASE and reply.status.run_id == run.lineage.run_id
    if serves and reply.status.epoch > run.epoch:
        raise Fenced(advice(run.standby))
