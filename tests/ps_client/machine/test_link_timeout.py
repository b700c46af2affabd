from ps_client.machine.patience import MOST_TIMES_LONGER, TIMEOUT_SECONDS, LinkTimeout
from ps_common.protocol.messages import Settled, Settlement, ToWorker

SETTLED = Settled(
    request=1,
    epoch=1,
    settlement=Settlement(sequence=1, verdict="applied", version=1, staleness=0, durable=0),
    global_steps=1,
)


def silent_until_expired(link: LinkTimeout, *, since: float) -> float:
    """Seconds of silence after which the link counts as dead."""
    tenths = next(n for n in range(10_000) if link.has_expired(0, now=since + n / 10))
    link.begin(now=since + tenths / 10)
    return tenths / 10


def test_each_timeout_in_a_row_is_twice_as_long_up_to_a_limit() -> None:
    link, now, took = LinkTimeout(has_standby=False, now=0.0), 0.0, []
    for _ in range(7):
        took.append(silent_until_expired(link, since=now))
        now += took[-1]
    assert [round(seconds / TIMEOUT_SECONDS) for seconds in took] == [1, 2, 4, 8, 16, 16, MOST_TIMES_LONGER]


def replied(message: ToWorker, *, after: float) -> float:
    """The timeout after one that expired, and a reply that came so late."""
    link = LinkTimeout(has_standby=False, now=0.0)
    began = silent_until_expired(link, since=0.0)
    link.received(message, now=began + after)
    return silent_until_expired(link, since=began + after)


def test_a_server_with_a_long_queue_is_given_time_until_its_queue_is_short() -> None:
    assert replied(SETTLED, after=0.1) < TIMEOUT_SECONDS + 1, "quick again"
    assert replied(SETTLED, after=8.0) > 2 * TIMEOUT_SECONDS - 1, "the queue is still longer than the timeout"
