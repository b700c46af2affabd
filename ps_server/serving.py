"""The parts of `ps-server` that its flags ask for, and serving until the run ends or a signal comes."""

import contextlib
import logging
import re
import sys
from pathlib import Path

import msgspec
import torch

from ps_common.errors import CheckpointError, Fenced, SettingsError
from ps_common.program.flags import Parsed
from ps_common.program.reasons import reason_of, report_reason
from ps_common.program.resources import flush_denormals
from ps_common.program.running_clock import RunningClock
from ps_common.program.stop_signals import StopSignal
from ps_common.protocol.names import as_text, is_loopback, join_address
from ps_common.protocol.status import Status
from ps_common.run_folder.commands import keep_command
from ps_common.run_folder.paths import (
    LINEAGE,
    make_run_folder,
)
from ps_common.settings.run_settings import flag_of
from ps_common.sockets.curve import read_pair
from ps_common.sockets.zmq_sockets import take_every_descriptor_allowed
from ps_server.machine.parameter_server import ParameterServer
from ps_server.records.run_records import RunRecords
from ps_server.settings import ServerSettings
from ps_server.shell.access_control import AccessControl
from ps_server.shell.server_sockets import is_own, own_host
from ps_server.shell.zmq_server import ZmqServer
from ps_server.standby.standby import Standby
from ps_server.starting import machine_for, successor_of
from ps_server.storage.arbiter import Arbiter
from ps_server.storage.checkpoint_store import CheckpointStore
from ps_server.storage.checkpoint_writer import CheckpointWriter
from ps_server.storage.earlier_life import newest_checkpoint, write_lineage
from ps_server.storage.run_storage import RunStorage
from ps_server.storage.shard_folders import check_no_others, folder_of_shard

PROGRAM = "ps-server"

UNLOCKED = (
    "anybody who reaches this port can read the weights and push gradients, and nothing is encrypted. To lock it: "
    "ps-ctl keygen keys; then ps-server --curve-secret keys/server.key_secret --authorized-keys keys/authorized"
)

log = logging.getLogger(PROGRAM)


def serve_run(flags: Parsed[ServerSettings]) -> Parsed[ServerSettings] | None:
    """
    Serve until the run ends or a signal comes. Raises PsRlError for errors that the user can fix.

    Returns the flags with which this program goes on, as the standby of a server that serves the run of its
    address; else None.
    """
    settings = flags.program
    flush_denormals()
    torch.set_num_threads(settings.threads)
    take_every_descriptor_allowed()
    stop = StopSignal(raises=True)
    access_control = None
    if settings.curve_secret is not None and settings.authorized_keys is not None:  # they go together
        access_control = AccessControl(read_pair("--curve-secret", settings.curve_secret), settings.authorized_keys)
    with contextlib.closing(storage_for(flags)) as storage:
        keys = access_control.server_keys if access_control is not None else None
        if successor := successor_of(settings, storage, keys=keys):
            follows = settings.following(successor, storage.folder, port=settings.port)
            return Parsed(follows, flags.run, overrides={})
        clock = RunningClock()
        machine = machine_for(flags, storage, keys=keys, now=clock.now())
        with stop.postponed():  # from here on the server itself leaves in order
            follower = _serve(machine, storage, settings, access_control, stop, clock)
    return None if follower is None else Parsed(follower, flags.run, overrides={})


def _serve(
    machine: ParameterServer | Standby,
    storage: RunStorage,
    settings: ServerSettings,
    access_control: AccessControl | None,
    stop: StopSignal,
    clock: RunningClock,
) -> ServerSettings | None:
    """Serve until the run ends or a signal comes, then save the run. Returns settings to follow another server with."""
    shell = _shell(machine, storage, settings, access_control, clock)
    host = settings.advertise or own_host(settings.host, shell.host)
    address = join_address(host, shell.port)
    if isinstance(machine, Standby):
        machine.address = address
    print(settings.first_line(shell.host, address), flush=True)
    if access_control is None and not is_loopback(host):
        log.warning(UNLOCKED)
    records = _records(machine, shell, storage.folder, endpoint=address)
    report_reason("serves", address)
    if settings.resume is None:
        keep_command(storage.folder, PROGRAM)
    try:
        shell.serve(leaving=stop.is_set, on_tick=records.tick, on_record=records.add)
    finally:
        mark_replaced(shell.served, storage)  # before the last checkpoint, which may take a minute
        if not shell.close() & records.close(_last_status(machine, now=clock.now())):
            storage.keep()
    if shell.served is None:
        return None
    if primary := shell.served.ending.gives_way_to:
        (storage.folder / LINEAGE).unlink()  # the lineage of the run that is not begun
        return settings.following(primary, storage.folder, port=shell.port)
    check_saved(shell.served, storage)
    return None


def _last_status(machine: ParameterServer | Standby, *, now: float) -> Status:
    """The status at the end; of an error that is on its way it is the end of the run, unless that has ended before."""
    status, error = machine.status(now=now), sys.exception()
    if status.ending or not isinstance(error, Exception):
        return status
    return msgspec.structs.replace(status, ending=as_text(reason_of(error)), failed=True)


