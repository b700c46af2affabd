"""
Who keeps sending what must be refused is not heard for a while; each time for longer.

A worker is known by its id, on whatever connection; a stranger by its connection. Honest peers have none of this: a
push that is late, early, sent twice or meant for another run is no offence.
"""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass

OFFENCES = {
    "bad_message", "unknown_codec", "wrong_size", "not_finite", "absurd_norm", "absurd_steps", "bad_schema",
}  # fmt: skip
STRIKES = 10  # offences in a short time
FORGIVEN_SECONDS = 10.0  # after which one offence less counts
FIRST_SECONDS = 1.0  # of silence; doubles each time
LONGEST_SECONDS = 300.0  # and after so long without an offence it begins anew
MOST_RECORDS = 10_000


@dataclass
class _Record:
    strikes: float = 0.0
    times: int = 0  # that it was not heard
    last_offence: float = 0.0
    until: float = 0.0


class Quarantine:
    """Offences by offender. `now` is seconds of any monotonic clock."""

    def __init__(self) -> None:
        self._records: OrderedDict[Hashable, _Record] = OrderedDict()  # the latest offender last

    def offence(self, who: Hashable, *, now: float) -> None:
        """It has sent something that had to be refused."""
        record = self._records.pop(who, None)
        if record is None or now - record.last_offence > LONGEST_SECONDS:
            record = _Record()
        else:
            record.strikes = max(0.0, record.strikes - (now - record.last_offence) / FORGIVEN_SECONDS)
        record.strikes += 1
        record.last_offence = now
        if record.strikes >= STRIKES:
            record.until = now + min(FIRST_SECONDS * 2**record.times, LONGEST_SECONDS)
            record.times += 1
            record.strikes = STRIKES / 2
        self._records[who] = record
        if len(self._records) > MOST_RECORDS:
            self._records.popitem(last=False)

    def seconds_left(self, who: Hashable, *, now: float) -> float:
        """For how long it is not heard; 0 when it is."""
        record = self._records.get(who)
        return max(0.0, record.until - now) if record else 0.0
