"""
Fencing: a server stops when another one serves its run in a later epoch.

A worker or a standby of another run, which was pointed here by mistake, fences nothing.
"""

from typing import TypeGuard

from common.protocol.messages import Fence, Hello, ToServer
from ps_server.state.training_run import TrainingRun


def is_fenced_by(message: ToServer, run: TrainingRun | None) -> TypeGuard[Hello | Fence]:
    """Whether the message proves that this run is served in a later epoch. A claim without the proof is ignored."""
    if run is None or not isinstance(message, Hello | Fence) or message.run_id != run.lineage.run_id:
        return False
    return message.latest_epoch > run.epoch and run.lineage.proves(message.latest_epoch, message.epoch_proof)


def advice(address: str) -> str:
    """Advice to the user of a fenced server; `address` is where the run is served now, "" if that is unknown."""
    where = address or "HOST:PORT"
    other = f"{address} has" if address else "another server has"
    return (
        f"{other} taken over this run, and its checkpoints go on there. This server is over: start it as the standby "
        f"of the other, in a new folder: ps-server --standby-of {where} --run-dir FOLDER. Only if the other server and "
        "its folder are lost, go on from the older state here: ps-server --resume RUN_DIR --take-back"
    )
