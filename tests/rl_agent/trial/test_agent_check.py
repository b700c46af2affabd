"""
What does not travel, and what one observation does not give alone, is refused before anything is started.

Relations find it: two builds under other seeds with equal weights compute the same; a row gives what it gives among
many; the same call twice gives the same.
"""

import random
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch

from ps_common.errors import SettingsError
from ps_common.settings.custom_algorithm import custom_algorithm
from ps_common.settings.run_settings import with_settings
from ps_common.settings.run_spec import RunSpec
from rl_agent.trial.run_check import check_run

TORSO = """
import itertools, math, random
import numpy, torch
from torch import nn
from torch.nn import functional

class Frozen:
    def __init__(self, module):
        self.module = module

class Torso(nn.Module):
    def __init__(self, observations, settings):
        super().__init__()
        self.features = 16
        self.size = math.prod(observations.shape)
        self.first = nn.Linear(self.size, 16)
        {made}

    def forward(self, seen):
        x = torch.tanh(self.first(seen.flatten(1)))
        {computed}
        return x
"""
DOES_NOT_TRAVEL = {
    "a list of layers": ("self.more = [nn.Linear(16, 16)]", "x = self.more[0](x)"),
    "a dict of layers": ("self.more = {'a': nn.Linear(16, 16)}", "x = self.more['a'](x)"),
    "a tuple in a list": ("self._m = [(nn.Linear(16, 16), 1)]", "x = self._m[0][0](x)"),
    "a frozen net, hidden": (
        "self.more = Frozen(nn.Linear(16, 16).requires_grad_(False))", "x = self.more.module(x)"),
    "in a closure": (
        "layer = nn.Linear(16, 16); self.more = lambda x: layer(x)", "x = self.more(x)"),
    "a plain tensor": ("self.more = torch.randn(16, 16)", "x = x @ self.more"),
    "numpy's unseeded": (
        "self.more = numpy.random.default_rng().normal(size=(16, 16)).astype('f')",
        "x = x @ torch.from_numpy(self.more)"),
    "numpy's global": (
        "self.more = numpy.random.normal(size=(16, 16)).astype('f')",
        "x = x @ torch.from_numpy(self.more)"),
    "Python's": ("self.more = random.random()", "x = x * self.more"),
    "a small share": ("self.more = torch.randn(16)", "x = x + 1e-3 * self.more"),
}  # fmt: skip
SHARES = {
    "a view": ("self.back = nn.Linear(16, self.size); self.back.weight = nn.Parameter(self.first.weight.t())",
               "self.back(x)", "back.weight", "first.weight"),
    "the data": ("self.same = nn.Linear(self.size, 16); self.same.weight = nn.Parameter(self.first.weight.data)",
                 "x = x + self.same(seen)", "same.weight", "first.weight"),
    "a part": ("self.part = nn.Parameter(self.first.weight.data[3])", "x = x * self.part.sum()", "first.weight",
               "part"),
    "a buffer": ("self.register_buffer('kept', self.first.bias.data)", "x = x + self.kept", "kept", "first.bias"),
    "itself": ("self.wide = nn.Parameter(torch.zeros(1).expand(16))", "x = x + self.wide", "wide", "wide"),
}  # fmt: skip
PASSES = {
    "registered": ("self.more = nn.ModuleList([nn.Linear(16, 16)])", "x = self.more[0](x)"),
    "a buffer": ("self.register_buffer('more', torch.randn(16, 16))", "x = x @ self.more"),
    "seeded by itself": ("self.more = numpy.random.default_rng(0).normal(size=(16, 16)).astype('f')",
                         "x = x @ torch.from_numpy(self.more)"),
    "one Parameter, two names": (
        "self.a = nn.Linear(16, 16); self.b = nn.Linear(16, 16); self.b.weight = self.a.weight",
        "x = self.b(torch.tanh(self.a(x)))"),
    "two parts of one memory": (
        "whole = torch.randn(16, 32); self.a = nn.Parameter(whole[:, ::2]); self.b = nn.Parameter(whole[:, 1::2])",
        "x = x @ self.a @ self.b"),
    "a kept view": ("self.more = nn.Linear(16, 16); self.turned = self.more.weight.t()", "x = x @ self.turned"),
    "dropout": ("self.more = nn.Dropout(0.5)", "x = self.more(x)"),
    "noise of training": ("", "x = x + torch.randn_like(x) if self.training else x"),
    "layer norm": ("self.more = nn.LayerNorm(16)", "x = self.more(x)"),
    "group norm": ("self.more = nn.GroupNorm(4, 16)", "x = self.more(x)"),
    "a counter for a log": ("self.calls = 0", "self.calls += 1"),
    "old weight norm": ("self.more = nn.utils.weight_norm(nn.Linear(16, 16))", "x = self.more(x)"),
    "a lock": ("import threading; self.more = threading.Lock()", "self.more.acquire(); self.more.release()"),
    "an open file": ("self.more = open(__file__)", ""),
}  # fmt: skip
METHODS = ({"name": "a3c"}, {"name": "n_step_q"})
Case = tuple[str, str]


