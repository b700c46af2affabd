"""The speaker of a gang and its members, in threads: what is pushed, who is waited for, and what ends it."""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from multiprocessing import Pipe
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch import Tensor

from ps_client.shell.newest import Newest
from ps_common.errors import PsRlError, RunEnded
from ps_common.program.stop_signals import Interrupted
from ps_common.protocol.messages import Episode
from ps_common.protocol.status import MOST_METERS
from ps_common.protocol.tensors import BlockSpec, Schema, TensorSpec, all_moved
from ps_common.settings.run_files import load_preset
from ps_common.sockets.shared_memory import Segment
from ps_server.state.optimizers import mean
from rl_worker.gang_link import Answer, Begin, Leave, Link, Pull, Vectors
from rl_worker.gang_member import OfSpeaker, link_of_input
from rl_worker.gang_speaker import Gang, Pushed

RUN = load_preset("cartpole-a3c")
SCHEMA = Schema([TensorSpec("w", (3,)), TensorSpec("count", (1,), role="statistic")])


class Server:
    """Parameters at a server that adds gradients to the weights and counts what it gets."""

    def __init__(self) -> None:
        self.newest = Newest(epoch=1, version=1, global_steps=0, target_version=1, weights=torch.zeros(4))
        self.pushes: list[tuple[list[float], int]] = []
        self.reports: list[tuple[list[float], dict[str, float]]] = []
        self.targets_pulled = 0
        self.adjusted: Any = None
        self.is_finished = False

    def pull(self, have: Newest | None = None, *, target: bool = False) -> Newest:
        self.targets_pulled += target
        if target:
            version = self.newest.target_version
            return replace(self.newest, version=version, weights=torch.full((4,), 100.0 + version))
        return self.newest

    def push_pull(self, gradient: Tensor, *, computed_on: Newest, steps: int, blocks: tuple[str, ...] = ()) -> Newest:
        assert computed_on.version == self.newest.version
        self.pushes.append((gradient.tolist(), steps))
        assert self.newest.weights is not None
        self.newest = replace(
            self.newest,
            version=self.newest.version + 1,
            global_steps=self.newest.global_steps + steps,
            weights=self.newest.weights + gradient,
        )
        return self.newest

    def report(self, episodes: Sequence[Episode], meters: dict[str, float]) -> None:
        self.reports.append(([episode.episode_return for episode in episodes], meters))

    def finish(self) -> None:
        self.is_finished = True

    def adjusted_algorithm(self) -> Any:
        adjusted, self.adjusted = self.adjusted, None
        return adjusted


class Thread:
    """Stands for the process of a member: `work` gets the member's parameters."""

    has_left = False

    def __init__(self, work: Callable[[OfSpeaker], None], heard: list[Begin]) -> None:
        self.link, self._theirs = Pipe()
        self._work, self._heard = work, heard
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def cause_of_death(self) -> str:
        return "it was told to"

    def ask_to_leave(self) -> None:
        pass

    def end(self, *, within_seconds: float) -> None:
        self._thread.join(within_seconds)
        self._theirs.close()

    def wait(self, *, within_seconds: float) -> bool:
        return True

    def read_rest(self, *, within_seconds: float) -> None:
        pass

    def _run(self) -> None:
        with self._theirs:
            link = Link(self._theirs, Answer | Leave | Begin)
            begin = link.receive()
            self._heard.append(begin)
            with suppress(RunEnded):
                self._work(OfSpeaker(link, Vectors(Segment.open(begin.memory), begin.size), begin.member))


class Gangs:
    """A gang whose members do `work`, and what was told to each of them."""

    def __init__(self, work: Callable[[OfSpeaker], None], members: int) -> None:
        self.server, self.told = Server(), list[Begin]()
        self.gang = Gang(
            self.server,  # type: ignore[arg-type]
            SCHEMA,
            RUN,
            begin,
            members=members,
            check=lambda: None,
            start=lambda: Thread(work, self.told),  # type: ignore[arg-type,return-value]
        )
        self.newest = self.gang.pull()

    def push(self, *gradient: float, steps: int = 1) -> tuple[list[float], int]:
        """Push the speaker's gradient, and return what the server got."""
        self.newest = self.gang.push_pull(
            torch.tensor(gradient, dtype=torch.float32), computed_on=self.newest, steps=steps
        )
        return self.server.pushes[-1]


