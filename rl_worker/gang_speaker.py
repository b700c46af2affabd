"""
The speaker of a gang: the worker whose gradients are the means of all members', and who gives them what it pulls.

The speaker acts and learns as a member does. It has the gang's one connection, account in the ledger and resend buffer,
so a push of the gang is counted exactly once as that of any worker. Within a gang learning is synchronous: all
gradients of a push were computed on the same weights.

A member asks, and waits for the answer. The speaker writes weights into the shared memory only while all members wait.
A gang is of the same processes from its begin to its end: one that dies ends all of them, one that hangs holds all of
them up, as the step of an environment does. A gradient that is not finite is left out of the mean.
"""

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from multiprocessing.connection import wait
from types import TracebackType
from typing import Any, Self

import torch
from msgspec.structs import replace
from torch import Tensor

from ps_client.shell.newest import Newest
from ps_client.shell.remote_parameters import RemoteParameters
from ps_common.errors import SettingsError
from ps_common.program.child_processes import LinkedChild, end_all
from ps_common.protocol.messages import Episode
from ps_common.protocol.status import MOST_METERS
from ps_common.protocol.tensors import Schema, all_moved
from ps_common.settings.run_spec import Algorithm, RunSpec
from ps_common.sockets.shared_memory import Segment
from rl_worker.gang_link import TARGET, WEIGHTS, Answer, Begin, Leave, Member, Pull, Push, Vectors

MODULE = "rl_worker.gang_member"
LOOK_SECONDS = 0.2  # between two looks at members that are waited for
LEAVE_SECONDS = 3.0  # for members to leave
SPEED = "steps_per_second"
LEFT_OUT = "left_out_gradients"  # since the gang began

log = logging.getLogger("rl-worker")


@dataclass(frozen=True, eq=False)
class Pushed:
    """A gradient of the speaker (0) or a member. It is 0 where it moves nothing."""

    number: int
    gradient: Tensor
    steps: int
    blocks: tuple[str, ...]  # that it moves; () are all


