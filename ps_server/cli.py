"""`ps-server`: flags to parts, then serve until the run ends or a signal comes."""

import contextlib
import logging
import re
import resource
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import torch

from common.errors import CheckpointError, Fenced, SettingsError
from common.program.flags import Parsed, parse_with_run
from common.program.log_lines import log_as
from common.program.output import never_wait_for_output
from common.program.run_program import run_program
from common.program.stop_signals import StopSignal
from common.protocol.addresses import EVERY_INTERFACE, is_loopback, join_address, split_address
from common.run_folder.paths import make_run_folder
from common.settings.run_settings import flag_of
from common.sockets.curve import ClientKeys, read_pair
from ps_server.machine.parameter_server import ParameterServer
from ps_server.records.run_records import RunRecords
from ps_server.replication.standby import Standby
from ps_server.settings import ServerSettings
from ps_server.shell.access_control import AccessControl
from ps_server.shell.checkpoint_writer import CheckpointWriter
from ps_server.shell.lineage_file import write_lineage
from ps_server.shell.own_address import own_host
from ps_server.shell.run_storage import RunStorage
from ps_server.shell.zmq_server import ZmqServer
from ps_server.starting import machine_for

PROGRAM = "ps-server"
# What the first worker proposes unless somebody says otherwise; here it only gives the flags their defaults.
DEFAULT_PRESET = "pong"

UNLOCKED = (
    "whoever reaches this port can read the weights and push gradients, and nothing is encrypted. To lock it: "
    "ps-ctl keygen keys; then ps-server --curve-secret keys/server.key_secret --authorized-keys keys/authorized"
)

log = logging.getLogger(PROGRAM)


def main() -> NoReturn:
    run_program(serve, PROGRAM)


def serve(argv: Sequence[str] | None = None) -> int:
    """Run the program. Raises PsRlError for what the user can mend."""
    never_wait_for_output()
    log_as(PROGRAM)
    flags = parse_with_run(ServerSettings, argv, prog=PROGRAM, default_preset=DEFAULT_PRESET)
    settings = flags.program
    if flags.remark:
        log.info(flags.remark)
    torch.set_num_threads(settings.threads)
    take_every_descriptor_allowed()
    stop = StopSignal()
    access_control = _access_control(settings)
    storage = _storage(flags)
    try:
        machine = machine_for(flags, storage, keys=_peer_keys(settings), now=time.monotonic())
        _serve(machine, storage, settings, access_control, stop)
    finally:
        storage.close()
    return 0


def _serve(
    machine: ParameterServer | Standby,
    storage: RunStorage,
    settings: ServerSettings,
    access_control: AccessControl | None,
    stop: StopSignal,
) -> None:
    """Until the run ends or a signal comes; then save it."""
    writer = CheckpointWriter(storage.checkpoints)
    try:
        shell = ZmqServer(
            machine,
            writer,
            host=settings.host,
            port=settings.port,
            receive_bytes=int(settings.receive_mib * 2**20),
            access_control=access_control,
            primary_keys=_peer_keys(settings),
        )
    except SettingsError:
        writer.close()
        raise
    host = own_host(settings.host, shell.host)
    address = join_address(host, shell.port)
    if isinstance(machine, Standby):
        machine.address = address
    print(_first_line(settings, shell.host, address), flush=True)
    if access_control is None and not is_loopback(host):
        log.warning(UNLOCKED)
    folder = storage.folder
    try:
        records = RunRecords(folder, lambda: machine.run.spec if machine.run else None, endpoint=address)
    except OSError as error:
        shell.close()
        raise SettingsError(f"{folder}: the run's records cannot be kept there: {error}") from error
    try:
        shell.serve(until=stop.is_set, on_tick=records.tick, on_report=records.reported)
    finally:
        is_written = shell.close() & records.close(machine.status(now=time.monotonic()))
        if not is_written:
            storage.keep()
    if shell.served is not None:
        _check_saved(shell.served, folder)


def _storage(flags: Parsed[ServerSettings]) -> RunStorage:
    """The run's folders, made and locked. Raises SettingsError."""
    settings, run = flags.program, flags.run
    if settings.standby_of is not None and flags.overrides:
        typed = ", ".join(flag_of(key) for key in flags.overrides)
        raise SettingsError(f"--standby-of: the run is that of {settings.standby_of}; leave out {typed}")
    # A run that its first worker decides has no name and no seed yet; the experiment is named by whoever runs it.
    named = "standby" if settings.standby_of else run.preset if flags.names_a_run else "run"
    folder = settings.resume or make_run_folder(
        settings.run_dir or _standby_folder(settings),
        experiment="" if settings.standby_of else run.experiment,
        preset=named,
        seed=run.seed if flags.names_a_run else None,
    )
    may_hold_a_run = settings.resume is not None or settings.standby_of is not None
    return RunStorage(folder, checkpoints=settings.checkpoint_dir, may_hold_a_run=may_hold_a_run)


def _standby_folder(settings: ServerSettings) -> Path | None:
    """
    Where a standby keeps what it takes over, unless the user says; None for other servers.

    The same whenever it is started: it must know again what it has taken over.
    """
    if settings.standby_of is None:
        return None
    return Path("runs") / ("standby-of-" + re.sub("[^A-Za-z0-9.]+", "-", settings.standby_of).strip("-"))


def _check_saved(server: ParameterServer, folder: Path) -> None:
    """Raises Fenced or CheckpointError when the run does not go on from what this server has left."""
    if server.fenced:
        write_lineage(folder, server.lineage)
        raise Fenced(server.fenced)
    if server.version != server.checkpoints.saved_version:
        raise CheckpointError(f"version {server.version} could not be saved; see the warnings above")
    log.info("saved version %d in %s", server.checkpoints.saved_version, folder)


def _access_control(settings: ServerSettings) -> AccessControl | None:
    """The lock that the flags ask for. Raises SettingsError."""
    if settings.curve_secret is None or settings.authorized_keys is None:  # they go together
        return None
    return AccessControl(read_pair("--curve-secret", settings.curve_secret), settings.authorized_keys)


def _peer_keys(settings: ServerSettings) -> ClientKeys | None:
    """What it takes to talk to the other one of a primary and its standby: they have the same pair of keys."""
    if settings.curve_secret is None:
        return None
    own = read_pair("--curve-secret", settings.curve_secret)
    return ClientKeys(own.public, own)


def _first_line(settings: ServerSettings, bound: str, address: str) -> str:
    """Where the server listens, and the command for other machines."""
    where = "all interfaces" if bound in EVERY_INTERFACE else settings.host
    keys = " --curve-server-key server.key --curve-secret worker.key_secret" if settings.curve_secret else ""
    servers = f"{settings.standby_of},{address}" if settings.standby_of else address
    what = f"the standby of {settings.standby_of}, " if settings.standby_of else ""
    port = split_address(address)[1]
    return f"{PROGRAM} listens on {where}, {what}port {port}; start workers with: rl-worker --server {servers}{keys}"


def take_every_descriptor_allowed() -> None:
    """A worker takes up to three; the 1024 that are usual are for programs that use `select`, which knows no more."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with contextlib.suppress(OSError, ValueError):  # where what is allowed is more than the system has
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
