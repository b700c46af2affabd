"""A server whose process is paused decides as one that ran all the time, wherever the pause falls and however long."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ps_common.program.running_clock import MOST_SECONDS, RunningClock
from ps_common.protocol.messages import Followed
from ps_common.protocol.record import record_to_json
from ps_server.state.effects import Exit, LogLine, SaveCheckpoint
from tests.ps_server.replication.test_replication import Primary

EVENTS = 40
TICK_SECONDS = 0.25


class Paused:
    """One history: a worker that pushes, a standby that follows, a checkpoint under way, a budget of minutes."""

    def __init__(self, *, pause_at: int, pause_seconds: float) -> None:
        self.real = 0.0
        clock = RunningClock(lambda: self.real)
        began = clock.now()
        server = Primary.seeded(workers=("a",), budget={"max_minutes": 0.25})
        start = server.now
        server.follow()
        self.seen: list[Any] = []
        for event in range(EVENTS):
            self.real += TICK_SECONDS + (pause_seconds - TICK_SECONDS) * (event == pause_at)
            server.now = start + round(clock.now() - began, 3)
            server.after(0.0)
            self._note(server)
            if event % 4 == 0 and not server.machine.ending.reason:
                server.push("a", server.run.ledger.accounts["a"].through + 1)
            server.say("s", Followed(request=0, follow=1, number=server.machine.run.log.position))
        self.durable = server.run.ledger.accounts["a"].durable
        self.record = record_to_json(server.run.record(now=server.now))

    def _note(self, server: Primary) -> None:
        for effect in server.effects:
            if isinstance(effect, LogLine):
                self.seen.append(effect.text)
            elif isinstance(effect, SaveCheckpoint | Exit):
                self.seen.append(type(effect))


@settings(max_examples=30)
@given(st.integers(0, EVENTS - 1), st.floats(MOST_SECONDS, 1e6))
def test_a_pause_of_any_length_between_any_two_events_is_as_half_a_second(pause_at: int, seconds: float) -> None:
    paused = Paused(pause_at=pause_at, pause_seconds=seconds)
    shortest = Paused(pause_at=pause_at, pause_seconds=MOST_SECONDS)
    assert paused.seen == shortest.seen
    assert not any("gone" in str(one) for one in paused.seen)
    assert paused.durable == shortest.durable
    assert paused.record == shortest.record
