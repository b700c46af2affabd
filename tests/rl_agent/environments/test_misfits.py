"""Observations that are not of their space are refused with what was seen; so are environments that are not alike."""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, Space

from ps_common.errors import SettingsError
from rl_agent.environments import custom_environment
from tests.rl_agent.environments.counting_environments import (
    NUMBERS,
    PICTURE,
    Counts,
    Reuses,
    steps,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*WARN")  # Gymnasium's checker warns of most of these environments

MISFITS: list[tuple[Space[Any], Callable[[int], Any], str]] = [
    (
        PICTURE,
        lambda t: np.full((9, 8, 3), t / 10),
        r"it is float64 from 0.1 to 0.1, and bytes from 0 to 255 \(uint8\) are expected, as",
    ),
    (PICTURE, lambda t: np.full((9, 8, 3), 300 * t), "it is int64 from 300 to 300, and bytes"),
    (PICTURE, lambda t: np.full((9, 8, 3), -t), "it is int64 from -1 to -1"),
    (PICTURE, lambda t: np.zeros((3, 9, 8), np.uint8), r"it has shape \(3, 9, 8\), and \(9, 8, 3\) is expected"),
    (PICTURE, lambda t: np.zeros((9, 8, 1), np.uint8), r"it has shape \(9, 8, 1\)"),
    (NUMBERS, lambda t: np.zeros(1, np.float32), r"it has shape \((2, )?1,?\), and \((2, )?3,?\) is expected"),
    (NUMBERS, lambda t: np.zeros(4, np.float32), r"it has shape \((2, )?4,?\)"),
    (NUMBERS, lambda t: [1, None, 2], "it is object, and numbers are expected"),
    (NUMBERS, lambda t: [[1], [2, 3]], "inhomogeneous"),
    (NUMBERS, lambda t: torch.zeros(3, requires_grad=True), "requires grad"),
    (Dict(a=NUMBERS, b=NUMBERS), lambda t: {"a": np.zeros(3, np.float32)}, "KeyError: 'b'"),
    (Dict(a=NUMBERS, b=PICTURE), lambda t: {"a": np.zeros(3), "b": np.zeros((9, 8, 3))}, "it is float64 from 0 to 0"),
    (Box(0, 255, (5,), np.uint8), lambda t: np.full(5, 0.5, np.float32), "it is float32 from 0.5 to 0.5, and bytes"),
    (Discrete(4), lambda t: 4, "out of bounds"),
]


@pytest.mark.parametrize(("space", "shown", "sentence"), MISFITS, ids=[sentence for *_, sentence in MISFITS])
@pytest.mark.parametrize("is_vector", [False, True], ids=["", "vector"])
def test_what_is_not_of_the_space_is_refused_with_what_was_seen(
    made: Any, space: Space[Any], shown: Callable[[int], Any], sentence: str, is_vector: bool
) -> None:
    class Game(Counts):
        def shown(self) -> Any:
            return shown(1) if self.t == 2 else super().shown()

    class Vectors(Reuses):
        def step(self, actions: Any) -> Any:
            one = shown(1)
            seen: Any = {name: np.stack([part] * 2) for name, part in one.items()} if isinstance(one, dict) else None
            if seen is None:
                seen = torch.stack([one] * 2) if isinstance(one, torch.Tensor) else [one] * 2
            return seen, *super().step(actions)[1:]

    Vectors.space = space
    environments = made(Vectors if is_vector else lambda number: Game(space, number))
    environments.reset(0)
    with pytest.raises(
        SettingsError, match=f"^--environment mine:Game: an observation does not fit its .*({sentence})"
    ):
        steps(environments, 2)


class Masked(Counts):
    """Gives masks in `info`, except after the steps of `forgets`."""

    forgets: tuple[int, ...] = ()

    def info(self) -> Any:
        return {} if self.t in self.forgets else {"action_mask": np.array([1, 0], np.int8)}


def test_a_mask_that_is_missing_is_refused(made: Any) -> None:
    class Forgets(Masked):
        forgets = (2,)

    environments = made(lambda number: Forgets(NUMBERS, number))
    environments.reset(0)
    with pytest.raises(
        SettingsError, match=r"^--environment mine:Game: info has no action_mask, as it had .* --action-mask none$"
    ):
        steps(environments, 2)


@pytest.mark.parametrize(
    ("other", "what"),
    [({"space": PICTURE}, "observations float32 .*uint8"), ({"actions": Discrete(3)}, "actions Disc")],
)
def test_environments_that_one_network_cannot_play_are_refused_and_closed(
    made: Any, other: dict[str, Any], what: str
) -> None:
    opened: list[Counts] = []

    def make(number: int) -> Counts:
        opened.append(Counts(other.get("space", NUMBERS) if number else NUMBERS, number))
        opened[-1].action_space = other.get("actions", Discrete(2)) if number else Discrete(2)
        return opened[-1]

    with pytest.raises(SettingsError, match=f"^--environment mine:Game: of two environments one has the {what}"):
        made(make, count=3)
    assert [game.is_open for game in opened] == [False, False]


def test_a_close_that_fails_replaces_no_sentence_and_the_wrapper_is_closed(
    made: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Wrapper(gymnasium.Wrapper[Any, Any, Any, Any]):
        def close(self) -> None:
            raise OSError("the arena is locked")

    monkeypatch.setattr(custom_environment, "custom_part", lambda *_, **__: Wrapper)
    with pytest.raises(SettingsError, match=r"^--environment mine:Game: of two environments one has the obs"):
        made(lambda number: Counts(PICTURE if number else NUMBERS, number), wrapper=("mine:Wrapper",))
    assert caplog.text.count("close() of the environment has failed: OSError: the arena is locked") == 2


def test_an_environment_that_cannot_be_closed_keeps_no_other_open(made: Any) -> None:
    closed: list[int] = []

    class Fails(Counts):
        def close(self) -> None:
            closed.append(self.number)
            if self.number == 1 and len(closed) <= 3:
                raise OSError("the arena is locked")

    environments = made(lambda number: Fails(NUMBERS, number), count=3)
    with pytest.raises(OSError, match="locked"):
        environments.close()
    assert sorted(closed) == [0, 1, 2]
