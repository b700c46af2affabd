"""
The flags of `ps-bench load`, and the run that they may put load on.

A run that is not made for load tests is somebody's training. Gradients of zeros leave its weights, but each makes a
version, so that the gradients of real workers count as later, and each moves what the optimizer remembers. Where
workers wait for each other, real ones wait for synthetic ones. A run without weights would begin with zeros.
"""

import socket
from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta
from tyro.conf import arg

from ps_common.errors import SettingsError
from ps_common.program.number_flags import MOST_SECONDS, check_number, check_numbers
from ps_common.protocol.deltas import DELTA, WHOLE
from ps_common.protocol.messages import Run, StatusReply
from ps_common.protocol.names import LONGEST_PREFIX, as_name, check_address, check_name
from ps_common.protocol.tensors import MAX_ELEMENTS, Schema, TensorSpec
from ps_common.settings.run_settings import run_from_dict
from ps_common.settings.run_spec import GradientCodec, RunSpec, Wire
from ps_common.sockets.curve import CurveFlags

MOST_WORKERS = 50_000  # half of the worker ids that a run may see
MOST_PROCESSES = 1024
PRESET = "ps-bench"  # the name of a run that is made for load tests
READY_PHASES = ("serving", "empty")
WeightCodec = Literal["float32", "bfloat16", "float16"]


@dataclass(frozen=True, kw_only=True)
class LoadSettings(CurveFlags):
    """Flags of one load test."""

    server: str
    """HOST:PORT of the ps-server"""
    workers: Annotated[int, Meta(ge=1, le=MOST_WORKERS)] = 100
    """synthetic workers"""
    processes: Literal["auto"] | int = "auto"
    """processes that the workers are in; auto: by cores and workers"""
    seconds: Annotated[float, Meta(ge=0.1, le=MOST_SECONDS)] = 10.0
    """how long the workers push, once all have joined"""
    compute_seconds: Annotated[float, Meta(ge=0, le=MOST_SECONDS)] = 0.0
    """time between a reply and a worker's next push, in place of games and network (80 to 120 percent of it, drawn each
    time); 0: as fast as the server replies. A worker that pushes R times a second has 1/R"""
    parameters: Annotated[int, Meta(ge=1, le=MAX_ELEMENTS)] = 150_000
    """elements of the weights, if the server has no run yet; 150,000 is the network of pong-a3c"""
    gradient_codec: GradientCodec | None = None
    """codec of gradients; that of the server's run when not given"""
    weight_codec: WeightCodec | None = None
    """codec of weights; that of the server's run when not given"""
    name: str | None = None
    """names of the workers: NAME-0, NAME-1, ...; load-HOST when not given. The server keeps an account of each name for
    good, so repeated tests should repeat it"""
    join_seconds: Annotated[float, Meta(ge=0.1, le=MOST_SECONDS)] = 60.0
    """how long workers have to join and pull the first weights"""
    json: bool = False
    """print one JSON object instead of text"""
    disturb: Annotated[bool, arg(name="yes-disturb-this-run")] = False
    """put load on a server whose run is not one of ps-bench: the gradients are zeros and count no steps, but each still
    makes a version, and moves what the optimizer remembers"""

    @property
    def prefix(self) -> str:
        """The beginning of each worker's name."""
        return self.name or as_name(f"load-{socket.gethostname()}"[:LONGEST_PREFIX])

    def wire(self, of_run: Wire) -> Wire:
        """
        The codecs: those of the run, unless flags name others. Weights are never deltas: synthetic workers keep none.
        """
        of_weights = WHOLE if of_run.weight_codec == DELTA else of_run.weight_codec
        return Wire(
            gradient_codec=self.gradient_codec or of_run.gradient_codec,
            weight_codec=self.weight_codec or of_weights,
        )

    def __post_init__(self) -> None:
        check_address("--server", self.server)
        check_numbers(self)
        if self.processes != "auto":
            check_number("--processes", self.processes, least=1, most=min(self.workers, MOST_PROCESSES))
        if self.name is not None:
            check_name("--name", self.name, longest=LONGEST_PREFIX)


@dataclass(frozen=True)
class Target:
    """The run that the synthetic workers join; `is_own`: it was made for load tests."""

    schema: Schema
    run: RunSpec
    proposed: Run
    is_own: bool

    @property
    def steps(self) -> int:
        """Environment steps of a push: 0 where T, and so the budget, is of somebody's training."""
        return 1 if self.is_own else 0


def target_of(server: str, found: StatusReply, *, parameters: int, disturb: bool) -> Target:
    """The target at this address. Raises SettingsError where there must be no load."""
    phase = found.status.phase
    if phase not in READY_PHASES:
        raise SettingsError(f"--server {server}: its run is {phase}; a load test needs a server that serves")
    if found.status.paused:
        raise SettingsError(f"--server {server}: its run is paused, and settles no push; ps-ctl resume goes on")
    if not found.run:
        run = RunSpec(preset=PRESET)
        return Target(Schema([TensorSpec("all", (parameters,))]), run, run.to_dict(), is_own=True)
    run = run_from_dict(found.run, source=f"the server at {server}")
    is_own = run.preset == PRESET
    what = f"run {found.status.run_id} ({run.preset} on {run.environment.id})"
    if not found.schema and not is_own:
        raise SettingsError(
            f"--server {server}: {what} has no weights yet, and synthetic workers would begin it with zeros; let a "
            "real worker join first, or test a server that was started without a run: ps-server --port N"
        )
    if not is_own and not disturb:
        raise SettingsError(
            f"--server {server}: {what} is somebody's training, at version {found.status.version} with "
            f"{found.status.workers_alive} workers. Load there adds versions and moves the optimizer's memory: test a "
            "server that was started without a run (ps-server --port N), or add --yes-disturb-this-run"
        )
    schema = Schema(found.schema) if found.schema else Schema([TensorSpec("all", (parameters,))])
    return Target(schema, run, found.run, is_own=is_own)
