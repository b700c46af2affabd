"""
The standby as a machine: it applies each update of the primary to a run of its own, and takes over when the primary
hands the run over, or when the primary is silent and a worker sends HELLO.

Until then it refuses workers with `standby`. After a takeover the workers send again the pushes that the standby lacks,
as to a restarted server. A standby is complete while every durable push is here. One that is not complete may lack
pushes that workers have dropped: a living primary may go on without it, and a bad network hides a primary for a second
now and then. One that was not complete when the silence began waits longer, and for ever if a worker shows that it has
dropped such pushes.
"""

import math
from collections import Counter
from collections.abc import Sequence

from ps_common.protocol import messages
from ps_common.protocol.messages import ToServer, ToWorker
from ps_common.protocol.status import STANDBY_PHASE, Status
from ps_common.protocol.wire import Buffer, is_damaged
from ps_common.release import does_not_know_release, explained, release
from ps_server.machine.admission import proof_of
from ps_server.machine.flow_control import Limits
from ps_server.machine.parameter_server import ParameterServer
from ps_server.machine.phases import ANYBODY, Sender
from ps_server.machine.status_report import status_of, status_reply
from ps_server.replication.replication import LEASE_SECONDS
from ps_server.replication.standby_copy import Repetition, check_in, fence_of, is_proven, lacking, run_of, take_over
from ps_server.state.effects import Effect, Exit, LogLine, PeerId, Send, SendToServer
from ps_server.state.guards import DAMAGED
from ps_server.state.training_run import TrainingRun

BEAT_SECONDS = 0.25  # between two FOLLOWED that ask for a reply
MOST_WARNINGS = 20
EXCLUDING_SECONDS = 10.0  # of silence: without a reply to 40 beats, no primary is behind a network that workers can use
FENCE_SECONDS = 1.0  # between two FENCE to the replaced primary, which may live
WITHOUT_THE_RUN = {"no_weights", "other_run"}  # refusals by a server that was started anew where the primary was


