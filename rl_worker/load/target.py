"""
The rights of a load test at the server that it finds. Pure.

A run that is not made for load tests is somebody's training. Gradients of zeros leave its weights, but each makes a
version, so that the gradients of real workers count as later, and each moves what the optimizer remembers. Where
workers wait for each other, real ones wait for synthetic ones. A run without weights would begin with zeros.
"""

from dataclasses import dataclass

from common.errors import SettingsError
from common.protocol.messages import Run, StatusReply
from common.protocol.tensors import Schema, TensorSpec
from common.settings.run_settings import run_from_dict
from common.settings.run_spec import RunSpec

PRESET = "ps-bench"  # the name of a run that is made for load tests
READY_PHASES = ("serving", "empty")


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
