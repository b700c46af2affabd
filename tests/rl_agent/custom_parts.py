"""A module with a custom part of every kind, and `parts_with` to give one a bug."""

PARTS = """
import gymnasium, msgspec, numpy, torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from ps_common.settings.run_spec import A3CSettings
from rl_agent.algorithms.a3c import A3C

def make_env(render_mode=None):
    return gymnasium.make("CartPole-v1", render_mode=render_mode)

def make_vector(num_envs):
    return SyncVectorEnv([make_env] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)

def shift(env):
    return gymnasium.wrappers.TransformReward(env, lambda reward: reward + 1)

class Torso(torch.nn.Module):
    def __init__(self, observations, settings):
        super().__init__()
        self.features = 5
        self.layer = torch.nn.Linear(observations.shape[0], 5)

    def forward(self, observations):
        return self.layer(observations)

class Settings(A3CSettings, frozen=True, kw_only=True):
    temperature: float = 2.0

class Method(A3C):
    settings = Settings
    def loss(self, batch):
        assert self._settings.temperature > 0
        return super().loss(batch)
"""


def parts_with(before: str, after: str) -> str:
    """The module with one place changed."""
    assert before in PARTS, before
    return PARTS.replace(before, after)
