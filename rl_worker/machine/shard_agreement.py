"""
Whether the shards that a worker has joined are those of one run: its WELCOMEs are compared with that of shard 1.

Settings that an admin may adjust can differ for a moment.
"""

from common.protocol.messages import Welcome
from common.protocol.tensors import Schema
from common.settings.adjustable import ADJUSTABLE, TAKEN_OVER
from common.settings.run_settings import flag_of, flat_settings, typed


def disagreement(first: Welcome, other: Welcome, *, number: int, address: str) -> str:
    """Why the server at this address is not shard `number` of the run of shard 1; "" if it is."""
    who = f"the server at {address}, which --shards names as shard {number}/{first.shard.of},"
    if (other.shard.number, other.shard.of) != (number, first.shard.of):
        return f"{who} is {other.shard}: all servers of a run take the same --shards, in the same order"
    ours, theirs = flat_settings(first.run), flat_settings(other.run)
    for setting in sorted((ours.keys() | theirs.keys()) - ADJUSTABLE.keys() - TAKEN_OVER):
        if ours.get(setting) != theirs.get(setting):
            values = f"{typed(theirs.get(setting))}, and shard 1 has {typed(ours.get(setting))}"
            return f"{who} has {flag_of(setting)} {values}: give all servers of a run the same flags"
    if first.global_steps and not other.schema:
        return (
            f"{who} has no weights, though shard 1 is at step {first.global_steps}: was its folder lost? Resume it "
            "from a copy, or begin a new run"
        )
    if first.schema and other.schema and (sentence := Schema(first.schema).difference(Schema(other.schema))):
        return f"{who} holds another network than shard 1: {sentence}"
    return ""
