"""Algorithms whose settings are adjusted in the middle of a run."""

from typing import Any

import pytest
import torch

from ps_common.settings import run_spec
from rl_agent.algorithms.one_step_q import OneStepQ
from tests.rl_agent.algorithms.test_a3c import (
    GOES_ON,
    MODEL,
    PAPER,
    algorithm,
    assert_gradient,
    gradient_of,
    unroll_of,
)
from tests.rl_agent.written_out_a3c import algorithm_s3


def test_an_adjusted_entropy_weight_is_that_of_the_next_gradient() -> None:
    learner = algorithm(entropy_weight=0.01)
    gradient_of(learner, unroll_of(GOES_ON))
    learner.adjust(run_spec.A3CSettings(**PAPER | {"entropy_weight": 0.3}))  # type: ignore[arg-type]
    learner.begin_unroll(0)
    (batch,) = learner.batches(unroll_of(GOES_ON))
    assert float(learner.loss(batch).meters["entropy_weight"]) == pytest.approx(0.3)
    expected = algorithm_s3(MODEL, GOES_ON, value_weight=0.5, entropy_weight=0.3)
    assert_gradient(gradient_of(learner, unroll_of(GOES_ON)), expected)


def test_an_adjusted_epsilon_is_that_of_every_environment_from_then_on() -> None:
    network: Any = torch.nn.Linear(3, 2)
    settings = run_spec.OneStepQSettings(epsilon_anneal_steps=100, target_interval=0)
    learner = OneStepQ(network, settings, device=torch.device("cpu"), seed=0)
    learner.initial_state(5)
    learner.begin_unroll(100)
    adjusted = run_spec.OneStepQSettings(
        epsilon_anneal_steps=100, target_interval=0, final_epsilons=(0.25,), epsilon_probabilities=(1.0,)
    )
    learner.adjust(adjusted)
    for steps, epsilon in ((50, 0.625), (100, 0.25), (1000, 0.25)):
        learner.begin_unroll(steps)
        assert learner.epsilons().tolist() == pytest.approx([epsilon] * 5)