@contextmanager
def gang_of(work: Callable[[OfSpeaker], None], members: int = 2) -> Iterator[Gangs]:
    made = Gangs(work, members)
    with made.gang:
        yield made


def begin(member: int, memory: str, size: int) -> Begin:
    return Begin(
        run=RUN.to_dict(), modules=(), hooks=(), name=f"w+{member}", worker=0, member=member, environments=4, threads=1,
        device="cpu", seed=member, is_seeded=True, memory=memory, size=size,
    )  # fmt: skip


def learns(parameters: OfSpeaker) -> None:
    """Pushes tens of its own weights, and one unit of the statistic, for ever."""
    newest = parameters.pull()
    while True:
        assert newest.weights is not None
        gradient = torch.from_numpy(parameters.gradient_memory(4))
        gradient[:] = torch.tensor([10.0, 10.0, 10.0, 1.0])
        newest = parameters.push_pull(gradient, computed_on=newest, steps=5)


def test_a_push_is_the_mean_of_the_gradients_and_the_sum_of_statistics_and_steps() -> None:
    with gang_of(learns, members=3) as one:
        assert one.push(1, 2, 3, 1) == ([7.0, pytest.approx(22 / 3), pytest.approx(23 / 3), 3.0], 11)
        assert one.push(1, 1, 1, 1) == ([7.0, 7.0, 7.0, 3.0], 11)
    assert sorted(told.member for told in one.told) == [1, 2]


def test_all_members_compute_on_the_weights_of_the_last_push() -> None:
    seen: list[list[float]] = []

    def looks(parameters: OfSpeaker) -> None:
        newest = parameters.pull()
        while True:
            assert newest.weights is not None
            seen.append(newest.weights.tolist())
            newest = parameters.push_pull(torch.zeros(4), computed_on=newest, steps=1)

    with gang_of(looks) as one:
        for number in range(5):
            one.push(number, 0, 0, 0)
    assert [weights[0] for weights in seen[:5]] == [0, 0, 0.5, 1.5, 3]


def test_a_gradient_that_is_not_finite_is_left_out_of_the_mean_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    def diverges(parameters: OfSpeaker) -> None:
        newest = parameters.pull()
        newest = parameters.push_pull(torch.tensor([1.0, float("nan"), 1.0, 1.0]), computed_on=newest, steps=5)
        while True:
            newest = parameters.push_pull(torch.full((4,), 3.0), computed_on=newest, steps=5)

    with gang_of(diverges) as one:
        assert one.push(1, 2, 3, 1, steps=2) == ([1, 2, 3, 1], 2)
        assert one.push(float("inf"), 2, 3, 1, steps=2) == ([3, 3, 3, 3], 5)
        one.gang.report([], {"loss": 1.0})
        assert one.push(1, 1, 1, 1) == ([2, 2, 2, 4], 6)
        assert one.server.reports[-1][1] == {"left_out_gradients": 2, "loss": 1}
    assert ["gang/1: a value" in caplog.text, "gang/0: a value" in caplog.text] == [True, True]


def test_a_member_that_dies_ends_the_gang_with_its_name() -> None:
    def dies(parameters: OfSpeaker) -> None:
        parameters.pull()

    with gang_of(dies) as one, pytest.raises(PsRlError, match=r"w\+1 ended, and its gang with it: it was told to"):
        one.push(1, 1, 1, 0)
    assert one.server.pushes == []


def test_members_that_a_signal_asks_to_leave_have_the_speaker_leave_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """As an engine that ends a job sends it to every process."""
    monkeypatch.setattr(Thread, "has_left", True)

    def leaves(parameters: OfSpeaker) -> None:
        parameters.pull()

    with gang_of(leaves) as one, pytest.raises(Interrupted):
        one.push(1, 1, 1, 0)