class Standby:
    """
    Follows one primary. After the takeover `server` is the server of the run; None before.

    `primary` and `address`, set before the first tick, are HOST:PORT of both. `draw` is a random number for the epoch
    in which the standby would serve. `takeover_seconds` is how long the primary has to be silent. A standby that is
    restarted after its takeover gets the `server` of the run from the start.
    """

    def __init__(
        self,
        *,
        primary: str,
        draw: int,
        takeover_seconds: float,
        limits: Limits,
        now: float,
        server: ParameterServer | None = None,
    ) -> None:
        self.primary = primary
        self.address = ""
        self.server = server
        self.run = server.run if server is not None else None
        self._draw = draw
        self._takeover_seconds = takeover_seconds
        self._limits = limits
        self._release = release()  # "" at a primary that does not know this field of FOLLOW
        self._follow = 1  # the request of the newest FOLLOW
        # Of the state that came for this FOLLOW, else None. `run` may be that of an earlier one.
        self._repetition: Repetition | None = None
        self._number = 0  # the number of the last update that is applied
        self._durable_through = 0
        self._last_request = 1
        self._beats: dict[int, float] = {}  # when each request was sent whose reply would count
        self._confirmed = now - LEASE_SECONDS  # when the newest request was sent that has a reply
        self._is_bound = False  # by `_durable_through`: the primary has not said that it follows another way
        self._primary_died = math.inf  # when a server without the run was met where the primary was
        self._lacks = ""  # what the run here lacks, as a HELLO has shown
        self._primary_heard = now
        self._ticked = now
        self._due = now
        self._warned: set[str] = set()
        self._refused: Counter[str] = Counter()  # messages of the primary, by the code of what is wrong with them

    # -- messages of peers --------------------------------------------------------------------------------------------

    def receive(
        self, peer: PeerId, message: ToServer, vector: Sequence[Buffer] = (), *, now: float, sender: Sender = ANYBODY
    ) -> list[Effect]:
        """One message of a peer. A HELLO may make this standby the server."""
        if self.server is not None:
            return self.server.receive(peer, message, vector, now=now, sender=sender)
        if isinstance(message, messages.StatusRequest):
            return [status_reply(peer, message, self.run, self.status(now=now))]
        run, silence_seconds = self.run, now - self._primary_heard
        waits = silence_seconds < self._takeover_seconds or now - self._ticked > self._takeover_seconds / 2  # or paused
        if not isinstance(message, messages.Hello) or run is None or not run.lineage.is_of(message.run_id) or waits:
            reason = f"this is the standby of {self.primary}, which serves the run; connect there"
            return [_refused(peer, message.request, "standby", reason)]
        lineage = run.lineage.taken_over(draw=self._draw)
        proof, is_complete = proof_of(message.secret), self.is_complete(now=now)
        self._lacks = self._lacks or lacking(run, message, lineage, proof, is_complete=is_complete)
        if self._lacks:
            why = f"the primary {self.primary} is silent, but went on without this standby, which lacks {self._lacks}"
            reason = f"{why}; start the primary again: ps-server --resume RUN_DIR"
            return [_refused(peer, message.request, "lacking", reason), *self._warn(reason)]
        if silence_seconds < EXCLUDING_SECONDS and not self.is_complete(now=self._primary_heard):
            reason = f"this standby of {self.primary} is not in sync, and waits for {EXCLUDING_SECONDS:g} s of silence"
            return [_refused(peer, message.request, "standby", reason)]
        silent = f"{self.primary} has not served the run for {silence_seconds:.1f} s"
        server, effects = self._take_over(run, silent, now=now)
        return effects + server.receive(peer, message, vector, now=now, sender=sender)

    def unreadable(self, peer: PeerId, reason: str, *, now: float) -> list[Effect]:
        """A peer has sent bytes that are no message."""
        if self.server is not None:
            return self.server.unreadable(peer, reason, now=now)
        return [_refused(peer, 0, "bad_message", reason)]

    # -- messages of the primary --------------------------------------------------------------------------------------

    def receive_from_primary(self, message: ToWorker, vector: Sequence[Buffer] = (), *, now: float) -> list[Effect]:
        """
        One message of the primary, and its buffers, which must not change any more.

        Raises SettingsError or CheckpointError when this program cannot read the primary's state.
        """
        if self.server is not None:
            return self._receive_from_replaced(self.server, message, now=now)
        if isinstance(message, messages.Refused) and message.code in WITHOUT_THE_RUN:
            self._primary_died, self._is_bound = min(self._primary_died, now), True
        elif not isinstance(message, messages.Stop):
            self._primary_heard, self._lacks = now, ""
        if is_damaged(vector, check_in(message)):
            return self._warn(f"{self.primary}: vectors arrive damaged, are not used, and are sent again", DAMAGED)
        match message:
            case messages.State() if message.request == self._follow and self._repetition is None:
                return self._adopt(message, vector, now=now)
            case messages.Update() if message.request == self._follow and self._repetition is not None:
                return self._apply(self._repetition, message, vector, now=now)
            case messages.State():
                return [self._acknowledge()]
            case messages.Leading(request=beat) if beat in self._beats and self.run and is_proven(message, self.run):
                self._durable_through, self._confirmed = message.durable_through, self._beats[beat]
                self._primary_died, self._is_bound = math.inf, True
                self.run.progress.follow_minutes(message.minutes)
                self._beats = {number: sent for number, sent in self._beats.items() if number > beat}
            case messages.Refused(code="not_following" | "fell_behind" | "no_weights" as code):
                self._durable_through = 0 if code == "fell_behind" else self._durable_through
                self._is_bound = self._is_bound and code != "not_following"
                if self._repetition is not None:
                    self._begin_anew()
                    sentence = f"not in sync with {self.primary} any more: {message.reason}"
                    return [LogLine(sentence, warning=True, peer="primary")]
                if code == "fell_behind" and message.request == self._follow:
                    self._begin_anew()
            case messages.Refused():
                return self._refused_for_good(message)
            case messages.Stop() if self.run is None or self._primary_died == math.inf:  # else another run has ended
                return [LogLine(f"the run is over: {message.reason}"), Exit(message.reason)]
        return []

    def tick(self, *, now: float) -> list[Effect]:
        """Time has passed. To be called several times a second."""
        self._ticked = now
        if self.server is not None:
            return [*self._fence(self.server, now=now), *self.server.tick(now=now)]
        if self.run is not None:
            self.run.progress.tick(now=now)
        if now < self._due:
            return []
        self._due = now + BEAT_SECONDS
        self._last_request += 1
        if self._repetition is None:
            held = self.run.lineage.run_id if self.run is not None else ""
            who = messages.Follow(request=self._follow, address=self.address, run_id=held, release=self._release)
            return [self._send(who)]
        self._beats = {beat: sent for beat, sent in self._beats.items() if now - sent < LEASE_SECONDS}
        self._beats[self._last_request] = now
        return [self._acknowledge(request=self._last_request)]

    def check(self) -> str:
        """The violations of this state, as one sentence; "" if there are none."""
        found = self._repetition.violations(self._number) if self._repetition is not None else ()
        return self.server.check() if self.server is not None else "; ".join(found)

    def leave(self, *, now: float) -> list[Effect]:
        """The process is asked to leave: at once, unless it serves the run."""
        return self.server.leave(now=now) if self.server is not None else [Exit("asked to leave")]

    def was_away(self, seconds: float, *, now: float) -> None:
        """
        The process was paused, and `now` stood still. The promises of the primary ran out all the same; its silence is
        measured anew, because the connection may have been cut meanwhile.
        """
        self._confirmed -= seconds
        self._beats = {beat: sent - seconds for beat, sent in self._beats.items()}
        self._primary_heard = now

    def is_complete(self, *, now: float) -> bool:
        """Whether every durable push is here then: the primary has promised that, and could not go back on it."""
        has_all = self._is_bound and 0 < self._durable_through <= self._number
        return has_all and min(now, self._primary_died) - self._confirmed < LEASE_SECONDS

    def status(self, *, now: float) -> Status:
        """The state of the run, as far as the standby knows it."""
        if self.server is not None:
            return self.server.status(now=now)
        return status_of(self.run, [], phase=STANDBY_PHASE, refused=dict(self._refused), now=now)

    # -- following ----------------------------------------------------------------------------------------------------

    def _adopt(self, state: messages.State, vector: Sequence[Buffer], *, now: float) -> list[Effect]:
        self.run = run_of(state, vector, now=now)
        self._repetition = Repetition(self.run, state.number)
        self._number, self._durable_through, self._primary_died = state.number, 0, math.inf
        line = LogLine(f"following {self.primary}: {self.run.weights.schema.size} parameters at version {self.version}")
        return [line, self._acknowledge()]

    def _apply(
        self, repetition: Repetition, update: messages.Update, vector: Sequence[Buffer], *, now: float
    ) -> list[Effect]:
        """Apply an update. One that is out of order is ignored: the primary sends it again."""
        if update.number != self._number + 1:
            return [self._acknowledge()]
        assert self.run is not None, "updates follow the state"
        self._number = update.number
        if isinstance(update.message, messages.HandedOver):
            return self._take_what_is_handed_over(self.run, now=now)
        return [self._acknowledge(), *repetition.apply(update, vector, now=now)]

    def _acknowledge(self, *, request: int = 0) -> SendToServer:
        said = {"durable_through": self._durable_through} if request and self._release else {}
        return self._send(messages.Followed(request=request, follow=self._follow, number=self._number, **said))

    def _send(self, message: ToServer) -> SendToServer:
        return SendToServer(self.primary, message, "--standby-of")

    def _begin_anew(self) -> None:
        """Request another state. The run is kept: it may be all that is left when the primary dies."""
        self._repetition = None
        self._follow = self._last_request = self._last_request + 1
        self._beats.clear()

    def _refused_for_good(self, refused: messages.Refused) -> list[Effect]:
        """The primary takes no standby, unless it is of an earlier release and is told less."""
        if self._release and does_not_know_release(refused.reason):
            self._release = ""
            return []
        why = explained(refused.reason) if refused.code == "bad_message" else refused.reason
        return self._warn(f"{self.primary} does not take a standby: {why} ({refused.code})")

    def _warn(self, text: str, code: str = "") -> list[Effect]:
        """Count by the code, if any. Log each warning once, and at most so many: any peer can cause some."""
        self._refused.update([code] if code else [])
        if text in self._warned or len(self._warned) >= MOST_WARNINGS:
            return []
        self._warned.add(text)
        return [LogLine(text, warning=True)]

    # -- takeover -----------------------------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """The version of the weights; 0 before there is a state."""
        return self.run.store.version if self.run and self.run.store else 0

    def _take_what_is_handed_over(self, run: TrainingRun, *, now: float) -> list[Effect]:
        """The primary leaves, and this standby has applied its last update."""
        if not run.weights.is_sound():
            return self._warn(f"{self.primary} hands over weights that hold NaN or Inf: not taking over")
        server, effects = self._take_over(run, f"{self.primary} leaves", now=now)
        return [*self._fence(server, now=now), *effects]  # the primary waits for FENCE

    def _take_over(self, run: TrainingRun, why: str, *, now: float) -> tuple[ParameterServer, list[Effect]]:
        """Become the server of the run."""
        lineage = run.lineage.taken_over(draw=self._draw)
        take_over(run, lineage, self.primary)
        self.server = server = ParameterServer(run, lineage=lineage, overrides={}, limits=self._limits, now=now)
        server.checkpoints.saved_version, self._due = 0, now
        return server, [LogLine(f"{why}: taking over at version {self.version}", warning=True), *server.save(now=now)]

    def _fence(self, server: ParameterServer, *, now: float) -> list[Effect]:
        """Send FENCE to the old primary: it may have been paused, or cut off."""
        if now < self._due or server.run is None:
            return []
        self._due = now + FENCE_SECONDS
        self._last_request += 1
        return [self._send(fence_of(server.lineage, request=self._last_request, address=self.address))]

    def _receive_from_replaced(self, server: ParameterServer, message: ToWorker, *, now: float) -> list[Effect]:
        """The old primary lives. If it was restarted after the takeover, its epoch is later, and this server stops."""
        if isinstance(message, messages.Update):
            self._due = now  # FENCE was lost
            return self._fence(server, now=now)
        if not isinstance(message, messages.Leading) or server.run is None or not is_proven(message, server.run):
            return []
        return server.fence(self.primary, epoch=message.epoch, now=now) if message.epoch > server.epoch else []


def _refused(peer: PeerId, request: int, code: str, reason: str) -> Send:
    return Send(peer, messages.Refused(request=request, code=code, reason=reason))
