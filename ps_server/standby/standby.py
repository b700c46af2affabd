"""
The standby as a machine: it follows the primary, and serves the run once it is promoted: by the primary, which hands
the run over, or when the primary is silent by those whom promotion.py names.

Until then it refuses workers with `standby`, or with `lacking` when one has shown that the primary went on without it.
After its promotion the workers send again the pushes that it lacks, as to a restarted server.
"""

import math
import shlex
from collections.abc import Sequence
from functools import partial

from ps_common.protocol import messages
from ps_common.protocol.messages import ToServer, ToWorker
from ps_common.protocol.names import LONGEST_SENTENCE, as_text
from ps_common.protocol.status import STANDBY_PHASE, Status
from ps_common.protocol.wire import Buffer
from ps_server.machine.checkpoints import NOTHING
from ps_server.machine.flow_control import Limits
from ps_server.machine.parameter_server import ParameterServer
from ps_server.machine.parts import ANYBODY, Sender
from ps_server.machine.status_report import status_of, status_reply
from ps_server.replication.pair_states import AtStandby, OfPrimary
from ps_server.replication.standby_copy import fence_of, is_proven, promote
from ps_server.standby.following import Following
from ps_server.standby.promotion import RUINED, Claim, lacks_of, testimony
from ps_server.state.effects import ClaimRun, DropClaim, Effect, Exit, LogLine, PeerId, Send
from ps_server.state.training_run import TrainingRun

CLAIM_SECONDS = 1.0  # between two questions to the arbiter
FENCE_SECONDS = 1.0  # between two FENCE to the replaced primary, which may live


