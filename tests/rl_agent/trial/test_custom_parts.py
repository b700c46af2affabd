"""Custom parts, by import path: they are tried before anything is started, and errors name what is missing."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from ps_common.errors import SettingsError
from ps_common.program.flags import parse_with_run
from ps_common.settings.custom_algorithm import custom_algorithm
from ps_common.settings.run_settings import with_settings
from ps_common.settings.run_spec import RunSpec
from rl_agent.agent import build_agent
from rl_agent.algorithms.custom_algorithm import custom_settings
from rl_agent.environments.make import make_environments
from rl_agent.trial import run_check
from rl_agent.trial.run_check import check_run
from rl_cluster.settings import ClusterSettings
from tests.rl_agent.custom_parts import PARTS, parts_with

METHOD = {"unroll_length": 4, "temperature": 0.5}
CARTPOLE, ENVIRONMENT, VECTOR = "CartPole-v1", "own_parts_here:make_env", "own_parts_here:make_vector"
WRAPPED = {"environment.wrapper": ["own_parts_here:shift"]}
TORSO = {"network.name": "own_parts_here:Torso"}


@pytest.fixture
def folder(folder: Path) -> Path:
    """With own_parts_here.py in it."""
    (folder / "own_parts_here.py").write_text(PARTS)
    return folder


def a_run(environment: str, settings: dict[str, Any], *, method: dict[str, Any] | None = None) -> RunSpec:
    run = with_settings(RunSpec(), {"environment.id": environment} | settings, source="test")
    if method is None:
        return run
    return msgspec.structs.replace(run, algorithm=custom_algorithm("own_parts_here:Method", method, source="test"))


@pytest.mark.parametrize("method", [None, METHOD], ids=["A3C", "custom"])
@pytest.mark.parametrize("torso", [{}, TORSO, TORSO | {"network.lstm": 8}], ids=["mlp", "custom", "custom, LSTM"])
@pytest.mark.parametrize("environment", [CARTPOLE, ENVIRONMENT, VECTOR], ids=str)
def test_custom_parts_of_every_kind_go_with_each_other_and_with_ours(
    environment: str, torso: dict[str, Any], method: dict[str, Any] | None, folder: Path
) -> None:
    if environment != VECTOR:
        check_run(a_run(environment, torso | WRAPPED, method=method), imports=())
    check_run(a_run(environment, torso, method=method), imports=())


NO_BUG = ("", "")
REFUSED = [
    (("def make_env(", "def make_one("), ENVIRONMENT, {}, None, ": own_parts_here has no make_env; an env"),
    (NO_BUG, "own_parts_here:Line", {}, None, "has no Line; .*an id that .* registers has its version here"),
    (('return gymnasium.make("CartPole-v1"', 'return dict(a="b"'), ENVIRONMENT, {}, None,
     "--environment .*: returned dict, not Env; an environment is a function"),
    (("SyncVectorEnv([make_env] * num_envs", "SyncVectorEnv([make_env] * 7"), VECTOR, {}, None,
     "returned 7 environments for num_envs=2"),
    ((", autoreset_mode=AutoresetMode.SAME_STEP", ""), VECTOR, {}, None, "must have autoreset_mode SAME_STEP"),
    (("return gymnasium.wrappers", "return None and gymnasium.wrappers"), CARTPOLE, WRAPPED, None,
     "--wrapper own_parts_here:shift: returned NoneType, not Env; a wrapper takes a gymnasium.Env"),
    (NO_BUG, VECTOR, WRAPPED, None,
     "--environment .*: fails when it is tried: TypeError: .*own_parts_here.py, line 14"),
    (NO_BUG, "ALE/Pong-v5", WRAPPED, None, "--wrapper own_parts_here:shift: the games of ALE/Pong-v5 are stepped"),
    (("        self.features = 5\n", ""), CARTPOLE, TORSO, None,
     "--network own_parts_here:Torso: has no `features`; a torso is a class of torch.nn.Module"),
    (("(self, observations, settings)", "(self, observations)"), CARTPOLE, TORSO, None,
     "--network own_parts_here:Torso: .*takes 2 positional arguments.*; a torso is"),
    (("class Torso(torch.nn.Module):", "class Torso(list):"), CARTPOLE, TORSO, None,
     "--network own_parts_here:Torso: "),
    (("self.features = 5", "self.features = 6"), CARTPOLE, TORSO, None,
     "--network own_parts_here:Torso: fails when it is tried: .*shapes cannot be multiplied"),
    (("self.features = 5", "self.features = 5; self.register_buffer('n', torch.zeros((), dtype=torch.int64))"),
     CARTPOLE, TORSO, None, "--network own_parts_here:Torso: its n is torch.int64; .* travel as float32"),
    *((("self.features = 5", f"self.features = 5; self.register_buffer('mask', torch.full((5, 5), {number}).triu(1))"),
       CARTPOLE, TORSO, None, "--network own_parts_here:Torso: its mask holds NaN, .* a large negative number")
      for number in ("-torch.inf", "torch.nan", "torch.finfo().min")),
    (("torch.nn.Linear(observations.shape[0], 5)",
      "torch.nn.Sequential(torch.nn.Linear(observations.shape[0], 5), torch.nn.BatchNorm1d(5))"), CARTPOLE, TORSO, None,
     "--network own_parts_here:Torso: its layer.1 is a BatchNorm1d, .*; take nn.LayerNorm or nn.GroupNorm"),
    (("torch.nn.Linear(observations.shape[0], 5)",
      "torch.nn.Sequential(torch.nn.utils.parametrizations.spectral_norm(torch.nn.Linear(observations.shape[0], 512)), "
      "torch.nn.Linear(512, 5))"),
     CARTPOLE, TORSO, None, "--network own_parts_here:Torso: its buffer .*_u changes while it acts or learns, but the"),
    (("    def loss(", "    @classmethod\n    def build(cls, *given, **named):\n"
      "        made = super().build(*given, **named)\n"
      "        made.network.register_buffer('n', torch.zeros((), dtype=torch.int64))\n"
      "        return made\n    def loss("),
     CARTPOLE, {}, METHOD, "--algorithm own_parts_here:Method: its n is torch.int64; parameters and buffers travel as"),
    (("        return self.layer(observations)", "        raise KeyError(3)"), CARTPOLE, TORSO, None,
     "--network own_parts_here:Torso: fails when it is tried: KeyError: 3 \\(own_parts_here.py, line 23\\)"),
    (("    settings = Settings\n", ""), CARTPOLE, {}, METHOD, ":Method: has no settings; an algorithm has"),
    (("    settings = Settings\n", "    settings = dict\n"), CARTPOLE, {}, METHOD, "settings are no msgspec.Struct"),
    (("class Method(A3C):", "class Method:"), CARTPOLE, {}, METHOD, ":Method: has no build; an algorithm"),
    (("class Method(A3C):", "class Method:\n    build = classmethod(lambda *a, **k: object())"), CARTPOLE, {}, METHOD,
     "--algorithm .*: object has no network, unroll_length.*; it needs the members of rl_agent"),
    (("return super().loss(batch)", "return 3"), CARTPOLE, {}, METHOD, "--algorithm .*: its loss must be a Loss"),
    (("    def loss(", "    def predict(self, *given):\n        raise KeyError(4)\n    def loss("), CARTPOLE, {},
     METHOD, "--algorithm .*: fails when it is tried: KeyError: 4"),
    *((("    def loss(", "    def predict(self, *given):\n        from dataclasses import replace\n"
        f"        prediction = super().predict(*given)\n        return {changed}\n    def loss("), CARTPOLE, {}, METHOD,
       "--algorithm .*: its prediction must be a Prediction with one value for each observation")
      for changed in ("prediction.values", "replace(prediction, values=prediction.values[0])",
                      "replace(prediction, probabilities=prediction.probabilities[0])")),
    *((("return super().loss(batch)", f"loss = super().loss(batch); loss.meters{meter}; return loss"), CARTPOLE, {},
       METHOD, f"--algorithm .*: its meter {sentence}")
      for meter, sentence in (("['value loss'] = loss.total", "'value loss': must have .*; for example value-loss"),
                              ("['returns'] = batch.starts", "returns must be one number, not tensor"))),
    (("assert self._settings.temperature > 0", "assert False"), CARTPOLE, {}, METHOD,
     "--algorithm .*: fails when it is tried: AssertionError \\(own_parts_here.py, line 31\\)"),
    (NO_BUG, CARTPOLE, {}, METHOD | {"colour": 1}, "--algorithm .*: has no setting colour \\(--colour\\); unroll_le"),
    (NO_BUG, CARTPOLE, {}, METHOD | {"temperature": "hot"}, "expected `float`, got `str` for algorithm.temperature"),
    (NO_BUG, CARTPOLE, {}, {"temperature": 1.0}, "does not say its unroll_length, .* add unroll_length = 20"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("bug", "environment", "settings", "method", "sentence"), REFUSED, ids=lambda one: str(one)[:30]
)
def test_the_error_for_a_bad_part_names_its_flag_and_what_is_missing(
    bug: tuple[str, str],
    environment: str,
    settings: dict[str, Any],
    method: dict[str, Any] | None,
    sentence: str,
    folder: Path,
) -> None:
    if bug != NO_BUG:
        (folder / "own_parts_here.py").write_text(parts_with(*bug))
    with pytest.raises(SettingsError, match=sentence):
        check_run(a_run(environment, settings, method=method), imports=())


def test_a_vector_environment_is_stepped_as_it_is_and_shows_last_observations(folder: Path) -> None:
    environments = make_environments(a_run(VECTOR, {}).environment, count=3)
    same = make_environments(a_run(CARTPOLE, {}).environment, count=3)
    random = np.random.default_rng(0)
    assert np.array_equal(environments.reset(5), same.reset(5))
    ends = 0
    for _ in range(60):
        actions = environments.actions.sample(random, 3)
        one, other = environments.step(actions), same.step(actions)
        assert np.array_equal(one.observations, other.observations)
        assert np.array_equal(one.rewards, other.rewards)
        assert np.array_equal(one.terminated, other.terminated)
        assert (one.final_observations is None) == (other.final_observations is None)
        if one.final_observations is not None and other.final_observations is not None:
            ends += 1
            ended = one.terminated | one.truncated
            assert np.array_equal(one.final_observations[ended], other.final_observations[ended])
    assert ends
    environments.close()
    same.close()


def test_a_custom_algorithm_gets_its_settings_with_their_types_and_defaults(folder: Path) -> None:
    settings: Any = custom_settings("own_parts_here:Method", {"unroll_length": 4, "temperature": 1})
    assert (settings.unroll_length, settings.temperature, settings.discount) == (4, 1.0, 0.99)
    run = a_run(CARTPOLE, {}, method=METHOD)
    environments = make_environments(run.environment, count=2)
    agent: Any = build_agent(run, environments, device=torch.device("cpu"), seed=0)
    assert (type(agent).__name__, agent.unroll_length, agent._settings.temperature) == ("Method", 4, 0.5)
    environments.close()


SUBCLASSES = """
from ps_common.settings.run_spec import A3CSettings, NStepQSettings
from rl_agent.algorithms.a3c import A3C
from rl_agent.algorithms.n_step_q import NStepQ

