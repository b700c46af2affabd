"""Replay memory against a plain loop over the same history, and what a file keeps of it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_agent.replay.replay_memory import Prioritized, ReplayMemory
from rl_agent.replay.step_ring import Layout, StepRing
from rl_agent.replay.sum_tree import SumTree
from rl_agent.rollouts import CutOff, Trajectory

DISCOUNT = 0.9
FRAMES, SIDE = 3, 2  # of a stacked observation


@dataclass
class Step:
    """A step of one environment, as the plain loop sees it. Its action is its number."""

    observation: np.ndarray
    reward: float
    ended: str  # "", "terminated" or "truncated"
    after: np.ndarray  # the observation after the step: the final one of a game that it ended


class Game:
    """One environment whose observations stack the newest frames, each of which is a number of its own."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.observation = self._first()

    def _frame(self) -> np.ndarray:
        return self.random.normal(size=(1, SIDE)).astype(np.float32)

    def _first(self) -> np.ndarray:
        return np.repeat(self._frame(), FRAMES, 0)

    def step(self, ended: str) -> Step:
        before, after = self.observation, np.concatenate([self.observation[1:], self._frame()])
        self.observation = self._first() if ended else after
        return Step(before, float(self.random.normal()), ended, after)


def unroll_of(games: list[Game], endings: list[list[str]], first: int) -> tuple[Trajectory, list[list[Step]]]:
    """Play an unroll; its trajectory, and its steps by environment. The actions are numbered from `first` on."""
    played = [[game.step(ended) for ended in column] for game, column in zip(games, endings, strict=True)]
    T, B = len(endings[0]), len(games)
    observations = np.array([[step.observation for step in column] for column in played]).swapaxes(0, 1)
    last = np.array([game.observation for game in games])[None]
    cut_offs = [
        CutOff(t, torch.tensor([b]), torch.from_numpy(played[b][t].after[None]), ())
        for t in range(T)
        for b in range(B)
        if played[b][t].ended == "truncated"
    ]
    ends = np.array([[step.ended for step in column] for column in played]).T
    trajectory = Trajectory(
        observations=torch.from_numpy(np.concatenate([observations, last])),
        starts=torch.zeros(T + 1, B, dtype=torch.bool),
        actions=first + torch.arange(T * B).reshape(T, B),
        rewards=torch.tensor([[step.reward for step in column] for column in played]).T,
        discounts=torch.from_numpy(np.where(ends == "terminated", 0.0, DISCOUNT)),
        continues=torch.from_numpy(np.where(ends == "", 1.0, 0.0)),
        recorded={},
        initial_state=(),
        final_state=(),
        cut_offs=tuple(cut_offs),
    )  # fmt: skip
    return trajectory, played


@dataclass
class Expected:
    """What the plain loop says of a step."""

    observation: np.ndarray
    reward: float
    discount: float
    after: np.ndarray


class PlainMemory:
    """Every step, in lists."""

    def __init__(self, n_step: int) -> None:
        self.n_step = n_step
        self.steps: dict[int, list[tuple[int, Step]]] = {}  # of each environment

    def add(self, trajectory: Trajectory, played: list[list[Step]]) -> None:
        for b, column in enumerate(played):
            self.steps.setdefault(b, []).extend(zip(trajectory.actions[:, b].tolist(), column, strict=True))

    def expected(self) -> Iterator[tuple[int, Expected]]:
        for steps in self.steps.values():
            for i, (action, step) in enumerate(steps):
                if (found := self._of(steps, i)) is not None:
                    yield action, Expected(step.observation, *found)

    def _of(self, steps: list[tuple[int, Step]], i: int) -> tuple[float, float, np.ndarray] | None:
        total, discount = 0.0, 1.0
        for k in range(self.n_step):
            if i + k == len(steps):
                return None
            step = steps[i + k][1]
            total += discount * step.reward
            if step.ended == "terminated":
                return total, 0.0, step.after
            discount *= DISCOUNT
            if step.ended == "truncated":
                return total, discount, step.after
        # The observation after the newest step arrives with the next unroll.
        return None if i + self.n_step == len(steps) else (total, discount, step.after)


