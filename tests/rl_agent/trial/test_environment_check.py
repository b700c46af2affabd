"""The trial of an environment plays a game, and compares what is shown with the spaces."""

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from ps_common.errors import SettingsError
from ps_common.settings.run_settings import with_settings
from ps_common.settings.run_spec import RunSpec
from rl_agent.trial import run_check
from rl_agent.trial.run_check import check_run

GAME = '''
import gymnasium, numpy, torch
from gymnasium.spaces import *

class Game(gymnasium.Env):
    """Games of eight steps."""

    observation_space = {space}
    action_space = Discrete(3)

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return self.shown(), self.info()

    {methods}

    def step(self, action):
        self.t += 1
        ends = self.t == 8
        {before}
        return self.shown(), {reward}, {terminated}, {truncated}, self.info()

    def shown(self):
        return {shown}

    def info(self):
        return {info}

class Wrapper(gymnasium.Wrapper):
    def __init__(self, env):
        super().__init__(env)
        if hasattr(self, "space"):
            self.observation_space = self.space

    {wrapped}

class Vectors(gymnasium.vector.SyncVectorEnv):
    def __init__(self, num_envs):
        super().__init__([Game] * num_envs, autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP)

    {vectors}
'''
CORRECT = {
    "space": "Box(0, 255, (16, 16, 3), numpy.uint8)",
    "shown": "numpy.full((16, 16, 3), self.t, numpy.uint8)",
    "before": "pass",
    "reward": "1.0",
    "terminated": "ends",
    "truncated": "False",
    "info": "{}",
    "wrapped": "pass",
    "vectors": "pass",
    "methods": "pass",
}
VECTOR = {"space": "Box(-1, 1, (3,), numpy.float32)", "shown": "numpy.zeros(3, numpy.float32)"}


def run_of(folder: Path, *, name: str = "Game", settings: dict[str, Any] | None = None, **changes: str) -> RunSpec:
    """A run with the game so changed."""
    for module in [module for module in sys.modules if module == "own_game"]:
        del sys.modules[module]
    (folder / "own_game.py").write_text(GAME.format(**CORRECT | changes))
    importlib.invalidate_caches()
    return with_settings(RunSpec(), {"environment.id": f"own_game:{name}"} | (settings or {}), source="test")


def card_of(folder: Path, **changes: Any) -> list[str]:
    """The start card of such a run."""
    return check_run(run_of(folder, **changes), imports=())


def warnings_in(card: list[str]) -> list[str]:
    return [line.split(maxsplit=1)[1] for line in card if line.startswith("  warning")]


def test_a_correct_game_passes_without_a_warning(folder: Path) -> None:
    assert warnings_in(card_of(folder)) == []
    assert warnings_in(card_of(folder, **VECTOR)) == []


FITS_NOT = r"an observation does not fit its space .*"
LATE = [
    ({"shown": "numpy.random.rand(16, 16, 3) if self.t == 7 else numpy.zeros((16, 16, 3), numpy.uint8)"},
     FITS_NOT + r", uint8\): it is float64 from .* to 0.*, and bytes from 0"),
    ({"shown": "numpy.full((16, 16, 3), 40 * self.t)"}, r"it is int64 from 280 to 280, and bytes from 0 to 255"),
    ({"shown": "numpy.zeros((16, 16, 3 - self.t // 7), numpy.uint8)"}, r"it has shape \(16, 16, 2\), and \(16, 16,"),
    ({"space": "Discrete(7)", "shown": "min(self.t, 7)"}, r"it is 7, which is out of bounds"),
    ({"space": "Discrete(7)", "shown": "5 - self.t"}, r"it is -1, which is out of bounds"),
    ({"reward": "None if ends else 1.0"}, "the reward nan"),
    ({"reward": "numpy.ones(1 + self.t // 7)"}, r"ValueError: could not broadcast"),
    ({"reward": "'one' if ends else 1"}, "ValueError: could not convert string to float: 'one'"),
    ({"terminated": "numpy.zeros(1 + self.t // 7, bool)"}, "ValueError: could not broadcast"),
    ({"before": "if self.t == 7: return 3"}, "TypeError: cannot unpack non-iterable int"),
    ({"before": "if self.t == 7: raise OSError('no track')"}, r"fails when it is tried: OSError: no track \(own_game"),
]  # fmt: skip
LATE_IDS = [str(changes) for changes, _ in LATE]


@pytest.mark.parametrize(("changes", "sentence"), LATE, ids=LATE_IDS)
def test_what_is_wrong_late_in_a_game_is_found(folder: Path, changes: dict[str, str], sentence: str) -> None:
    with pytest.raises(SettingsError, match=f"^--environment own_game:Game: .*({sentence})"):
        card_of(folder, **changes)


