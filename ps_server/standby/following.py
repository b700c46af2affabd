"""
The standby's side of following a primary: it requests the state, applies each update to a run of its own, and keeps the
newest promise of the primary. Who promotes the standby is not known here.

    it ...                | STATE              | UPDATE       | LEADING            | not_following, fell_behind
    asks for the state    | applies updates    | ignored      | ignored            | asks again, under a new number
    applies updates       | acknowledged again | the next one | renews the promise | asks for the state, without promise

The run is kept through all of that: it may be all that is left when the primary dies. A server without the run at the
primary's address (`no_weights`, `other_run`) is no sign of life of the primary, and what it promised stays as it was.
"""

import math
from collections.abc import Sequence

from ps_common.errors import DamagedCheckpoint
from ps_common.protocol import messages
from ps_common.protocol.messages import ToServer, ToWorker
from ps_common.protocol.wire import Buffer
from ps_common.release import explained, release
from ps_server.replication.replication import LEASE_SECONDS
from ps_server.replication.standby_copy import Repetition, is_proven, run_of
from ps_server.standby.promotion import Promise
from ps_server.state.effects import Effect, Exit, LogLine, SendToServer
from ps_server.state.training_run import TrainingRun

BEAT_SECONDS = 0.25  # between two FOLLOWED that ask for a reply
MOST_WARNINGS = 20
WITHOUT_THE_RUN = {"no_weights", "other_run"}  # refusals by a server that was started anew where the primary was