def drawn_by_action(memory: ReplayMemory, draws: int = 40) -> dict[int, Expected]:
    found: dict[int, Expected] = {}
    for _ in range(draws):
        if (drawn := memory.draw(50, discount=DISCOUNT)) is None:
            continue
        rows = zip(
            drawn.observations, drawn.actions, drawn.rewards, drawn.discounts, drawn.next_observations, strict=True
        )
        for observation, action, reward, discount, after in rows:
            found[int(action)] = Expected(observation.numpy(), float(reward), float(discount), after.numpy())
    return found


ENDINGS = st.lists(st.sampled_from(["", "", "", "terminated", "truncated"]), min_size=4, max_size=4)


@given(
    endings=st.lists(st.tuples(ENDINGS, ENDINGS), min_size=1, max_size=12),
    n_step=st.integers(1, 5),
    length=st.integers(6, 60),
    frames=st.sampled_from([1, FRAMES]),
    prioritized=st.booleans(),
)
@settings(deadline=None, max_examples=60)
def test_what_is_drawn_is_what_a_plain_loop_over_the_newest_steps_gives(
    endings: list[tuple[list[str], list[str]]],
    n_step: int,
    length: int,
    frames: int,
    prioritized: bool,
) -> None:
    memory = ReplayMemory(
        most_steps=2 * length, most_mib=1, frames=frames, n_step=n_step,
        prioritized=Prioritized(0.6, 0.4) if prioritized else None,
    )  # fmt: skip
    plain, games = PlainMemory(n_step), [Game(0), Game(1)]
    for number, columns in enumerate(endings):
        trajectory, played = unroll_of(games, list(columns), 8 * number)
        memory.add(trajectory)
        for buffer in (trajectory.observations, trajectory.rewards):
            buffer.zero_()  # as the next unroll overwrites them
        plain.add(trajectory, played)
    found, expected = drawn_by_action(memory), dict(plain.expected())
    for action, one in found.items():
        assert np.array_equal(one.observation, expected[action].observation)
        assert one.reward == pytest.approx(expected[action].reward, abs=1e-5)
        assert one.discount == pytest.approx(expected[action].discount)
        if one.discount:
            assert np.array_equal(one.after, expected[action].after)
    if 8 * len(endings) * 2 <= length:  # nothing was replaced: what can be drawn is drawn
        assert set(found) == set(expected)


def filled(
    path: Path | None, *, unrolls: int = 6, frames: int = 1, most_steps: int = 1000
) -> tuple[ReplayMemory, list[str]]:
    said: list[str] = []
    memory = ReplayMemory(most_steps=most_steps, most_mib=1, frames=frames, path=path, run="run", report=said.append)
    games = [Game(0), Game(1)]
    for number in range(unrolls):
        endings = ["", "truncated" if number % 2 else "", "terminated" if number % 3 == 2 else "", ""]
        memory.add(unroll_of(games, [endings, endings], 8 * number)[0])
    return memory, said


@pytest.mark.parametrize("frames", [1, FRAMES])
def test_a_memory_in_a_file_gives_the_next_process_what_it_had(tmp_path: Path, frames: int) -> None:
    path = tmp_path / "memory"
    first, said = filled(path, frames=frames)
    assert said == [f"the replay memory in {path} begins empty"]
    before = drawn_by_action(first)
    del first
    second, said = filled(path, unrolls=1, frames=frames)
    assert "continues with" in said[0]
    after = drawn_by_action(second)
    assert len(before) > 30
    for action, one in before.items():
        if action >= 8:  # the second process numbers its own actions from 0 on
            assert np.array_equal(one.observation, after[action].observation)
            assert (one.reward, one.discount) == (after[action].reward, after[action].discount)


@pytest.mark.parametrize("place", [0.2, 0.4, 0.6, 0.8, 0.99])
def test_rows_that_are_torn_are_left_out_and_the_others_stay(tmp_path: Path, place: float) -> None:
    path = tmp_path / "memory"
    memory, _ = filled(path)
    before = drawn_by_action(memory)
    layout = memory._ring.layout if memory._ring else None
    assert layout is not None
    del memory
    content = bytearray(path.read_bytes())
    used = [at for at in range(4096 + 64, len(content)) if content[at]]
    at = used[int(place * len(used))]
    content[at] ^= 0xFF
    path.write_bytes(content)
    ring = StepRing.open(path, layout)
    assert ring.lost in (1, 2)  # a row, or the rows that show a frame
    del ring
    second, said = filled(path, unrolls=1)
    assert "torn" in said[0]
    after = drawn_by_action(second)
    same = [
        action
        for action, one in before.items()
        if action >= 8 and action in after and np.array_equal(one.observation, after[action].observation)
    ]
    assert all(after[action].reward == before[action].reward for action in same)
    assert len(same) >= len([action for action in before if action >= 8]) - 3