def check(folder: Path, made: str, computed: str, method: dict[str, str], **network: object) -> None:
    (folder / "own_torso.py").write_text(TORSO.replace("{made}", made).replace("{computed}", computed or "pass"))
    settings = {"environment.id": "CartPole-v1", "network.name": "own_torso:Torso", "algorithm.name": method["name"]}
    settings |= {f"network.{name}": value for name, value in network.items()}
    check_run(with_settings(RunSpec(), settings, source="test"), imports=())


@pytest.mark.parametrize("method", METHODS, ids=str)
@pytest.mark.parametrize("case", DOES_NOT_TRAVEL.values(), ids=DOES_NOT_TRAVEL)
def test_state_that_does_not_travel_is_refused(case: Case, method: dict[str, str], folder: Path) -> None:
    with pytest.raises(SettingsError, match=r"^--network own_torso:Torso: its output depends on more than") as refused:
        check(folder, *case, method)
    assert "nn.ModuleList" in str(refused.value)
    assert "register_buffer" in str(refused.value)


@pytest.mark.parametrize("case", SHARES.values(), ids=SHARES)
def test_tensors_that_share_memory_are_refused_by_both_names(case: tuple[str, str, str, str], folder: Path) -> None:
    made, computed, one, other = case
    with pytest.raises(SettingsError, match=rf"^--network own_torso:Torso: its {one} shares memory with {other}, "):
        check(folder, made, computed, METHODS[0])


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated:FutureWarning")
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("method", METHODS, ids=str)
@pytest.mark.parametrize("case", PASSES.values(), ids=PASSES)
def test_what_travels_and_acts_alone_passes(case: Case, method: dict[str, str], folder: Path) -> None:
    check(folder, *case, method)
    if method["name"] == "a3c":
        check(folder, *case, method, lstm=8, separate=True)


METHOD = """
import copy, random, torch
from torch import nn
from ps_common.settings.run_spec import A3CSettings, NStepQSettings
from rl_agent.algorithms.a3c import A3C
from rl_agent.algorithms.n_step_q import NStepQ

class Second(A3C):
    settings = A3CSettings
    def __init__(self, *given, **named):
        super().__init__(*given, **named)
        self.more = {more}
    def loss(self, batch):
        loss = super().loss(batch)
        loss.total = {total}
        return loss

class Copied(NStepQ):
    settings = NStepQSettings
    @classmethod
    def build(cls, *given, **named):
        made = super().build(*given, **named)
        made.target_network = {target}
        return made
"""
LOSS = "type(loss)(loss.total + {added}, loss.meters)"


def check_method(folder: Path, name: str, *, more: str = "0", added: str = "0", target: str = "None") -> None:
    text = METHOD.replace("loss.total = {total}\n        return loss", f"return {LOSS}".replace("{added}", added))
    (folder / "own_method.py").write_text(text.replace("{more}", more).replace("{target}", target))
    run = with_settings(RunSpec(), {"environment.id": "CartPole-v1"}, source="test")
    interval = {"target_interval": 100} if name == "Copied" else {}
    method = custom_algorithm(f"own_method:{name}", {"unroll_length": 4} | interval, source="test")
    check_run(msgspec.structs.replace(run, algorithm=method), imports=())


@pytest.mark.parametrize(
    ("more", "added"),
    [
        ("nn.Linear(4, 1)", "self.more(batch.observations).square().mean()"),
        ("[torch.randn(4)]", "(batch.observations @ self.more[0]).mean()"),
        ("random.random()", "self.more * loss.total"),
    ],
)
def test_a_second_network_of_an_algorithm_is_refused(more: str, added: str, folder: Path) -> None:
    with pytest.raises(SettingsError, match=r"^--algorithm own_method:Second: its output depends on more than"):
        check_method(folder, "Second", more=more, added=added)


@pytest.mark.parametrize("target", ["made.network", "copy.copy(made.network)"])
def test_a_target_network_that_is_the_network_itself_is_refused(target: str, folder: Path) -> None:
    sentence = r"^--algorithm own_method:Copied: its target_network\.\S+ shares memory with network\."
    with pytest.raises(SettingsError, match=sentence):
        check_method(folder, "Copied", target=target)


def test_the_trial_changes_no_random_number_of_its_process(folder: Path) -> None:
    drawn = []
    for tries in (False, True):
        random.seed(5), np.random.seed(5), torch.manual_seed(5)
        if tries:
            check(folder, *PASSES["dropout"], METHODS[0])
        drawn.append((random.random(), np.random.random(), float(torch.rand(()))))
    assert drawn[0] == drawn[1]