class Following:
    """The conversation with one primary, HOST:PORT; `process` is the random text of this process."""

    def __init__(self, primary: str, *, process: str, run: TrainingRun | None, now: float) -> None:
        self.run = run
        self.number = 0  # the number of the last update that is applied
        self.promise = Promise()
        self.heard = now  # the primary, last
        self.is_handed_over = False  # the last update was HANDED_OVER
        self._primary, self._process = primary, process
        self._follow = 1  # the request of the newest FOLLOW
        # Of the state that came for this FOLLOW, else None. `run` may be that of an earlier one.
        self._repetition: Repetition | None = None
        self._last_request = 1
        self._beats: dict[int, float] = {}  # when each request was sent whose reply would count
        self._due = now
        self._warned: set[str] = set()

    @property
    def version(self) -> int:
        """The version of the weights; 0 before there is a state."""
        return self.run.store.version if self.run and self.run.store else 0

    @property
    def is_bereft(self) -> bool:
        """Whether a server without the run listens where the primary was, and all that was durable is here."""
        return self.promise.ended < math.inf and self.promise.holds(self.number, at=self.promise.ended)

    def receive(self, message: ToWorker, vector: Sequence[Buffer], *, now: float) -> list[Effect]:
        """One message of the primary. Raises SettingsError or CheckpointError when its state cannot be read here."""
        if isinstance(message, messages.Refused) and message.code in WITHOUT_THE_RUN:
            self.promise.died(now=now)
        elif not isinstance(message, messages.Stop):
            self.heard = now
        match message:
            case messages.State() if message.request == self._follow and self._repetition is None:
                return self._adopt(message, vector, now=now)
            case messages.Update() if message.request == self._follow and self._repetition is not None:
                return self._apply(self._repetition, message, vector, now=now)
            case messages.State():
                return [self._acknowledge()]
            case messages.Leading(request=beat) if beat in self._beats and self.run and is_proven(message, self.run):
                self.promise.renew(message.durable_through, sent=self._beats[beat])
                self.run.progress.follow_minutes(message.minutes)
                self._beats = {number: sent for number, sent in self._beats.items() if number > beat}
            case messages.Refused(code="not_following" | "fell_behind" | "no_weights" as code):
                self.promise.through = 0 if code == "fell_behind" else self.promise.through
                self.promise.is_withdrawn = self.promise.is_withdrawn or code == "not_following"
                if self._repetition is not None:
                    self._begin_anew()
                    sentence = f"not in sync with {self._primary} any more: {message.reason}"
                    return [LogLine(sentence, warning=True, peer="primary")]
                if code == "fell_behind" and message.request == self._follow:
                    self._begin_anew()
            case messages.Refused():
                return self._refused_for_good(message)
            case messages.Stop() if self.run is None or self.promise.ended == math.inf:  # else another run has ended
                return [LogLine(f"the run is over: {message.reason}"), Exit(message.reason)]
        return []

    def tick(self, address: str, *, now: float) -> list[Effect]:
        """Time has passed; `address` is where this standby listens."""
        if self.run is not None:
            self.run.progress.tick(now=now)
        if now < self._due:
            return []
        self._due = now + BEAT_SECONDS
        request = self.next_request()
        if self._repetition is None:
            held = self.run.lineage.run_id if self.run is not None else ""
            who = {"address": address, "run_id": held, "process": self._process}
            return [self.send(messages.Follow(request=self._follow, release=release(), **who))]
        self._beats = {beat: sent for beat, sent in self._beats.items() if now - sent < LEASE_SECONDS}
        self._beats[request] = now
        return [self._acknowledge(request=request)]

    def was_away(self, seconds: float, *, now: float) -> None:
        """The process was paused for so long, in which `now` stood still."""
        self.promise.confirmed -= seconds
        self.promise.ended -= seconds
        self._beats = {beat: sent - seconds for beat, sent in self._beats.items()}
        self.heard = now

    def violations(self) -> str:
        """The violations of the copy, as one sentence; "" if there are none."""
        return "; ".join(self._repetition.violations(self.number)) if self._repetition is not None else ""

    def next_request(self) -> int:
        """The number of another request."""
        self._last_request += 1
        return self._last_request

    def send(self, message: ToServer) -> SendToServer:
        """A message to the primary."""
        return SendToServer(self._primary, message, "--standby-of")

    def warn(self, text: str) -> list[Effect]:
        """Log each warning once, and at most so many: any peer can cause some."""
        if text in self._warned or len(self._warned) >= MOST_WARNINGS:
            return []
        self._warned.add(text)
        return [LogLine(text, warning=True)]

    def _adopt(self, state: messages.State, vector: Sequence[Buffer], *, now: float) -> list[Effect]:
        try:
            self.run = run_of(state, vector, now=now)
        except DamagedCheckpoint as error:
            self._begin_anew()
            return self.warn(f"{error}; it is requested again")
        self._repetition = Repetition(self.run, state.number)
        self.number, self.promise.through, self.promise.ended = state.number, 0, math.inf
        line = LogLine(
            f"following {self._primary}: {self.run.weights.schema.size} parameters at version {self.version}"
        )
        return [line, self._acknowledge()]

    def _apply(
        self, repetition: Repetition, update: messages.Update, vector: Sequence[Buffer], *, now: float
    ) -> list[Effect]:
        """Apply an update. One that is out of order is ignored: the primary sends it again."""
        if update.number != self.number + 1:
            return [self._acknowledge()]
        assert self.run is not None, "updates follow the state"
        self.number = update.number
        if isinstance(update.message, messages.HandedOver):
            self.is_handed_over = True
            return []
        return [self._acknowledge(), *repetition.apply(update, vector, now=now)]

    def _acknowledge(self, *, request: int = 0) -> SendToServer:
        said = {"durable_through": self.promise.through} if request else {}
        return self.send(messages.Followed(request=request, follow=self._follow, number=self.number, **said))

    def _begin_anew(self) -> None:
        """Request another state. The run is kept: it may be all that is left when the primary dies."""
        self._repetition = None
        self._follow = self.next_request()
        self._beats.clear()

    def _refused_for_good(self, refused: messages.Refused) -> list[Effect]:
        """The primary takes no standby."""
        why = explained(refused.reason) if refused.code == "bad_message" else refused.reason
        return self.warn(f"{self._primary} does not take a standby: {why} ({refused.code})")
