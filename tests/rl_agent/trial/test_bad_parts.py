"""A user's environment, wrapper or hook that cannot work is named before anything starts, with the line that fails."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from ps_common.errors import SettingsError
from ps_common.protocol.messages import Episode
from ps_common.settings.run_settings import with_settings
from ps_common.settings.run_spec import RunSpec
from rl_agent.trial.hooks import Hooks
from rl_agent.trial.run_check import check_run
from rl_cluster.trial import check_apart
from tests.rl_agent.custom_environments import LINE

PARTS = (
    LINE
    + '''
class Wrapper(gymnasium.Wrapper):
    """Changes nothing."""

def make_vector(num_envs):
    mode = gymnasium.vector.AutoresetMode.SAME_STEP
    return Changed(gymnasium.vector.SyncVectorEnv([Line] * num_envs, autoreset_mode=mode))

class Changed(gymnasium.vector.VectorWrapper):
    pass
'''
)
FAILS = r"fails when it is tried: "
FITS_NOT = r"an observation does not fit its space"
RESETS = {
    "return self.nothing": FAILS + r"AttributeError: .*nothing.* \(own_line.py, line \d+\)",
    "return None": FAILS + r".*(NoneType|tuple)",
    "return {seen}, {}, 3": FAILS + r".*too many values to unpack",
    "return {seen}[..., :1], {}": FITS_NOT + ".*: it has shape",
    "return {seen} + numpy.nan, {}": "environment 0 returned an observation with nan in it when it was reset",
}
STEPS = {
    "return self.nothing": FAILS + r"AttributeError: .*nothing.* \(own_line.py, line \d+\)",
    "return None": FAILS + ".*NoneType",
    "return {seen}, 1.0, False, {}": r"expected 5, got 4",
    "return {seen}[..., :1], {reward}, {end}, {end}, {}": FITS_NOT,
    "return {seen} - numpy.inf, {reward}, {end}, {end}, {}": "environment 0 returned an observation with -inf in it",
    "return {seen}, None, {end}, {end}, {}": "the reward nan|cannot reshape",
    "return {seen}, {reward} / 0, {end}, {end}, {}": r"returned the reward (inf|nan)|ZeroDivisionError",
}
BUGS = [*(("reset", *bug) for bug in RESETS.items()), *(("step", *bug) for bug in STEPS.items())]
KINDS = {  # the class that has the bug, the run, and the flag of the error
    "environment": ("Line", "own_line:Line", (), "--environment own_line:Line: "),
    "registered": ("Line", "own_line:Line-v0", (), "--environment own_line:Line-v0: "),
    "wrapper": ("Wrapper", "own_line:Line", ("own_line:Wrapper",), "--environment own_line:Line: "),
    "wrapper of ours": ("Wrapper", "CartPole-v1", ("own_line:Wrapper",), "--environment CartPole-v1: "),
    "vector": ("Changed", "own_line:make_vector", (), "--environment own_line:make_vector: "),
}


@pytest.mark.parametrize(("method", "bug", "sentence"), BUGS, ids=[f"{method}: {bug}" for method, bug, _ in BUGS])
@pytest.mark.parametrize("kind", KINDS)
def test_the_part_with_the_bug_is_named(kind: str, method: str, bug: str, sentence: str, folder: Path) -> None:
    owner, environment, wrappers, flag = KINDS[kind]
    is_vector = owner == "Changed"
    seen = "numpy.zeros((2, 2) if is_vector else self.observation_space.shape, numpy.float32)"
    values = {"seen": seen, "reward": "numpy.ones(2)" if is_vector else "1.0", "end": "numpy.array([False])[0]"}
    if is_vector:
        values["end"] = "numpy.array([False] * 2)"
    for name, value in values.items():
        bug = bug.replace(f"{{{name}}}", value)
    arguments = "*, seed=None, options=None" if method == "reset" else "action"
    text = f"{PARTS}\nis_vector = {is_vector}\ndef bug(self, {arguments}):\n    {bug}\n{owner}.{method} = bug\n"
    (folder / "own_line.py").write_text(text)
    settings = {"environment.id": environment, "environment.wrapper": wrappers}
    with pytest.raises(SettingsError, match=f"^{flag}.*({sentence})"):
        check_run(with_settings(RunSpec(), settings, source="test"), imports=())


def test_a_number_that_is_not_finite_is_found_inside_of_a_dict(folder: Path) -> None:
    space = "gymnasium.spaces.Dict(a=gymnasium.spaces.Tuple([gymnasium.spaces.Box(0, 1, (1,))]), n=Discrete(2))"
    reset = "lambda self, **_: ({'a': (numpy.full(1, numpy.nan, numpy.float32),), 'n': 1}, {})"
    text = f"{LINE}\nfrom gymnasium.spaces import Discrete\nLine.observation_space = {space}\nLine.reset = {reset}\n"
    (folder / "own_line.py").write_text(text)
    run = with_settings(RunSpec(), {"environment.id": "own_line:Line"}, source="test")
    with pytest.raises(SettingsError, match="environment 0 returned an observation with nan in it when it was reset"):
        check_run(run, imports=())


def test_parts_without_a_bug_pass(folder: Path) -> None:
    (folder / "own_line.py").write_text(PARTS)
    for _, environment, wrappers, _ in KINDS.values():
        settings = {"environment.id": environment, "environment.wrapper": wrappers}
        check_run(with_settings(RunSpec(), settings, source="test"), imports=())


HOOKS = """
class Good:
    def on_episode(self, game): ...
