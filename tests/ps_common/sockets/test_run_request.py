"""Which shards of a run get a request, whichever of them the user names."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial

import pytest

from ps_common.errors import ServerUnreachable
from ps_common.protocol import messages
from ps_common.protocol.lineage import Shard
from ps_common.protocol.messages import Adjust, CheckpointRequest, StatusRequest, StopRequest, ToServer
from ps_common.protocol.wire import Buffer, to_frames
from ps_common.sockets.request import ask_run
from tests.ps_common.sockets.test_request import PATIENCE_SECONDS, server
from tests.ps_server.records.test_metrics import a_status

ADJUST = Adjust(request=1, settings={"paused": True})
DEAD = "127.0.0.1:1"


class Shards:
    """Servers of two shards, the first with a standby: what each was asked, and what it replies."""

    def __init__(self, stack: ExitStack) -> None:
        self.asked: list[tuple[str, ToServer]] = []
        self.disk_is_full = False
        self.addresses = {
            name: stack.enter_context(server(partial(self._reply, name))) for name in ("first", "its standby", "second")
        }
        first, standby, second = self.addresses.values()
        self.shards = (f"{first},{standby}", f"{DEAD},{second}")

    def _reply(self, name: str, message: ToServer) -> Sequence[list[Buffer]]:
        phase = "standby" if name == "its standby" else "serving"
        if isinstance(message, StatusRequest):
            shard = Shard(number=2 if name == "second" else 1, addresses=self.shards)
            status = a_status(phase=phase, shard=shard)
            return [to_frames(messages.StatusReply(request=message.request, status=status, run={}, schema=()))]
        if phase == "standby":
            return [to_frames(messages.Refused(request=message.request, code="standby", reason="ask the primary"))]
        self.asked.append((name, message))
        if isinstance(message, Adjust):
            return [to_frames(messages.Adjusted(request=message.request, adjustments=()))]
        if isinstance(message, StopRequest):
            return [to_frames(messages.Stopping(request=message.request))]
        if self.disk_is_full and name == "second":
            return [to_frames(messages.Refused(request=message.request, code="checkpoint_failed", reason="disk full"))]
        return [to_frames(messages.CheckpointSaved(request=message.request, path=name, version=3))]


@pytest.fixture
def shards() -> Iterator[Shards]:
    with ExitStack() as stack:
        yield Shards(stack)


@pytest.mark.parametrize("named", ["first", "second"])
@pytest.mark.parametrize("message", [ADJUST, StopRequest(request=1)])
def test_shard_1_alone_is_adjusted_and_ends_the_run(shards: Shards, named: str, message: ToServer) -> None:
    ask_run(shards.addresses[named], message, timeout_seconds=PATIENCE_SECONDS)
    assert shards.asked == [("first", message)]


@pytest.mark.parametrize("named", ["first", "second"])
def test_a_checkpoint_is_one_of_every_shard(shards: Shards, named: str) -> None:
    """A server that is gone, and whose standby serves, delays nothing: the test would take PATIENCE_SECONDS."""
    message = CheckpointRequest(request=1)
    reply, _ = ask_run(shards.addresses[named], message, timeout_seconds=PATIENCE_SECONDS)
    assert reply == messages.CheckpointSaved(request=1, path="first", version=3)
    assert sorted(shards.asked) == [("first", message), ("second", message)]


def test_a_shard_that_has_saved_nothing_is_named(shards: Shards) -> None:
    shards.disk_is_full = True
    with pytest.raises(ServerUnreachable, match=r"not every shard has saved a checkpoint; .*: shard 2: .*disk full"):
        ask_run(shards.addresses["first"], CheckpointRequest(request=1), timeout_seconds=PATIENCE_SECONDS)