def _shell(
    machine: ParameterServer | Standby,
    storage: RunStorage,
    settings: ServerSettings,
    access_control: AccessControl | None,
    clock: RunningClock,
) -> ZmqServer:
    writer = CheckpointWriter(
        storage.checkpoints, storage.store, begin_life=storage.begin_life if settings.standby_of else None
    )
    try:
        shell = ZmqServer(
            machine,
            writer,
            host=settings.host,
            port=settings.port,
            receive_bytes=int(settings.receive_mib * 2**20),
            access_control=access_control,
            clock=clock,
        )
    except SettingsError:
        writer.close()
        raise
    shell.arbiter = Arbiter(settings.arbiter) if settings.arbiter is not None else None
    return shell


def _records(machine: ParameterServer | Standby, shell: ZmqServer, folder: Path, *, endpoint: str) -> RunRecords:
    """The run's records in its folder. Raises SettingsError, with the shell closed."""
    try:
        return RunRecords(folder, lambda: machine.run.spec if machine.run else None, endpoint=endpoint)
    except OSError as error:
        shell.close()
        raise SettingsError(f"{folder}: the run's records cannot be kept there: {error}") from error


def storage_for(flags: Parsed[ServerSettings]) -> RunStorage:
    """The run's folders, created and locked. Raises SettingsError."""
    settings, run = flags.program, flags.run
    _check_standby(flags)
    # Until a first worker has decided the run, it has no name and no seed. The experiment is named on the server.
    named = "standby" if settings.standby_of else run.preset if flags.names_a_run else "run"
    experiment = "" if settings.standby_of else run.experiment
    given = settings.resumed_folder or settings.run_dir or _usual_folder(settings)
    folder = settings.resumed_folder or make_run_folder(
        given,
        experiment=experiment,
        preset=named,
        seed=run.seed if flags.names_a_run else None,
    )
    folder = folder_of_shard(folder, settings.place)
    if settings.resume is None:
        check_no_others(folder, settings.checkpoint_dir if settings.store_flag else None)
    may_hold_a_run = settings.resume is not None or settings.standby_of is not None or (folder / LINEAGE).exists()
    store = CheckpointStore(settings.store_flag[1], flag=settings.store_flag[0]) if settings.store_flag else None
    checkpoints = settings.checkpoint_folder
    return RunStorage(folder, checkpoints=checkpoints, may_hold_a_run=may_hold_a_run, store=store)


def _check_standby(flags: Parsed[ServerSettings]) -> None:
    """Raises SettingsError when a standby is given settings of the run, or its own address."""
    settings, primary = flags.program, flags.program.standby_of
    if primary is not None and flags.overrides:
        typed = ", ".join(flag_of(key) for key in flags.overrides)
        raise SettingsError(f"--standby-of: the settings of the run come from {primary}; leave out {typed}")
    if primary is not None and is_own(primary, settings.host, settings.port):
        itself = "is where this server itself is to listen; name its primary, or give this server another --port"
        raise SettingsError(f"--standby-of {primary}: {itself}")


def _usual_folder(settings: ServerSettings) -> Path | None:
    """
    The run folder of a standby, or of a run from an object store: always the same, so that a restart finds the run
    there. None where a new folder is made.
    """
    if settings.standby_of is not None:
        return _folder_for("standby-of", settings.standby_of)
    return _folder_for("from", settings.resume) if settings.resume is not None else None


def mark_replaced(server: ParameterServer | None, storage: RunStorage) -> None:
    """The folder of a server that is fenced remembers that, as far as the disk lets it."""
    if server is not None and server.ending.fenced and not server.ending.gives_way_to:
        try:
            write_lineage(storage.folder, server.lineage)
        except SettingsError as error:
            log.warning("%s; nothing there says now that another server has the run", error)


def check_saved(server: ParameterServer, storage: RunStorage) -> None:
    """Raises Fenced when another server has taken the run, CheckpointError when the last version was not saved."""
    if server.ending.reason:
        report_reason("over", server.ending.reason)
    if server.ending.handed_over_to:
        log.info("handed the run over to %s at version %d", server.ending.handed_over_to, server.version)
        return
    if server.ending.fenced:
        raise Fenced(server.ending.fenced)
    if server.has_unsaved:
        raise CheckpointError(_not_saved(server, storage))
    if server.version:
        log.info("saved version %d in %s", server.version, storage.folder)
    else:
        log.info("there was nothing to save: no worker has brought weights")


def _not_saved(server: ParameterServer, storage: RunStorage) -> str:
    """A sentence on where the last version is, if it is anywhere."""
    with contextlib.suppress(CheckpointError):
        path, _, record = newest_checkpoint(storage.folder, storage.checkpoints)
        if storage.store is not None and (record.version, record.lineage.epoch) == (server.version, server.epoch):
            why = server.checkpoints.error or "it does not answer in time"
            url = storage.store_url
            return (
                f"version {server.version} is saved as {path}, and not in {url}: {why}; to go on "
                f"from it: {storage.resumed_from(url)}"
            )
    return f"version {server.version} could not be saved; see the warnings above"


def _folder_for(what: str, place: str) -> Path:
    return Path("runs") / f"{what}-{re.sub('[^A-Za-z0-9.]+', '-', place).strip('-')}"