class Missing: ...
class Arguments(Good):
    def __init__(self, folder): ...
class Failing(Good):
    def __init__(self): open("/nowhere/at/all")
class TooFew:
    def on_episode(self): ...
class NoMeters:
    def on_unroll(self, trajectory): ...
class Uncalled(Good):
    def on_checkpoint(self, path): ...
class NoMethod(Good):
    on_unroll = 3
number = 3
"""


@pytest.mark.parametrize(("hook", "sentence"), [
    ("Missing", "has none of these methods; hooks are a class"),
    ("Arguments", ".*missing 1 required positional argument: 'folder'; hooks are a class"),
    ("Failing", "fails when it is tried: FileNotFoundError: .*own_hooks.py, line 8"),
    ("TooFew", r"on_episode cannot be called with \(game\): too many positional arguments"),
    ("NoMeters", r"on_unroll cannot be called with \(trajectory, meters\): too many positional arguments"),
    ("NoMethod", r"on_unroll cannot be called with \(trajectory, meters\): 3 is not a callable object"),
    ("Uncalled", "nothing calls on_checkpoint; hooks are a class"),
    ("number", "is int, and cannot be called"),
    ("Other", "own_hooks has no Other"),
])  # fmt: skip
def test_hooks_are_tried_before_anything_starts(hook: str, sentence: str, folder: Path) -> None:
    (folder / "own_hooks.py").write_text(HOOKS)
    hooks = ["own_hooks:Good", f"own_hooks:{hook}"]
    with pytest.raises(SettingsError, match=f"^--hook own_hooks:{hook}: {sentence}"):
        check_apart(RunSpec(), imports=(), hooks=hooks, device="cpu")


def test_an_error_of_a_hook_is_logged_with_the_line_of_the_hook(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = "import json\nclass Reads:\n    def on_episode(self, game):\n        json.loads(str(game))\n"
    (folder / "own_hooks.py").write_text(text)
    episode = Episode(episode_return=1.0, length=2)
    Hooks(["own_hooks:Reads"]).games_ended([episode], global_steps=2, worker=0)
    assert re.search(
        r"--hook: on_episode of Reads failed \(own_hooks.py, line 4\), 1 times by now: JSONDecode", caplog.text
    )


def test_a_hook_gets_each_unroll_and_meters_that_are_read_for_it_alone(folder: Path) -> None:
    text = "seen = []\nclass Keeps:\n    def on_unroll(self, *given):\n        seen.append(given)\n"
    (folder / "own_hooks.py").write_text(text + "class Other:\n    def on_episode(self, game): ...\n")
    unroll: Any = object()
    Hooks(["own_hooks:Keeps"]).unroll_learned(unroll, lambda: {"loss": 2.0})
    assert sys.modules["own_hooks"].seen == [(unroll, {"loss": 2.0})]
    Hooks(["own_hooks:Other"]).unroll_learned(unroll, lambda: pytest.fail("nobody asked"))