class Standby:
    """
    Follows one primary. Once it is promoted `server` is the server of the run; None before.

    `primary` and `address`, set before the first tick, are HOST:PORT of both. `process` is a random text of this
    process, `draw` a random number for the epoch in which the standby would serve. `takeover_seconds` is how long the
    primary has to be silent. With an arbiter no worker promotes the standby. A standby that is restarted after its
    promotion gets the `server` of the run from the start.
    """

    def __init__(
        self,
        *,
        primary: str,
        draw: int,
        takeover_seconds: float,
        limits: Limits,
        now: float,
        process: str = "",
        has_arbiter: bool = False,
        server: ParameterServer | None = None,
    ) -> None:
        self.primary = primary
        self.address = ""
        self.server = server
        self.following = Following(primary, process=process, run=server.run if server is not None else None, now=now)
        if server is not None:
            self.following.state = AtStandby.PROMOTED
        self._draw, self._takeover_seconds, self._limits = draw, takeover_seconds, limits
        self._lacks = ""  # what the run here lacks, as a HELLO or the arbiter has shown since the primary was heard
        self._has_arbiter = has_arbiter
        self._claim_due = now  # infinite while the arbiter is asked
        self._arbiter_said = ""
        self._ticked = self._fence_due = now

    @property
    def run(self) -> TrainingRun | None:
        """The copy of the primary's run, or the run that is served; None before there is a state."""
        return self.following.run

    @property
    def version(self) -> int:
        return self.following.version

    # -- messages of peers --------------------------------------------------------------------------------------------

    def receive(
        self, peer: PeerId, message: ToServer, vector: Sequence[Buffer] = (), *, now: float, sender: Sender = ANYBODY
    ) -> list[Effect]:
        """One message of a peer. A HELLO or PROMOTE may make this standby the server."""
        if self.server is not None:
            return self.server.receive(peer, message, vector, now=now, sender=sender)
        if isinstance(message, messages.StatusRequest):
            return [status_reply(peer, message, self.run, self.status(now=now))]
        if isinstance(message, messages.Promote):
            return self._promoted_by_admin(peer, message, sender, now=now)
        run = self.run
        if not self._is_primary_silent(now=now):
            reason = f"this is the standby of {self.primary}, which serves the run; connect there"
            return [_refused(peer, message.request, "standby", reason)]
        if not isinstance(message, messages.Hello) or run is None or not run.lineage.is_of(message.run_id):
            held = f"holds run {run.lineage.run_id}" if run is not None else "holds no run yet"
            reason = f"this is the standby of {self.primary}, which is silent; it {held}: ask the other addresses"
            return [_refused(peer, message.request, "standby", reason)]
        return self._join(peer, message, run, vector, sender, now=now)

    def _join(
        self, peer: PeerId, hello: messages.Hello, run: TrainingRun, vector: Sequence[Buffer], sender: Sender, *,
        now: float,
    ) -> list[Effect]:  # fmt: skip
        """HELLO of a worker while the primary is silent. What it shows to be lacking is remembered."""
        copy, least = self.following, self._takeover_seconds
        said = testimony(hello, run, copy.holds_every_durable_push, least_seconds=least, now=now)
        self._lacks = self._lacks or said.lacks or _ruined(run)
        if self._lacks:
            why = f"the primary {self.primary} is silent, and went on without this standby, which lacks {self._lacks}"
            reason = f"{why}; start the primary again: ps-server --resume RUN_DIR; or {self._command}"
            return [_refused(peer, hello.request, "lacking", reason), *copy.warn(reason)]
        event = OfPrimary.WITNESS if said.is_witness else OfPrimary.ANY_WORKER
        if self._has_arbiter or copy.sees(event) is not AtStandby.PROMOTED:
            return self._unconvinced(peer, hello, now=now)
        silent = f"{self.primary} has not served the run for {now - copy.heard:.1f} s"
        server, effects = self._serve(run, silent, now=now)
        return effects + server.receive(peer, hello, vector, now=now, sender=sender)

    def _unconvinced(self, peer: PeerId, hello: messages.Hello, *, now: float) -> list[Effect]:
        """This worker alone promotes nobody: it is to ask the other addresses, and to come back."""
        asked: list[Effect] = []
        why = "no worker that it has served has come since to say that it is gone"
        if self._has_arbiter:
            why = f"the arbiter decides{self._arbiter_said}"
            if now >= self._claim_due:
                asked, self._claim_due = [ClaimRun()], math.inf
        reason = f"the primary {self.primary} is silent to this standby, and {why}: ask the other addresses"
        return [_refused(peer, hello.request, "standby", f"{reason}; or {self._command}"), *asked]

    def _promoted_by_admin(
        self, peer: PeerId, message: messages.Promote, sender: Sender, *, now: float
    ) -> list[Effect]:
        """PROMOTE of an admin, who answers for what is lost."""
        run, refused = self.run, partial(_refused, peer, message.request)
        if not sender.is_admin:
            return [refused("not_admin", "to promote a standby takes an admin's key")]
        if run is None or _ruined(run):
            return [refused("lacking", f"this standby lacks {'the run' if run is None else RUINED}")]
        if not self._is_primary_silent(now=now):
            how = "ask it to leave (SIGTERM), and it hands the run over"
            return [refused("primary_lives", f"the primary {self.primary} serves the run: {how}")]
        lost = self._what_is_lost(now=now)
        if not message.reason:
            return [refused("no_reason", f"{lost}. To promote this standby all the same, say why (--reason)")]
        self.following.sees(OfPrimary.ADMIN)
        server, effects = self._serve(run, f"an admin: {message.reason}: {lost}", now=now)
        number, epoch, version = message.request, server.epoch, server.version
        reply = messages.Promoted(request=number, epoch=epoch, version=version, lost=as_text(lost, LONGEST_SENTENCE))
        return [*effects, Send(peer, reply)]

    def _what_is_lost(self, *, now: float) -> str:
        """A sentence on what a promotion at this moment loses."""
        copy, promise = self.following, self.following.promise
        if copy.holds_every_durable_push(at=now):
            return f"nothing is lost that was durable at {self.primary}"
        is_behind = not 0 < promise.through <= copy.position
        why = "was not in sync" if is_behind else f"has not been in touch with it for {now - promise.confirmed:.0f} s"
        shown = f", and a worker has shown that it lacks {self._lacks}" if self._lacks else ""
        after = f"whatever {self.primary} did after version {self.version} may be lost"
        return f"{after}, also pushes that workers know to be durable: this standby {why}{shown}"

    def _is_primary_silent(self, *, now: float) -> bool:
        was_paused = now - self._ticked > self._takeover_seconds / 2  # what the primary has said meanwhile comes first
        return now - self.following.heard >= self._takeover_seconds and not was_paused

    @property
    def _command(self) -> str:
        return f"promote this standby: ps-ctl promote --server {shlex.quote(self.address)}"

    def unreadable(self, peer: PeerId, reason: str, *, now: float) -> list[Effect]:
        if self.server is not None:
            return self.server.unreadable(peer, reason, now=now)
        return [_refused(peer, 0, "bad_message", reason)]

    # -- messages of the primary, and of the arbiter ------------------------------------------------------------------

    def receive_from_primary(self, message: ToWorker, vector: Sequence[Buffer] = (), *, now: float) -> list[Effect]:
        """
        One message of the primary, and its buffers, which must not change any more.

        Raises SettingsError or CheckpointError when this program cannot read the primary's state.
        """
        if self.server is not None:
            return self._receive_from_replaced(self.server, message, now=now)
        effects = self.following.receive(message, vector, now=now)
        if self.following.heard == now:
            self._lacks = ""
        if self.following.state is not AtStandby.PROMOTED or self.run is None:
            return effects
        server, serves = self._serve(self.run, f"{self.primary} leaves", now=now)
        return [*effects, *self._fence(server, now=now), *serves]  # the primary waits for FENCE

    def claimed(self, claim: Claim, *, now: float) -> list[Effect]:
        self._claim_due, self._arbiter_said = now + CLAIM_SECONDS, f", which {claim.why}"
        if claim.lineage is None:
            return []
        if self.run is not None and self.server is None and self._is_primary_silent(now=now):
            self._lacks = self._lacks or lacks_of(claim, self.run) or _ruined(self.run)
            if not self._lacks:
                self.following.sees(OfPrimary.ARBITER)
                return self._serve(self.run, f"the arbiter {claim.why}", now=now)[1]
        return [DropClaim()]

    # -- time, and the end --------------------------------------------------------------------------------------------

    def tick(self, *, now: float) -> list[Effect]:
        """Time has passed. To be called several times a second."""
        self._ticked = now
        if self.server is not None:
            return [*self._fence(self.server, now=now), *self.server.tick(now=now)]
        return self.following.tick(self.address, now=now)

    def leave(self, *, now: float) -> list[Effect]:
        """The process is asked to leave: at once, unless it serves the run."""
        return self.server.leave(now=now) if self.server is not None else [Exit("asked to leave")]

    def was_away(self, seconds: float, *, now: float) -> None:
        """
        The process was paused, and `now` stood still. The promises of the primary ran out all the same; its silence is
        measured from now on, because the connection may have been cut meanwhile.
        """
        self.following.was_away(seconds, now=now)

    def holds_every_durable_push(self, *, now: float) -> bool:
        """Whether every push that is durable now is here."""
        return self.following.holds_every_durable_push(at=now)

    def status(self, *, now: float) -> Status:
        if self.server is not None:
            return self.server.status(now=now)
        return status_of(self.run, [], phase=STANDBY_PHASE, now=now)

    # -- promotion ----------------------------------------------------------------------------------------------------

    def _serve(self, run: TrainingRun, why: str, *, now: float) -> tuple[ParameterServer, list[Effect]]:
        """This standby is promoted: become the server of the run."""
        lineage = run.lineage.promoted(draw=self._draw)
        promote(run, lineage, self.primary)
        self.server = server = ParameterServer(run, lineage=lineage, overrides={}, limits=self._limits, now=now)
        server.checkpoints.saved = NOTHING  # the checkpoints of the run are on the primary's disk
        self._fence_due = now
        line = LogLine(f"{why}: promoted at version {self.version}", warning=True)
        return server, [line, *server.save(now=now)]

    def _fence(self, server: ParameterServer, *, now: float) -> list[Effect]:
        """Send FENCE to the old primary: it may have been paused, or cut off."""
        if now < self._fence_due or server.run is None:
            return []
        self._fence_due = now + FENCE_SECONDS
        fence = fence_of(server.lineage, request=self.following.next_request(), address=self.address)
        return [self.following.send(fence)]

    def _receive_from_replaced(self, server: ParameterServer, message: ToWorker, *, now: float) -> list[Effect]:
        """The old primary lives. If it was restarted after the promotion, its epoch is later, and this server stops."""
        if isinstance(message, messages.Update):
            self._fence_due = now  # FENCE was lost
            return self._fence(server, now=now)
        if not isinstance(message, messages.Leading) or server.run is None or not is_proven(message, server.run):
            return []
        return server.fence(self.primary, epoch=message.epoch, now=now) if message.epoch > server.epoch else []


def _refused(peer: PeerId, request: int, code: str, reason: str) -> Send:
    return Send(peer, messages.Refused(request=request, code=code, reason=as_text(reason, LONGEST_SENTENCE)))


def _ruined(run: TrainingRun) -> str:
    return "" if run.weights.is_all_finite() else RUINED