@pytest.mark.parametrize(("changes", "sentence"), [
    ({"seen": "seen / 300"}, FITS_NOT + r", uint8\): it is float64 from 0.* to 0.*, and bytes"),
    ({"seen": "seen[..., :1]"}, r"it has shape \(16, 16, 1\), and \(16, 16, 3\)"),
    ({"rewards": "1.0"}, "cannot reshape array of size 1"),
    ({"rewards": "[None, 1.0]"}, "the reward nan"),
    ({"truncated": "False"}, "cannot reshape array of size 1"),
    ({"info": "None"}, "'NoneType' object has no attribute 'get'"),
])  # fmt: skip
def test_what_is_wrong_late_in_a_game_of_a_vector_environment_is_found(
    folder: Path, changes: dict[str, str], sentence: str
) -> None:
    names = ("seen", "rewards", "terminated", "truncated", "info")
    returned = ", ".join(changes.get(name, name) for name in names)
    step = f"{', '.join(names)} = super().step(actions)\n        late = terminated.any() or seen.max() == 7"
    vectors = f"def step(self, actions):\n        {step}\n        return ({returned}) if late else ({', '.join(names)})"
    with pytest.raises(SettingsError, match=f"^--environment own_game:Vectors: .*({sentence})"):
        card_of(folder, name="Vectors", vectors=vectors)
    card_of(folder, name="Vectors")


@pytest.mark.parametrize(("changes", "wrapped"), [
    (VECTOR | {"shown": "numpy.full(3, numpy.nan)"}, "numpy.nan_to_num(seen)"),
    (VECTOR | {"shown": "numpy.zeros((3, 1, 2))"}, "seen[:, 0, 0]"),
    (VECTOR | {"reward": "None"}, "seen"),
])  # fmt: skip
@pytest.mark.filterwarnings("ignore:.*WARN")
def test_what_a_wrapper_mends_is_no_fault(folder: Path, changes: dict[str, str], wrapped: str) -> None:
    class_body = f"""def reset(self, **given):
        seen, info = self.env.reset(**given)
        return {wrapped}, info

    def step(self, action):
        seen, reward, *rest = self.env.unwrapped.step(action)
        return {wrapped}, reward or 0.0, *rest"""
    settings = {"environment.wrapper": ["own_game:Wrapper"]}
    card_of(folder, wrapped=class_body, settings=settings, **changes)
    with pytest.raises(SettingsError, match=r"^--environment own_game:Game: "):
        card_of(folder, **changes)


@pytest.mark.parametrize(("space", "shown"), [
    ("Discrete(9)", "numpy.array([self.t])"),
    ("Discrete(9)", "torch.tensor(self.t)"),
    ("Dict(said=Text(5, min_length=0), n=Discrete(9))", "{'said': 'a' * (self.t % 5), 'n': self.t}"),
    ("Dict(said=MultiBinary(2))", "{'said': numpy.array([True, False])}"),
])  # fmt: skip
@pytest.mark.filterwarnings("ignore:.*WARN")
def test_what_training_takes_passes(folder: Path, space: str, shown: str) -> None:
    card_of(folder, space=space, shown=shown)


@pytest.mark.parametrize("info", [
    "{'winner': None if self.t % 2 else 1}",
    "{'path': numpy.zeros((self.t, 2))}",
    "{'state': {'t': self.t} if self.t % 2 else 3}",
])  # fmt: skip
@pytest.mark.parametrize("shown", ["numpy.zeros(3, numpy.float32)", "torch.zeros(3)", "[0, 0.5, 1]"])
@pytest.mark.filterwarnings("error")
def test_what_training_does_not_read_does_not_matter(folder: Path, info: str, shown: str) -> None:
    card_of(folder, **VECTOR | {"shown": shown, "info": info})


def test_numbers_that_nothing_can_be_learned_from_are_refused(folder: Path) -> None:
    with pytest.raises(SettingsError, match=r"^--environment own_game:Game: environment 0 returned the reward 1e\+09"):
        card_of(folder, reward="1e9")
    with pytest.raises(SettingsError, match=r"an observation with 1e\+20 \(beyond ±1e\+10: clip or scale it\) in it"):
        card_of(folder, **VECTOR | {"shown": "numpy.full(3, 1e20)"})


STRICT = "if action in (0, self.t % 2 + 1): raise ValueError(f'{action} is forbidden')"
MASK = "{'action_mask': numpy.eye(3, dtype=numpy.int8)[2 - (self.t + 1) % 2]}"


def test_a_game_that_forbids_actions_is_tried_with_those_that_its_mask_allows(folder: Path) -> None:
    card_of(folder, before=STRICT, info=MASK)
    spaces = {"space": "Dict(seen=Discrete(9), action_mask=MultiBinary(3))"}
    card_of(folder, before=STRICT, shown="{'seen': self.t, **" + MASK + "}", **spaces)
    with pytest.raises(SettingsError, match="is forbidden"):
        card_of(folder, before=STRICT, info=MASK, settings={"environment.action_mask": "none"})


@pytest.mark.parametrize(("bound", "value", "steps"), [("MOST_STEPS", 5, 5), ("MOST_SECONDS", -1.0, 1)])
def test_the_trial_of_a_game_that_never_ends_is_bounded(
    folder: Path, monkeypatch: pytest.MonkeyPatch, bound: str, value: Any, steps: int
) -> None:
    monkeypatch.setattr(run_check, bound, value)
    card_of(folder, terminated="False", before=f"assert self.t <= {steps}")
    with pytest.raises(SettingsError, match="AssertionError"):
        card_of(folder, terminated="False", before=f"assert self.t < {steps}")
