"""Which connections are cut off, by the counters alone."""

from ps_server.shell.connection_limits import (
    OLD_SECONDS,
    OVERHEAD_BYTES,
    QUIET_BYTES,
    Connection,
    holding_too_much,
    one_too_many,
)
from ps_server.state.effects import PeerId

MIB = 2**20


def known(peer: PeerId | None) -> bool:
    return peer is not None


def holds(size: int, *, since: float = 0.0, peer: PeerId | None = None) -> Connection:
    """A connection with an unfinished message of so many bytes."""
    connection = Connection(1, b"", since=since, peer=peer)
    connection.look(size)
    connection.look(size)
    assert connection.unfinished == size
    return connection


def cut(*connections: Connection, is_short: bool = False, now: float = 0.0) -> list[Connection]:
    return holding_too_much(
        connections, vector_bytes=MIB, budget_bytes=4 * MIB, is_short=is_short, is_known=known, now=now
    )


def test_messages_that_wait_are_not_unfinished() -> None:
    connection = Connection(1, b"", since=0.0)
    connection.look(9 * MIB)
    assert connection.unfinished == 0, "they may be whole"
    connection.delivered += 3 * MIB
    connection.look(12 * MIB)
    assert connection.unfinished == 0, "one was delivered: more may be"
    connection.look(20 * MIB)
    assert connection.unfinished == 9 * MIB - OVERHEAD_BYTES, "bytes that were here, and are not delivered in a round"


def test_handshakes_and_heartbeats_do_not_count_as_unfinished_messages() -> None:
    connection, received = Connection(1, b"", since=0.0), 300
    for _ in range(10_000):
        received += 1000 + 40
        connection.delivered += 1000
        connection.look(received)
        connection.look(received)
        assert connection.unfinished <= QUIET_BYTES


def test_a_message_longer_than_any_vector_is_cut_off_even_from_a_worker() -> None:
    stranger, worker = holds(2 * MIB), holds(2 * MIB, peer=b"w")
    assert set(map(id, cut(stranger, worker, holds(MIB)))) == {id(stranger), id(worker)}


def test_over_budget_unknown_peers_are_cut_off_first_then_the_longest_silent() -> None:
    workers = [holds(MIB, since=float(since), peer=b"w") for since in (3, 1, 2, 4)]
    strangers = [holds(MIB, since=5.0)]
    assert cut(*workers) == []
    assert cut(*workers, *strangers) == strangers
    fifth = holds(MIB, since=9.0, peer=b"w")
    assert cut(*workers, fifth, *strangers) == [*strangers, workers[1]]


def test_when_memory_is_short_tiny_messages_are_cut_off_and_old_ones_of_workers() -> None:
    stranger, worker, quiet = holds(2 * QUIET_BYTES), holds(2 * QUIET_BYTES, peer=b"w"), holds(QUIET_BYTES)
    assert cut(stranger, worker, quiet, now=9.0) == []
    assert cut(stranger, worker, quiet, is_short=True) == [stranger]
    assert cut(stranger, worker, quiet, is_short=True, now=OLD_SECONDS + 1) == [stranger, worker]


def test_descriptors_are_freed_from_the_oldest_unknown_peers_then_from_the_newest_workers() -> None:
    strangers = [Connection(1, b"", since=float(since)) for since in (2, 1)]
    workers = [Connection(1, b"", since=float(since), peer=b"w") for since in (2, 3)]
    everybody = [*workers, *strangers]
    assert one_too_many(everybody, count=1, is_known=known) == [strangers[1]]
    assert one_too_many(everybody, count=3, is_known=known) == [strangers[1], strangers[0], workers[1]]
