"""The examples do what their pages say: they learn, or show their effect, and all of them together make a whole run."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from ps_common.settings.run_files import SETTINGS, load_config
from ps_common.settings.run_spec import Environment
from rl_agent.environments.make import make_environments
from rl_eval.games import play
from tests.integration.processes import DEADLINE_SECONDS, Program
from tests.rl_agent.algorithms.test_learning import learned
from tests.rows import row

PAGES = Path(__file__).parent.parent.parent / "docs" / "how-to"
EXAMPLES = Path(__file__).parent.parent.parent / "examples"
A3C = {"name": "a3c", "unroll_length": 16, "loss": "mean", "gae_lambda": 0.95}


def test_a_page_shows_the_example_as_it_is() -> None:
    for page, example in [
        ("custom-environment", "environment"),
        ("custom-network", "network"),
        ("custom-algorithm", "algorithm"),
        ("custom-wrapper-and-hooks", "wrapper"),
        ("custom-wrapper-and-hooks", "hooks"),
    ]:
        with row(page, example):
            code = (EXAMPLES / f"{example}.py").read_text()
            assert f"```python\n{code}```\n" in (PAGES / f"{page}.md").read_text(), "copy the file into the page"


def corridor(**sections: Any) -> tuple[Any, float]:
    """The algorithm after 10,000 steps of the corridor, and its mean score; 1 is the best, 0.05 that of staying."""
    environments = make_environments(Environment(id="examples.environment:make_corridor"), count=8)
    agent = learned(environments, steps=10_000, learning_rate=0.003, **{"algorithm": A3C, **sections})
    score = float(np.mean([game.score for game in play(agent, environments, episodes=16, greedy=False, seed=1)]))
    environments.close()
    return agent, score


def test_the_environment_is_learned_by_the_network() -> None:
    agent, score = corridor(network={"name": "examples.network:ResidualTorso"})
    assert score > 0.9
    assert any("ResidualTorso" in type(module).__name__ for module in agent.network.modules())


def test_the_algorithm_moves_its_entropy_weight_towards_its_target() -> None:
    certain, uncertain = (
        corridor(
            algorithm={**A3C, "name": "examples.algorithm:EntropyA3C", "target_entropy": target, "entropy_step": 0.3}
        )
        for target in (0.0, 0.69)
    )
    assert certain[0].weight < 0.01 < uncertain[0].weight
    seen, starts = torch.eye(10), torch.zeros(10, dtype=torch.bool)
    entropies = [
        float(torch.distributions.Categorical(agent.predict(seen, (), starts).probabilities).entropy().mean())
        for agent, _ in (certain, uncertain)
    ]
    assert entropies[0] < 0.9 * entropies[1]


def test_the_off_policy_algorithm_learns_from_remembered_steps() -> None:
    lines = (EXAMPLES / "off_policy.py").read_text().splitlines()
    assert len(lines) <= 60, "it is to be read at a glance"
    agent, score = corridor(
        algorithm={"name": "examples.off_policy:SoftQ", "unroll_length": 8, "temperature": 0.05},
        replay={"learning_starts": 500, "batch_size": 64, "replay_ratio": 0.25},
    )
    assert agent.replay.global_steps > 9_000
    assert score > 0.5


def test_all_parts_and_hooks_make_a_run_that_is_resumed(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (tmp_path / "examples").symlink_to(EXAMPLES)  # found in the working folder

    def trained(*flags: str) -> None:
        hooked = (*flags, "--workers", "1", "--no-web", "--hook", "examples.hooks:Notes")
        program = Program("rl-cluster", *hooked, log=tmp_path / "log", folder=tmp_path)
        try:
            assert program.process.wait(DEADLINE_SECONDS) == 0, program.output
        finally:
            program.kill()

    parts = ["--environment", "CartPole-v1", "--wrapper", "examples.wrapper:WithoutVelocities"]
    parts += ["--network", "examples.network:ResidualTorso", "--algorithm", "examples.algorithm:EntropyA3C"]
    trained(*parts, "--target-entropy", "0.5", "--max-steps", "1000", "--run-dir", str(run))
    named = ["--import", "examples.network", "examples.algorithm", "examples.wrapper"]
    trained("--resume", str(run), *named, "--target-entropy", "0.4", "--max-steps", "2000")
    kept = load_config(run / SETTINGS).to_dict()["algorithm"]
    assert (kept["name"], kept["target_entropy"]) == ("examples.algorithm:EntropyA3C", 0.4)
    assert list(tmp_path.glob("games-*.csv"))
