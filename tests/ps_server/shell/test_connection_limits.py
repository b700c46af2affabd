"""Which connections are cut off, by the counters alone."""

from ps_common.protocol.wire import MAX_HEADER_BYTES
from ps_server.shell.connections import OLD_SECONDS, UNTAKEN_SECONDS, holding_too_much, taking_nothing, too_many
from ps_server.shell.tcp_connections import QUIET_BYTES, SLACK_BYTES, Connection

MIB = 2**20


def opened(*, since: float = 0.0, worker: bool = False) -> Connection:
    """A connection, and whether it has delivered a message."""
    connection = Connection(1, b"", since=since)
    connection.delivered = connection._looked_at = int(worker)
    return connection


def holds(size: int, *, since: float = 0.0, worker: bool = False) -> Connection:
    """One with an unfinished message of so many bytes."""
    connection = opened(since=since, worker=worker)
    connection.look(connection.delivered + size)
    connection.look(connection.delivered + size)
    assert connection.unfinished == size
    return connection


def cut(*connections: Connection, is_short: bool = False, now: float = 0.0) -> list[Connection]:
    return holding_too_much(connections, vector_bytes=MIB, budget_bytes=4 * MIB, is_short=is_short, now=now)


def test_handshakes_and_heartbeats_do_not_count_as_unfinished_messages() -> None:
    connection, received = Connection(1, b"", since=0.0), 300
    for _ in range(10_000):
        received += 1000 + 40
        connection.delivered += 1000
        connection.look(received)
        connection.look(received)
        assert connection.unfinished <= QUIET_BYTES


def test_a_first_message_is_a_header_and_is_cut_off_where_it_is_longer() -> None:
    longest = MAX_HEADER_BYTES + SLACK_BYTES
    stranger, worker, brief = holds(longest + 1), holds(longest + 1, worker=True), holds(longest)
    assert cut(stranger, worker, brief) == [stranger]


def test_a_peer_that_takes_no_reply_is_cut_off_after_a_while_and_at_once_when_memory_is_short() -> None:
    idle, reader, sleeper = (Connection(1, b"", since=0.0) for _ in range(3))
    for second in range(1, 100):
        idle.look_out(1000, QUIET_BYTES, now=float(second))  # the little that waits fits into the kernel's buffers
        reader.look_out(1000 * second, 2 * QUIET_BYTES, now=float(second))
        sleeper.look_out(1000, 2 * QUIET_BYTES, now=float(second))
        lost = second - 1.0 > UNTAKEN_SECONDS
        assert taking_nothing([idle, reader, sleeper], is_short=False, now=second) == ([sleeper] if lost else [])
        short = second - 1.0 > OLD_SECONDS
        assert taking_nothing([idle, reader, sleeper], is_short=True, now=second) == ([sleeper] if short else [])


def test_over_budget_peers_without_a_message_are_cut_off_first_then_the_longest_silent() -> None:
    workers = [holds(MIB, since=float(since), worker=True) for since in (3, 1, 2, 4)]
    strangers = [holds(MIB // 4, since=5.0)]
    assert cut(*workers) == []
    assert cut(*workers, *strangers) == strangers
    fifth = holds(MIB, since=9.0, worker=True)
    assert cut(*workers, fifth, *strangers) == [*strangers, workers[1]]


def test_when_memory_is_short_tiny_messages_are_cut_off_and_old_ones_of_workers() -> None:
    stranger, worker, quiet = holds(2 * QUIET_BYTES), holds(2 * QUIET_BYTES, worker=True), holds(QUIET_BYTES)
    assert cut(stranger, worker, quiet, now=9.0) == []
    assert cut(stranger, worker, quiet, is_short=True) == [stranger]
    assert cut(stranger, worker, quiet, is_short=True, now=OLD_SECONDS + 1) == [stranger, worker]


def test_descriptors_are_freed_from_the_oldest_without_a_message_then_from_the_newest_others() -> None:
    strangers = [opened(since=float(since)) for since in (2, 1)]
    workers = [opened(since=float(since), worker=True) for since in (2, 3)]
    everybody = [*workers, *strangers]
    assert too_many(everybody, count=0) == []
    assert too_many(everybody, count=1) == [strangers[1]]
    assert too_many(everybody, count=3) == [strangers[1], strangers[0], workers[1]]
