"""
What a shard after the first adopts from shard 1: the settings of the run with all that was adjusted, and its end.

Shard 1 alone decides these. Each other shard asks it with every tick. A shard settles nothing before the first reply in
its life: no push meets settings that are out of date. After that reply it goes on while shard 1 is away.
"""

from collections.abc import Mapping
from typing import Any

from ps_common.errors import SettingsError
from ps_common.protocol.lineage import Lineage, Shard
from ps_common.protocol.messages import Adjust, Evaluation, Hello, RunReply, RunRequest, RunState, StopRequest, ToServer
from ps_common.protocol.names import LONGEST_SENTENCE, as_text
from ps_common.settings.overrides import contradiction
from ps_common.settings.run_settings import run_for_peers, run_from_dict
from ps_server.state.adjustments import NO_ADJUSTMENTS
from ps_server.state.effects import Effect, LogLine, SendToServer
from ps_server.state.guards import Denied
from ps_server.state.training_run import TrainingRun

END_SECONDS = 5.0  # for shard 1 to end the run when this shard has counted as many steps


class FirstShard:
    """Shard 1 as another shard knows it. `is_followed` is false on shard 1 itself, and on a server without shards."""

    def __init__(self, shard: Shard, overrides: Mapping[str, Any]) -> None:
        """`overrides` are flat settings from the flags of this server, which have no effect."""
        self.is_followed = shard.number > 1
        self._shard = shard
        self._overrides = overrides
        # Why the settings of the run are not known here; "" when they are.
        self._trouble = f"{shard} has no reply of shard 1 ({self._address}) yet" if self.is_followed else ""
        self._is_refused = False  # the trouble lasts until somebody mends it
        self._newest = ("", 0)  # run id and epoch of shard 1
        self._global_steps = 0
        self.ending = ""  # why the run is over, as another shard says
        self._over_since: float | None = None

    def ask(self, run: TrainingRun | None, *, ending: str) -> list[Effect]:
        """Ask for what is new. `ending`: why this server ends, which shard 1 is told if it does not know it yet."""
        if not self.is_followed:
            return []
        news = "" if self.ending else as_text(ending, LONGEST_SENTENCE)
        first = run.first_shard if run else ""
        request = RunRequest(request=1, shard=self._shard.number, first_shard=first, ending=news)
        return [SendToServer(self._address, request, "--shards")]

    def hear(self, message: ToServer, run: TrainingRun | None) -> None:
        """Another shard of this run may say to shard 1 that it cannot go on, which ends the run."""
        if not isinstance(message, RunRequest) or not message.ending or run is None or self.is_followed:
            return
        if 1 < message.shard <= self._shard.of and message.first_shard == run.first_shard:
            self.ending = as_text(f"shard {message.shard}/{self._shard.of}: {message.ending}", LONGEST_SENTENCE)

    def end_reason(self, run: TrainingRun | None, *, now: float) -> str:
        """Why the run is over; "" while it is not. Shard 1 alone looks at the budget."""
        return self.ending if self.ending or self.is_followed or run is None else run.end_reason(now=now)

    @property
    def another_failed(self) -> bool:
        """Whether another shard cannot go on, as it has said to this one, which is shard 1."""
        return bool(self.ending) and not self.is_followed

    @property
    def uninformed(self) -> set[int]:
        """The shards that do not know yet that the run is over, when this server ends it."""
        if self.is_followed:
            return set() if self.ending else {1}
        return set(range(2, self._shard.of + 1))

    def holds(self, run: TrainingRun, *, now: float) -> bool:
        """
        Whether pushes wait for shard 1: for its first reply, or for the end of the run.

        When this shard has counted all steps of the budget, shard 1 is about to end the run, at the same T. If it does
        not, it lacks a push, and the run goes on.
        """
        if self._trouble:
            return True
        if not self.is_followed or not run.end_reason(now=now):
            self._over_since = None
            return False
        self._over_since = now if self._over_since is None else self._over_since
        return now - self._over_since < END_SECONDS

    def check(self, message: ToServer, run: TrainingRun | None) -> None:
        """Raises Denied for what shard 1 alone decides, and for a worker that cannot join here, or not yet."""
        if not self.is_followed:
            return
        if isinstance(message, Adjust | StopRequest | Evaluation):
            raise Denied("not_first", f"shard 1 decides that for all shards: send it to {self._address}")
        if not isinstance(message, Hello) or not message.first_shard:
            return
        if self._is_refused:
            raise Denied("other_run", self._trouble)
        if run is None or not run.first_shard:
            raise Denied("standby", f"{self._trouble}; it waits for the settings of the run")
        if message.first_shard != run.first_shard:
            raise Denied(
                "other_run",
                f"{self._shard} here belongs to run {run.first_shard}, and shard 1 of {message.worker_id} to run "
                f"{message.first_shard}: --shards of these servers must name the shards of one run",
            )
        if run.store is None and self._global_steps and not message.incarnation:
            raise Denied(
                "other_run",
                f"{self._shard} has no weights, though shard 1 is at step {self._global_steps}: was its folder lost? "
                "Resume it from a copy, or begin a new run",
            )

    def follow(
        self, run: TrainingRun | None, lineage: Lineage, reply: RunReply, *, now: float
    ) -> tuple[TrainingRun | None, bool, list[Effect]]:
        """
        The run with the settings of shard 1, whether anything of them was new, and what to log.

        The run is new when there was none. It is `run` as it was when this is a reply of another run's server.
        """
        state = reply.state
        if state is None or not (reply.run or state.ending):
            return run, False, []  # there is no run yet
        if state.run_id == self._newest[0] and state.epoch < self._newest[1]:
            return run, False, []  # a server that was replaced, and does not know it yet
        try:
            self._check(run, state)
            spec = run_from_dict(reply.run, source=f"shard 1 at {self._address}")
        except SettingsError as error:
            is_news, self._trouble, self._is_refused = self._trouble != str(error), str(error), True
            return run, False, [LogLine(str(error), warning=True, peer="shard 1")] if is_news else []
        self.ending = state.ending
        if not reply.run:
            return run, False, []
        is_first = bool(self._trouble)
        self._trouble, self._is_refused = "", False
        self._newest, self._global_steps = (state.run_id, state.epoch), state.global_steps
        run = run or TrainingRun(spec, lineage)
        lines: list[Effect] = []
        is_changed = run.adopt_settings(reply, state, now=now)
        if is_changed or is_first:
            at = f"version {reply.settings_version}, at step {state.global_steps} there"
            lines.append(LogLine(f"has the settings of shard 1: {at}", kind="adjustment"))
        if is_first and (sentence := contradiction(spec, self._overrides, adjusted=state.adjustments.settings)):
            sentence = f"the settings of all shards are those of shard 1: {sentence}"
            lines.append(LogLine(sentence, warning=True, peer="shard 1"))
        return run, is_changed or is_first, lines

    def _check(self, run: TrainingRun | None, state: RunState) -> None:
        if state.shard != Shard(addresses=self._shard.addresses):
            theirs, ours = (f"{one} of --shards {' '.join(one.addresses)}" for one in (state.shard, self._shard))
            raise SettingsError(
                f"the server at {self._address} is {theirs}, and this one is {ours}: give all servers of a run the "
                "same --shards, in the same order"
            )
        if run is not None and run.first_shard not in ("", state.first_shard):
            raise SettingsError(
                f"{self._shard} belongs to run {run.first_shard}, and shard 1 at {self._address} serves run "
                f"{state.first_shard}: --shards must name the shards of one run"
            )

    @property
    def _address(self) -> str:
        return self._shard.addresses[0]


def run_reply(request: RunRequest, run: TrainingRun | None, lineage: Lineage, *, ending: str = "") -> RunReply:
    """The reply to RUN_REQUEST of a worker, or of another shard. `ending`: why the run is over. Raises Denied."""
    if run is None and not request.shard:
        raise Denied("no_weights", "there is no run yet: no worker has joined")
    made, state = run.adjustments if run else NO_ADJUSTMENTS, None
    if request.shard:
        state = RunState(
            shard=lineage.shard,
            run_id=lineage.run_id,
            first_shard=run.first_shard if run else lineage.run_id,
            epoch=lineage.epoch,
            global_steps=run.progress.global_steps if run else 0,
            adjustments=made,
            ending=as_text(ending, LONGEST_SENTENCE),
        )
    spec, number = run_for_peers(run.spec) if run else {}, request.request
    return RunReply(request=number, settings_version=made.version, run=spec, drained=made.drained, state=state)
