"""From a Dict environment to the robot: trained, loaded, shown what the environment shows, exported, and as ONNX."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from ps_rl import evaluate, load_policy, make_env, train
from rl_eval.cli import evaluate as rl_eval
from tests.rows import nightly


class Arm(gymnasium.Env[Any, Any]):
    """A joint moves to a point, which a camera shows."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012
    observation_space = spaces.Dict(
        image=spaces.Box(0, 255, (32, 32, 1), np.uint8), joints=spaces.Box(-np.inf, np.inf, (6,), np.float32)
    )
    action_space = spaces.Box(-1, np.float32([1, 2, 3]), (3,), np.float32)

    def __init__(self, length: int = 20, render_mode: str | None = None) -> None:
        self.length, self.render_mode = length, render_mode

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.at, self.target, self.t = np.zeros(3), self.np_random.uniform(-1, 1, 3), 0
        return self._shown(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        self.at, self.t = np.clip(self.at + 0.2 * action, -1.5, 1.5), self.t + 1
        return self._shown(), -float(np.abs(self.at - self.target).sum()), False, self.t >= self.length, {}

    def render(self) -> Any:
        return np.repeat(self._shown()["image"], 3, axis=2)

    def _shown(self) -> Any:
        image = np.zeros((32, 32, 1), np.uint8)
        row, column = ((self.target[:2] + 1) * 15.5).astype(int)
        image[row, column] = 255
        return {"image": image, "joints": np.concatenate([self.at, self.target - self.at]).astype(np.float32)}


@pytest.mark.parametrize("algorithm", ["sac", nightly("a3c")])
def test_a_policy_goes_from_a_dict_to_the_robot(tmp_path: Path, algorithm: str) -> None:
    run = train(
        environment=Arm, environment_kwargs={"length": 10}, algorithm=algorithm, workers=0, envs=2, max_steps=300,
        seed=1, run_dir=tmp_path / "run",
    )  # fmt: skip
    policy, environment = run.policy(), Arm(10)
    shown = [environment.reset(seed=seed)[0] for seed in range(3)]
    environment.step(policy.act(shown[0]))
    together = policy.act({key: np.stack([one[key] for one in shown]) for key in shown[0]}, greedy=True)
    np.testing.assert_allclose(together, [policy.act(one, greedy=True) for one in shown], rtol=1e-4, atol=1e-5)
    assert policy.distribution(shown[0]).is_squashed == (algorithm == "sac")
    assert policy.global_steps >= 300, "SAC was saved before it began to learn"
    given, own = (evaluate(policy, env, episodes=2, seed=3, greedy=True) for env in (environment, make_env(run)))
    assert given.scores == pytest.approx(own.scores)

    flags = ["--checkpoint", str(run.folder), "--import", __name__, "--episodes", "1", "--export"]
    exported = tmp_path / "policy"
    runtime = pytest.importorskip("onnxruntime", reason="needs the extra onnx")
    assert rl_eval([*flags, str(exported), "--onnx"]) == 0
    away = load_policy(exported)
    np.testing.assert_allclose(away.act(shown[1], greedy=True), policy.act(shown[1], greedy=True), rtol=1e-6)
    session = runtime.InferenceSession(exported / "model.onnx", providers=["CPUExecutionProvider"])
    outputs = session.run(None, {key: value[None] for key, value in shown[1].items()})
    mean = outputs[0][0, :3].clip(environment.action_space.low, environment.action_space.high)
    np.testing.assert_allclose(mean, away.act(shown[1], greedy=True), rtol=1e-4, atol=1e-5)
    card = (exported / "README.md").read_text()
    assert "takes what the environment shows" in card
    assert '"image": np.full(' in card
