"""The connections of one worker to the shards of its run."""

from typing import Any

from ps_client.shell import shard_connections
from ps_client.shell.shard_connections import ShardConnections


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


class Absent:
    """A connection to a shard that nobody serves: a wait for its reply takes all the time that it may."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def say_goodbye(self, reason: str) -> None:
        pass

    def close(self, *, seconds: float) -> None:
        CLOCK.now += seconds


CLOCK = Clock()


def test_absent_shards_are_waited_for_together(monkeypatch: Any) -> None:
    """Ctrl-C at a worker of 64 shards, of which none is there, takes a second."""
    monkeypatch.setattr(shard_connections, "time", CLOCK)
    worker = ShardConnections("a", "x:1", proposed_run={}, patience_seconds=1, resend_mib=1, connection=Absent)
    worker._all = [Absent() for _ in range(64)]  # type: ignore[misc]
    before = CLOCK.now
    worker.close()
    assert CLOCK.now - before == shard_connections.GOODBYE_SECONDS
