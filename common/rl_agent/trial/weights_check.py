"""
Whether the weights that a run goes on with, or starts from, are those of its network, before anything is started.

A worker finds that out at the server, in the names of tensors. Here the environment is there, and the settings of both.
"""

from ps_common.errors import CheckpointError, SettingsError
from ps_common.protocol.tensors import Schema
from ps_common.run_folder.object_store import is_url
from ps_common.run_folder.trained import Trained, trained_in
from ps_common.settings.kinds import text_of
from ps_common.settings.run_settings import flag_of, flat_settings
from ps_common.settings.run_spec import RunSpec
from rl_agent.agent import why_other


def check_weights(run: RunSpec, schema: Schema, *, resumed: str) -> None:
    """
    Raises SettingsError when the weights of the run folder `resumed`, or else of --start-from, do not fit the network.

    What cannot be read, or lies in an object store, is left to the server.
    """
    flag, place = ("--resume", resumed) if resumed else ("--start-from", run.start_from)
    if not place or is_url(place):
        return
    try:
        trained = trained_in(place, flag=flag, newest=bool(resumed))
    except CheckpointError:
        return
    if trained.schema == schema or (not resumed and _can_start(trained.schema, schema)):
        return
    why = _other_settings(trained, run) or why_other(trained.schema, schema)
    again = "resume it as it was" if resumed else "start from weights of the same network and spaces"
    raise SettingsError(f"{flag} {place}: {why}; {again}, or begin a new run without it")


def _can_start(trained: Schema, network: Schema) -> bool:
    """Whether each weight of the network is among the trained ones; statistics begin with random play elsewhere."""
    theirs = {spec.name: spec for spec in trained.specs}
    return all(theirs.get(spec.name) == spec for spec in network.specs if spec.role == "weight")


def _other_settings(trained: Trained, run: RunSpec) -> str:
    """The first settings of the network that differ, in words; "" when the spaces must differ."""
    then, now = (
        {**flat_settings({"network": of.to_dict()["network"]}), "algorithm.name": of.algorithm_name}
        for of in (trained.run, run)
    )
    for key, value in now.items():
        if then[key] != value:
            flag = flag_of(key)
            return f"it was trained with {flag} {text_of(then[key])}, and this run has {flag} {text_of(value)}"
    return ""
