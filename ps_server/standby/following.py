"""
The standby's side of following a primary: it requests the state, applies each update to a run of its own, and keeps the
newest promise of the primary. Who promotes the standby is not known here.

pair_states.py has the states. While the standby asks for the run it sends FOLLOW, under a new number each time that it
lost its place; while it applies updates it acknowledges each. The run is kept through all of that: it may be all that
is left when the primary dies. A server without the run at the primary's address (`no_weights`, `other_run`) is no sign
of life of the primary, and what it promised stays as it was.
"""

import math
from collections.abc import Sequence

from ps_common.errors import DamagedCheckpoint
from ps_common.protocol import messages
from ps_common.protocol.messages import Refused, ToServer, ToWorker
from ps_common.protocol.wire import Buffer
from ps_common.release import explained, release
from ps_server.replication.pair_states import AT_STANDBY, AtStandby, OfPrimary
from ps_server.replication.replication import LEASE_SECONDS
from ps_server.replication.standby_copy import Replay, is_proven, run_of
from ps_server.standby.promotion import Promise
from ps_server.state.effects import Effect, Exit, LogLine, SendToServer
from ps_server.state.training_run import TrainingRun

BEAT_SECONDS = 0.25  # between two FOLLOWED that ask for a reply
MOST_WARNINGS = 20
WITHOUT_THE_RUN = ("no_weights", "other_run")  # refusals by a server without the run, where the primary was


