"""The ε of each environment at each global step."""

import numpy as np
import pytest
import torch

from ps_common.settings.run_spec import ActionValuesSettings, NetworkSettings
from rl_agent.algorithms.action_values import EpsilonSchedule, epsilon_greedy
from rl_agent.environments.spaces import packed, packed_space
from rl_agent.networks.networks import ActionValueNetwork, allowed

FINALS, PROBABILITIES = (0.1, 0.01, 0.5), (0.4, 0.3, 0.3)


def schedule(count: int, *, anneal_steps: int = 1000, seed: int = 0) -> EpsilonSchedule:
    settings = ActionValuesSettings(
        final_epsilons=FINALS,
        epsilon_probabilities=PROBABILITIES,
        epsilon_anneal_steps=anneal_steps,
    )
    return EpsilonSchedule(count, settings, torch.Generator().manual_seed(seed))


def test_final_epsilons_are_drawn_as_the_paper_says_by_each_environment_for_itself() -> None:
    drawn = schedule(20_000).at(1000)
    for final, probability in zip(FINALS, PROBABILITIES, strict=True):
        assert float(torch.isclose(drawn, torch.tensor(final)).double().mean()) == pytest.approx(probability, abs=0.015)


def test_all_begin_with_chance_alone_and_anneal_in_a_straight_line_on_the_steps_of_the_run() -> None:
    epsilons = schedule(50)
    finals = epsilons.at(1000)
    assert epsilons.at(0).tolist() == [1.0] * 50
    torch.testing.assert_close(epsilons.at(250), 1 - 0.25 * (1 - finals))
    torch.testing.assert_close(epsilons.at(900), 1 - 0.9 * (1 - finals))
    assert torch.equal(epsilons.at(10**12), finals)


@pytest.mark.parametrize("shift", [0.0, 1e3, -1e3, -1e9, -1e10, 1e20, -1e37])
def test_a_mask_forbids_the_same_actions_whatever_the_values_are(shift: float) -> None:
    seen = packed_space([("vector", (3,), np.float32), ("mask", (4,), np.uint8)])
    network = ActionValueNetwork(NetworkSettings(), seen, actions=4)
    masks = np.array([[(row >> bit) & 1 for bit in range(4)] for row in range(1, 16)] * 20, np.uint8)
    observations = torch.from_numpy(packed(seen, [np.zeros((len(masks), 3), np.float32), masks]))
    with torch.no_grad():
        network.values.bias.fill_(shift)  # type: ignore[union-attr]
        values = network(observations)
    assert torch.equal(allowed(values), torch.from_numpy(masks).bool())
    for epsilon in (0.0, 1.0):
        actions = epsilon_greedy(values, torch.full((len(masks),), epsilon), torch.Generator().manual_seed(0))
        assert masks[range(len(masks)), actions.numpy()].all()
