"""The connections of one worker to the shards of its run."""

from concurrent.futures import Future
from typing import Any

import pytest

from ps_client.machine.parameter_client import ParameterClient
from ps_client.shell import shard_connections
from ps_client.shell.shard_connections import ShardConnections
from ps_common.protocol.lineage import Shard
from tests.ps_client.client_transcripts import welcome


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


class Absent:
    """A connection to a shard that nobody serves: a wait for its reply takes all the time that it may."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def say_goodbye(self, reason: str, *, failed: bool = False) -> None:
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


class Welcomed(Absent):
    """A connection to a shard of three that has admitted the worker."""

    def __init__(self, server: str, machine: ParameterClient, **_: Any) -> None:
        self.machine = machine
        self.welcome: Future[Any] = Future()
        self.welcome.set_result(welcome(1, shard=Shard(addresses=("a:1", "b:1", "c:1")), first_shard="1" * 16))


def test_each_connection_knows_the_links_to_the_other_shards() -> None:
    """A heartbeat says that the worker waits at another shard."""
    worker = ShardConnections("a", "a:1", proposed_run={}, patience_seconds=1, resend_mib=1, connection=Welcomed)
    worker.join()
    links = [one.machine.link_timeout for one in worker._all]
    assert len(links) == 3
    for one in worker._all:
        others = [link for link in links if link is not one.machine.link_timeout]
        assert one.machine.links_elsewhere == others


@pytest.mark.parametrize(
    ("server", "addresses"),
    [("a:1", 1), ("a:1,b:1", 2), ("a:1,b:1,c:1", 3), ("runs/x/endpoint", 1), ("runs/a,b/endpoint", 1), ("/a,b,c", 1)],
)
def test_the_machine_waits_as_for_as_many_addresses_as_it_has(
    server: str, addresses: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []
    monkeypatch.setattr(shard_connections, "ParameterClient", lambda *_, **given: told.append(given["addresses"]))
    ShardConnections("a", server, proposed_run={}, patience_seconds=1, resend_mib=1, connection=Absent)
    assert told == [addresses]