class Gang:
    """The parameters of a run for the trainer of the speaker, as those of any worker."""

    def __init__(
        self,
        parameters: RemoteParameters,
        schema: Schema,
        run: RunSpec,
        begin: Callable[[int, str, int], Begin],
        *,
        members: int,
        check: Callable[[], None],
        start: Callable[[], LinkedChild] = lambda: LinkedChild(MODULE),
    ) -> None:
        """
        Start the members; `members` counts the speaker. `begin` makes what one is told, of its number, the name of the
        shared memory and the size of a vector. `check` is called while members are waited for, and raises when the run
        is over.

        Raises SettingsError where no memory can be shared.
        """
        self._parameters, self._schema = parameters, schema
        self._run, self._check = run, check
        self._adjusted: Algorithm | None = None
        self._left_out = Counter[int]()  # gradients, by member
        self._target: Newest | None = None  # without its weights, which are in the shared memory
        self._shared_version = (0, 0)  # epoch and version of the weights in the shared memory
        try:
            segment = Segment.make()
            self._vectors = Vectors(segment, schema.size)
            self._vectors.reserve(TARGET + members)
        except OSError as error:
            raise SettingsError(f"--gang {members}: its processes cannot share memory here: {error}") from error
        self._members = [Member(begin(number, segment.name, schema.size), start) for number in range(1, members)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in self._members:
            member.say(Leave())
        end_all([member.child for member in self._members], within_seconds=LEAVE_SECONDS)

    def pull(self, have: Newest | None = None, *, target: bool = False) -> Newest:
        """As RemoteParameters', for the gang."""
        self._meet()
        if target:
            pulled = self._parameters.pull(target=True)
            self._load_target(pulled)
            self._answer_about_target()
            return pulled
        newest = self._parameters.pull(have)
        self._answer(newest, pushed=False)
        return newest

    def push_pull(
        self, gradient: Tensor | None, *, computed_on: Newest, steps: int, blocks: tuple[str, ...] = ()
    ) -> Newest:
        """
        Push the mean of the gradients, and the sum of the statistics, of all who have pushed one, and all steps.
        Changes `gradient`.
        """
        self._meet()
        pushed = [] if gradient is None else [Pushed(0, gradient, steps, blocks)]
        steps_alone = steps if gradient is None else 0
        for member in self._members:
            if isinstance(member.asked, Push):
                if member.asked.has_gradient:
                    its_gradient = self._vectors.tensor(TARGET + member.number)
                    pushed.append(Pushed(member.number, its_gradient, member.asked.steps, member.asked.blocks))
                else:
                    steps_alone += member.asked.steps
        accepted = self._finite(pushed)
        steps = steps_alone + sum(one.steps for one in accepted)
        moved = all_moved([one.blocks for one in accepted])
        total = self._mean(gradient, accepted)
        newest = self._parameters.push_pull(total, computed_on=computed_on, steps=steps, blocks=moved)
        self._answer(newest, pushed=True)
        return newest

    def _mean(self, own: Tensor | None, pushed: Sequence["Pushed"]) -> Tensor | None:
        """
        The mean of each weight over those that move it, and the sum of statistics, in the memory of the speaker's own
        gradient if it has one.
        """
        if not pushed:
            return None
        total = torch.zeros(self._schema.size) if own is None else own
        if pushed[0].number != 0:
            total.zero_()
        for one in pushed:
            if one.number != 0:  # the speaker's own stands there
                total.add_(one.gradient)
        for place, block in self._schema.blocks:
            total[place].div_(max(1, sum(not one.blocks or block.name in one.blocks for one in pushed)))
        return total

    def _finite(self, pushed: list["Pushed"]) -> list["Pushed"]:
        """Those with finite gradients; all if there is none, which the server refuses with its reason."""
        finite = [one for one in pushed if math.isfinite(float(one.gradient.sum()))] or pushed
        for number in {one.number for one in pushed} - {one.number for one in finite}:
            self._left_out[number] += 1
            if self._left_out[number] == 1:
                log.warning("gang/%d: a value of its gradient is not finite: such gradients are left out", number)
        return finite

    def report(self, episodes: Sequence[Episode], meters: dict[str, float]) -> None:
        """Report the games and meters of all members."""
        if meters and self._left_out:
            meters = {LEFT_OUT: float(self._left_out.total())} | meters
        every = {0: meters} | {member.number: member.meters for member in self._members if member.meters}
        games = [*episodes, *(game for member in self._members for game in member.take_episodes())]
        self._parameters.report(games, _of_all(every) if meters else {})

    def finish(self) -> None:
        """As RemoteParameters', after the members have left and reported their games."""
        self.dismiss()
        self._parameters.finish()

    def dismiss(self) -> None:
        """Have the members leave, and report their last games."""
        for member in self._members:
            member.say(Leave())
        present, end = self._members, time.monotonic() + LEAVE_SECONDS
        while present and time.monotonic() < end:
            wait([member.link.connection for member in present], LOOK_SECONDS)
            present = [member for member in present if member.read()]
        self.report([], {})

    def adjusted_algorithm(self) -> Algorithm | None:
        """As RemoteParameters'. Members get the settings with their next answers."""
        adjusted = self._parameters.adjusted_algorithm()
        self._adjusted = adjusted or self._adjusted
        for member in self._members:
            member.is_to_adjust |= adjusted is not None
        return adjusted

    def _meet(self) -> None:
        """Wait until every member has asked for something. Raises Interrupted or PsRlError where one is gone."""
        while late := [member for member in self._members if member.asked is None]:
            if not late[0].link.waits(seconds=LOOK_SECONDS):
                self._check()
            for member in late:
                if not member.read() and member.asked is None:
                    member.raise_its_end()

    def _answer(self, newest: Newest, *, pushed: bool) -> None:
        """Give all who wait for it this version."""
        if newest.weights is not None:
            self._vectors.tensor(WEIGHTS).copy_(newest.weights)
            self._shared_version = (newest.epoch, newest.version)
        for member in self._members:
            if (pushed or member.asked == Pull(target=False)) and not member.asks_for_target:
                self._tell(member, newest)
        if any(member.asks_for_target for member in self._members):
            known = self._target
            if known is None or (known.epoch, known.version) != (newest.epoch, newest.target_version):
                self._load_target(self._parameters.pull(target=True))
            self._answer_about_target()

    def _load_target(self, target: Newest) -> None:
        assert target.weights is not None, "a pull that names no version brings weights"
        self._vectors.tensor(TARGET).copy_(target.weights)
        self._target = replace(target, weights=None)

    def _answer_about_target(self) -> None:
        for member in self._members:
            if member.asks_for_target and self._target is not None:
                self._say(member, self._target, are_new=True)

    def _tell(self, member: Member, newest: Newest) -> None:
        """A member may have waited with a push while the others were given weights: it lacks those, too."""
        are_new, member.version = member.version != self._shared_version, self._shared_version
        self._say(member, newest, are_new=are_new)

    def _say(self, member: Member, newest: Newest, *, are_new: bool) -> None:
        adjusted: dict[str, Any] | None = None
        if member.is_to_adjust and self._adjusted is not None:
            adjusted = replace(self._run, algorithm=self._adjusted).to_dict()
        member.is_to_adjust = False
        versions = (newest.epoch, newest.version, newest.global_steps, newest.target_version)
        answer = Answer(*versions, are_new, adjusted, workers=newest.workers, recalls=newest.recalls)
        member.say(answer)


def _of_all(every: Mapping[int, dict[str, float]]) -> dict[str, float]:
    """The meters of a gang: of its members', by their numbers, and the speed of each as a curve of its own."""
    names = dict.fromkeys(name for meters in every.values() for name in meters)
    found = {name: [meters[name] for meters in every.values() if name in meters] for name in names}
    of_all = {name: sum(values) / (1 if name == SPEED else len(values)) for name, values in found.items()}
    speeds = {f"gang/{number}": meters[SPEED] for number, meters in every.items() if SPEED in meters}
    return dict(islice((of_all | speeds).items(), MOST_METERS))