class Certain(A3C):
    class settings(A3CSettings, frozen=True, kw_only=True):
        entropy_weight: float = 0.5  # of its own
        penalty: float = 0.1

class Mine(NStepQ):
    settings = NStepQSettings
"""


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (["--preset", "cartpole"], {"epochs": 6, "discount": 0.98, "unroll_length": 32, "entropy_weight": 0.5}),
        (["--preset", "cartpole", "--epochs", "2"], {"epochs": 2, "discount": 0.98}),
        (["--environment", CARTPOLE], {"epochs": 5, "reward_normalization": "returns", "penalty": 0.1}),
        (["--environment", CARTPOLE], {"imitation_weight": 0.1}),
        (["--environment", CARTPOLE, "--lstm", "32"], {"epochs": 5, "imitation_weight": 0.0}),
        (["--preset", "cartpole-n-step-q"], {"epochs": 1, "entropy_weight": 0.5}),  # another method's settings
    ],
)
def test_a_subclass_of_our_method_starts_from_the_settings_that_the_run_has_without_it(
    typed: list[str], expected: dict[str, Any], folder: Path
) -> None:
    (folder / "own_parts_here.py").write_text(SUBCLASSES)
    assert settings_of(*typed, "--algorithm", "own_parts_here:Certain").items() >= expected.items()


def settings_of(*typed: str) -> dict[str, Any]:
    """The section [algorithm] of the run that rl-cluster makes of these flags."""
    flags = parse_with_run(ClusterSettings, typed, prog="rl-cluster", custom_settings=run_check.custom_settings)
    section: dict[str, Any] = flags.run.to_dict()["algorithm"]
    return section
