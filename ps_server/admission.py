"""Who may join a run: what HELLO must say, and how the first worker decides what the run is."""

from typing import Any

from common.errors import SettingsError
from common.messages import PROTOCOL_VERSION, Hello
from common.run_spec import RunSpec, contradiction, run_from_dict, with_settings
from ps_server.denied import Denied
from ps_server.lineage import Lineage
from ps_server.training_run import TrainingRun

# Names that a run remembers, for good: a checkpoint holds an account of each, about a hundred bytes.
MAX_WORKERS = 100_000


def admit(hello: Hello, *, run: TrainingRun | None, lineage: Lineage, overrides: dict[str, Any]) -> RunSpec:
    """
    The run that this worker is to train. Raises Denied.

    `run` is None until the first worker: then it is that worker's proposal with the server's own flags on top.
    """
    if not lineage.is_of(hello.run_id):
        raise Denied(
            "other_run",
            f"this server has run {lineage.run_id}, and {hello.worker_id} is of run {hello.run_id}: start the worker "
            f"anew, or, if that run's folder is lost, the server, with --rescue {hello.run_id}",
        )
    lowest, highest = hello.protocols
    if not lowest <= PROTOCOL_VERSION <= highest:
        raise Denied(
            "protocol", f"this server speaks protocol {PROTOCOL_VERSION}, the worker {lowest} to {highest}; update one"
        )
    if "float32" not in hello.codecs:
        raise Denied("unknown_codec", f"everybody speaks float32, and the worker only {', '.join(hello.codecs)}")
    if run and hello.worker_id not in run.ledger.accounts and len(run.ledger.accounts) >= MAX_WORKERS:
        raise Denied("too_many_workers", f"this run has seen {MAX_WORKERS} workers; start one under a name it knows")
    spec = run.spec if run else _decide(hello, overrides)
    if sentence := contradiction(spec, hello.wishes):
        raise Denied("contradiction", sentence)
    return spec


def _decide(hello: Hello, overrides: dict[str, Any]) -> RunSpec:
    try:
        proposed = run_from_dict(hello.proposal or {}, source=f"worker {hello.worker_id}")
        return with_settings(proposed, overrides, source="ps-server's flags")
    except SettingsError as error:
        raise Denied("bad_run", str(error)) from error