class Following:
    """The conversation with one primary, HOST:PORT; `process` is the random text of this process."""

    def __init__(self, primary: str, *, process: str, run: TrainingRun | None, now: float) -> None:
        self.run = run
        self.position = 0  # in the log of the primary, up to which everything has come; 0 before there is a state
        self.state = AtStandby.TRANSFER
        self.promise = Promise()
        self.heard = now  # the primary, last
        self._primary, self._process = primary, process
        self._follow = 1  # the request of the newest FOLLOW
        self._replay: Replay | None = None  # of the state that came for this FOLLOW; `run` may be of an earlier one
        self._last_request = 1
        self._beats: dict[int, float] = {}  # when each request was sent whose reply would count
        self._due = now
        self._warned: set[str] = set()

    @property
    def version(self) -> int:
        return self.run.store.version if self.run and self.run.store else 0

    @property
    def is_applying(self) -> bool:
        return self.state in (AtStandby.CATCHING_UP, AtStandby.BOUND)

    def holds_every_durable_push(self, *, at: float) -> bool:
        """Whether every push that was durable then is here: the primary has promised that, and not taken it back."""
        is_kept = self.state in (AtStandby.BOUND, AtStandby.BEREFT)
        return is_kept and self.promise.holds(self.position, at=at)

    def sees(self, event: OfPrimary) -> AtStandby:
        self.state = AT_STANDBY[self.state].get(event, self.state)
        return self.state

    def receive(self, message: ToWorker, vector: Sequence[Buffer], *, now: float) -> list[Effect]:
        """One message of the primary. Raises SettingsError or CheckpointError when its state cannot be read here."""
        has_no_run = isinstance(message, Refused) and message.code in WITHOUT_THE_RUN
        if not (has_no_run or isinstance(message, messages.Stop)):
            self.heard = now
        match message:
            case messages.State() if message.request == self._follow and not self.is_applying:
                return self._adopt(message, vector, now=now)
            case messages.Update() if message.request == self._follow and self._replay is not None:
                return self._apply(self._replay, message, vector, now=now)
            case messages.State():
                return [self._acknowledge()]
            case messages.Leading(request=beat) if beat in self._beats and self.run and is_proven(message, self.run):
                self.promise.renew(message.durable_through, sent=self._beats[beat])
                self.run.progress.follow_minutes(message.minutes)
                self._beats = {number: sent for number, sent in self._beats.items() if number > beat}
                if message.durable_through:
                    self.sees(OfPrimary.PROMISE)
            case Refused():
                return self._refused(message, now=now)
            case messages.Stop() if self.run is None or self.promise.ended == math.inf:  # else another run has ended
                return [LogLine(f"the run is over: {message.reason}"), Exit(message.reason)]
        return []

    def _refused(self, refused: Refused, *, now: float) -> list[Effect]:
        """The standby has lost its place, or gets none."""
        was_applying = self.is_applying
        match refused.code:
            case "fell_behind" | "not_following" if refused.request < self._follow:
                return []  # a late reply, of a place that this standby has lost before
            case "fell_behind":
                self.promise.through = 0
                self.sees(OfPrimary.FELL_BEHIND)
            case "not_following":
                self.sees(OfPrimary.NOT_FOLLOWING)
            case "no_weights" | "other_run":
                self.promise.ended = min(self.promise.ended, now)
                held = self.promise.holds(self.position, at=self.promise.ended)
                self.sees(OfPrimary.DIED_BOUND if held else OfPrimary.HAS_NO_RUN)
            case _:
                return self._refused_for_good(refused)
        if was_applying:
            self._ask_anew()
            sentence = f"not in sync with {self._primary} any more: {refused.reason}"
            return [LogLine(sentence, warning=True, peer="primary")]
        if refused.code == "fell_behind":
            self._ask_anew()  # a state may be under way that was sent under the old number
        return self._refused_for_good(refused) if refused.code == "other_run" else []

    def tick(self, address: str, *, now: float) -> list[Effect]:
        """Time has passed; `address` is where this standby listens."""
        if self.run is not None:
            self.run.progress.tick(now=now)
        if now < self._due:
            return []
        self._due = now + BEAT_SECONDS
        request = self.next_request()
        if not self.is_applying:
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

    def next_request(self) -> int:
        self._last_request += 1
        return self._last_request

    def send(self, message: ToServer) -> SendToServer:
        return SendToServer(self._primary, message, "--standby-of")

    def warn(self, text: str) -> list[Effect]:
        """Log each warning once, and a bounded number in all: any peer can cause some."""
        if text in self._warned or len(self._warned) >= MOST_WARNINGS:
            return []
        self._warned.add(text)
        return [LogLine(text, warning=True)]

    def _adopt(self, state: messages.State, vector: Sequence[Buffer], *, now: float) -> list[Effect]:
        try:
            self.run = run_of(state, vector, now=now)
        except DamagedCheckpoint as error:
            self._ask_anew()
            return self.warn(f"{error}; it is requested again")
        self.sees(OfPrimary.STATE)
        self._replay = Replay(self.run)
        self.position, self.promise.through, self.promise.ended = state.number, 0, math.inf
        line = LogLine(
            f"following {self._primary}: {self.run.weights.schema.size} parameters at version {self.version}"
        )
        return [line, self._acknowledge()]

    def _apply(self, replay: Replay, update: messages.Update, vector: Sequence[Buffer], *, now: float) -> list[Effect]:
        """Apply an update. One that is out of order is ignored: the primary sends it again."""
        if update.number != self.position + 1:
            return [self._acknowledge()]
        assert self.run is not None, "updates follow the state"
        self.position = update.number
        if not isinstance(update.message, messages.HandedOver):
            return [self._acknowledge(), *replay.apply(update, vector, now=now)]
        if not self.run.weights.is_all_finite():
            return self.warn(f"{self._primary} hands over weights that hold NaN or Inf: they are not taken")
        self.sees(OfPrimary.HANDS_OVER)
        return []

    def _acknowledge(self, *, request: int = 0) -> SendToServer:
        said = {"durable_through": self.promise.through} if request else {}
        return self.send(messages.Followed(request=request, follow=self._follow, number=self.position, **said))

    def _ask_anew(self) -> None:
        """Request another state, under a new number."""
        self._replay = None
        self._follow = self.next_request()
        self._beats.clear()

    def _refused_for_good(self, refused: messages.Refused) -> list[Effect]:
        """The primary takes no standby."""
        why = explained(refused.reason) if refused.code == "bad_message" else refused.reason
        return self.warn(f"{self._primary} does not take a standby: {why} ({refused.code})")