def test_a_file_of_other_spaces_or_of_another_run_is_emptied(tmp_path: Path) -> None:
    path = tmp_path / "memory"
    layout = Layout(2, 10, (3,), "float32", (), "int64", run="one")
    ring = StepRing.open(path, layout)
    ring.append(0, 1, np.ones(3, np.float32), 5, 1.0)
    del ring
    kept = StepRing.open(path, layout)
    assert list(kept.written) == [1, 0]
    del kept
    for other in (replace(layout, run="two"), replace(layout, action=(2,)), replace(layout, environments=3)):
        assert not StepRing.open(path, other).written.any()


def test_a_file_that_another_process_uses_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "memory"
    first, _ = filled(path)
    second, said = filled(path)
    assert "lies in memory, and begins empty" in said[0]
    assert drawn_by_action(first).keys() == drawn_by_action(second).keys()


def test_stacked_observations_store_each_frame_once() -> None:
    plain = Layout(1, 1000, (4, 84, 84), "uint8", (), "int64")
    stacked = replace(plain, frames=4)
    assert stacked.bytes < 0.35 * plain.bytes


@given(most=st.integers(20_000, 2_000_000), environments=st.integers(1, 16), frames=st.sampled_from([1, 4]))
def test_a_memory_is_as_long_as_its_bound_of_bytes_allows(most: int, environments: int, frames: int) -> None:
    parts = {"environments": environments, "observation": (4, 5, 5), "observation_dtype": "uint8", "action": (),
             "action_dtype": "int64", "frames": frames, "run": ""}  # fmt: skip
    layout = Layout.within(most, 10**9, **parts)
    longer = replace(layout, length=layout.length + 1)
    assert layout.length == 1 or layout.bytes <= most < longer.bytes


@given(st.lists(st.floats(0, 1e3), min_size=1, max_size=70), st.integers(0, 2**32 - 1))
def test_rows_are_drawn_in_proportion_to_their_numbers(numbers: list[float], seed: int) -> None:
    tree = SumTree(len(numbers))
    tree.set(np.arange(len(numbers)), np.array(numbers))
    assert tree.total == pytest.approx(sum(numbers))
    if tree.total == 0:
        return
    drawn = tree.draw(2000, np.random.default_rng(seed))
    shares = np.bincount(drawn, minlength=len(numbers)) / 2000
    expected = np.array(numbers) / sum(numbers)
    assert (np.abs(shares - expected) <= 6 * np.sqrt(expected * (1 - expected) / 2000) + 1e-3).all()
    assert (np.array(numbers)[np.unique(drawn)] > 0).all()


def test_a_step_with_a_great_error_is_drawn_more_often_and_weighs_less() -> None:
    memory = ReplayMemory(most_steps=1000, most_mib=1, prioritized=Prioritized(0.5, 1.0))
    games = [Game(0)]
    memory.add(unroll_of(games, [[""] * 41], 0)[0])
    drawn = memory.draw(4000, discount=DISCOUNT)
    assert drawn is not None
    memory.set_priorities(drawn, torch.where(drawn.actions == 7, 16.0, 1.0))
    drawn = memory.draw(8000, discount=DISCOUNT)
    assert drawn is not None
    share = float((drawn.actions == 7).float().mean())
    # The newest row, whose return is not complete, has the greatest priority, and is drawn in vain.
    assert share == pytest.approx(4 / (4 + 39), rel=0.15)
    weights = {int(action): float(weight) for action, weight in zip(drawn.actions, drawn.weights, strict=True)}
    assert weights[7] == pytest.approx(0.25, rel=1e-3)
    assert weights[3] == pytest.approx(1.0)