def test_a_gang_that_waits_for_a_member_sees_the_end_of_the_run() -> None:
    end = threading.Event()

    def hangs(parameters: OfSpeaker) -> None:
        parameters.pull()
        end.wait(20)

    def over() -> None:
        raise RunEnded("the run is over")

    with gang_of(hangs) as one:
        one.gang._check = over
        with pytest.raises(RunEnded):
            one.push(1, 1, 1, 0)
        end.set()


def test_a_member_gets_the_target_weights_and_the_adjusted_settings() -> None:
    got: list[Any] = []
    done = threading.Event()

    def pulls_target(parameters: OfSpeaker) -> None:
        newest = parameters.pull()
        target = parameters.pull(target=True)
        assert target.weights is not None
        got.append((newest.target_version, target.version, target.weights.tolist()))
        parameters.push_pull(torch.zeros(4), computed_on=newest, steps=1)
        got.append(parameters.adjusted_algorithm())
        done.set()
        learns(parameters)

    with gang_of(lambda parameters: pulls_target(parameters)) as one:
        one.server.adjusted = replaced = RUN.algorithm
        assert one.gang.adjusted_algorithm() is replaced
        while not done.is_set():
            one.push(0, 0, 0, 0)
        assert got == [(1, 1, [101.0] * 4), replaced]
        assert one.server.targets_pulled == 1


def test_games_and_meters_of_all_members_are_reported_as_those_of_one_worker() -> None:
    reported = threading.Event()

    def reports(parameters: OfSpeaker) -> None:
        parameters.report([Episode(7.0, 3)], {"loss": 3.0, "steps_per_second": 20.0})
        reported.set()
        learns(parameters)

    with gang_of(reports) as one:
        assert reported.wait(20)
        one.gang.report([Episode(5.0, 2)], {"loss": 1.0, "steps_per_second": 10.0})
        one.gang.report([], {"loss": 1.0, "steps_per_second": 10.0} | {f"m{number}": 0.0 for number in range(30)})
    (games, meters), (later, bounded) = one.server.reports
    assert games == [5.0, 7.0]
    assert later == []
    assert meters == {"loss": 2.0, "steps_per_second": 30.0, "gang/0": 10.0, "gang/1": 20.0}
    assert len(bounded) == MOST_METERS


def test_the_pipe_of_a_member_is_out_of_reach_of_what_its_environments_read_and_start() -> None:
    ours, theirs = Pipe()
    before = os.dup(0)
    try:
        os.dup2(theirs.fileno(), 0)
        theirs.close()
        link = link_of_input()
        Link(ours, Pull).send(Leave())
        assert os.read(0, 100) == b""
        assert link.receive() == Leave()
        assert not os.get_inheritable(link.connection.fileno())
        link.connection.close()
        with closing(ours), pytest.raises(EOFError):
            ours.recv_bytes()
    finally:
        os.dup2(before, 0)
        os.close(before)


def test_the_mean_of_a_gang_is_that_of_the_server_where_members_move_other_blocks() -> None:
    specs = [TensorSpec(name, (3,), block=BlockSpec(name=name)) for name in ("actor", "critic")]
    schema = Schema([*specs, TensorSpec("rest", (2,)), TensorSpec("seen", (1,), role="statistic")])
    drawn = torch.Generator().manual_seed(0)
    moved: list[tuple[str, ...]] = [(), ("critic",), ("critic", "actor"), ("critic",)]
    gradients = []
    for blocks in moved:
        gradient = torch.randn(schema.size, generator=drawn)
        for place in schema.at_rest(blocks):
            gradient[place] = 0
        gradients.append(gradient)
    of_server, _ = mean(list(zip(gradients, moved, strict=True)), schema)
    pushed = [Pushed(number, one.clone(), 1, moved[number]) for number, one in enumerate(gradients)]
    of_gang = Gang._mean(SimpleNamespace(_schema=schema), pushed[0].gradient, pushed)  # type: ignore[arg-type]
    assert of_gang is not None
    torch.testing.assert_close(of_gang, of_server)
    assert all_moved(moved) == ()
    assert all_moved(moved[1:]) == ("actor", "critic")
