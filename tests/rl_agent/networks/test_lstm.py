"""The state of an LSTM lasts within an episode and across unrolls, and not beyond the episode."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ps_common.settings.run_settings import run_from_dict
from ps_common.settings.run_spec import NetworkSettings, RunSpec
from rl_agent.agent import build_agent
from rl_agent.algorithms import a3c
from rl_agent.networks.networks import PolicyValueNetwork
from rl_agent.rollouts import Decision, RolloutCollector, State, Trajectory
from rl_eval.games import play
from tests.rl_agent.observation_spaces import numbers
from tests.rl_agent.scripted_environments import Game, OneState, ScriptedEnvironments

CPU = torch.device("cpu")
T, F, H = 7, 3, 6
SHARED, SEPARATE = NetworkSettings(hidden=(8,), lstm=H), NetworkSettings(hidden=(8,), lstm=H, separate=True)
both_trunks = pytest.mark.parametrize("settings", [SHARED, SEPARATE], ids=["shared", "separate"])
ENDLESS = [Game((1.0,) * 1000, "terminated")]


def network_of(settings: NetworkSettings) -> PolicyValueNetwork:
    torch.manual_seed(0)
    return PolicyValueNetwork(settings, numbers(F), policy_parameters=4)


def observations(rows: int) -> Tensor:
    return torch.randn(T, rows, F, generator=torch.Generator().manual_seed(1))


def run_of(**algorithm: Any) -> RunSpec:
    settings = {
        "seed": 1,
        "algorithm": {"name": "a3c", "unroll_length": 4, **algorithm},
        "network": {"hidden": [8], "lstm": H},
    }
    return run_from_dict(settings, source="test")


def agent_and_collector(run: RunSpec, environments: ScriptedEnvironments) -> tuple[Any, RolloutCollector]:
    agent: Any = build_agent(run, environments, device=CPU, seed=0)
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in agent.network.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape))  # a fresh policy hardly depends on what it sees
    return agent, RolloutCollector(environments, agent, unroll_length=4, discount=0.9, seed=0)


def scripts() -> ScriptedEnvironments:
    """Ends inside unrolls, by both ways, and a row without any."""
    return ScriptedEnvironments(
        [Game((1.0,) * 3, "terminated")], [Game((1.0,) * 5, "truncated")], ENDLESS, [Game((1.0,) * 2, "truncated")]
    )


# -- the network ------------------------------------------------------------------------------------------------------


@both_trunks
def test_a_start_inside_a_sequence_makes_two_sequences_of_it(settings: NetworkSettings) -> None:
    network, seen = network_of(settings), observations(2)
    starts = torch.zeros(T, 2, dtype=torch.bool)
    starts[3, 0] = True
    carried = tuple(torch.randn(2, H) for _ in network.initial_state(2, CPU))
    policy, values, after = network(seen, carried, starts)
    one = tuple(part[:1] for part in carried)
    before_start = network(seen[:3, :1], one, starts[:3, 1:])
    from_start = network(seen[3:, :1], network.initial_state(1, CPU), starts[3:, 1:])
    other = network(seen[:, 1:], tuple(part[1:] for part in carried), starts[:, 1:])
    for k, whole in enumerate((policy, values)):
        torch.testing.assert_close(whole[:3, :1], before_start[k])
        torch.testing.assert_close(whole[3:, :1], from_start[k])
        torch.testing.assert_close(whole[:, 1:], other[k])
    for part, started, undisturbed in zip(after, from_start[2], other[2], strict=True):
        torch.testing.assert_close(part, torch.cat([started, undisturbed]))


@both_trunks
def test_a_sequence_at_once_is_the_same_as_step_by_step(settings: NetworkSettings) -> None:
    network, seen = network_of(settings), observations(2)
    starts = torch.zeros(T, 2, dtype=torch.bool)
    state = network.initial_state(2, CPU)
    policy, values, after = network(seen, state, starts)
    for t in range(T):
        one_policy, one_value, state = network(seen[t : t + 1], state, starts[t : t + 1])
        torch.testing.assert_close(one_policy[0], policy[t])
        torch.testing.assert_close(one_value[0], values[t])
    assert all(map(torch.allclose, after, state))


def test_no_gradient_flows_over_a_start_and_some_flows_elsewhere() -> None:
    network = network_of(SHARED)
    seen = observations(2).requires_grad_()
    starts = torch.zeros(T, 2, dtype=torch.bool)
    starts[3, 0] = True
    _, values, _ = network(seen, network.initial_state(2, CPU), starts)
    (slope,) = torch.autograd.grad(values[-1].sum(), seen)
    assert not slope[:3, 0].any()
    assert slope[:3, 1].any()


# -- unrolls ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("together", [1, 8, 1000])
def test_the_newest_weights_judge_an_unroll_with_what_was_remembered(
    together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing has moved yet: whole or a step at a time, they see what acting saw."""
    monkeypatch.setattr(a3c, "EVALUATED_TOGETHER", together)
    agent, collector = agent_and_collector(run_of(surrogate="clip"), scripts())
    collector.collect()
    unroll = collector.collect()
    (batch,) = agent.batches(unroll)
    torch.testing.assert_close(batch.log_probabilities, unroll.recorded["log_probabilities"])
    torch.testing.assert_close(batch.value_targets - batch.advantages, unroll.recorded["values"])
    torch.testing.assert_close(batch.weights, torch.ones_like(batch.weights))


def test_what_is_carried_into_the_next_unroll_is_detached_and_not_zero() -> None:
    agent, collector = agent_and_collector(run_of(), scripts())
    first = collector.collect()
    for batch in agent.batches(first):
        agent.loss(batch).total.backward()
    second = collector.collect()
    assert all(map(torch.equal, first.final_state, second.initial_state))
    assert all(part.any() for part in second.initial_state)
    assert not any(part.requires_grad for part in second.initial_state)


def test_minibatches_are_whole_environments_with_their_own_memory() -> None:
    agent, collector = agent_and_collector(run_of(minibatches=3), scripts())
    collector.collect()
    unroll = collector.collect()
    (whole,) = as_one_batch(agent, unroll)
    batches = list(agent.batches(unroll))
    rows = [batch.observations[-1, :, 0].int().tolist() for batch in batches]
    assert sorted(row for some in rows for row in some) == [0, 1, 2, 3]
    assert [len(some) for some in rows] == [2, 1, 1]
    for batch, some in zip(batches, rows, strict=True):
        for part in ("observations", "starts", "actions", "log_probabilities", "advantages", "value_targets"):
            assert torch.equal(getattr(batch, part), getattr(whole, part)[:, some]), part
        assert all(torch.equal(mine, all_[some]) for mine, all_ in zip(batch.state, whole.state, strict=True))


def as_one_batch(agent: Any, unroll: Trajectory) -> list[Any]:
    """The same unroll as one batch, learned by the same network."""
    undivided: Any = build_agent(run_of(), scripts(), device=CPU, seed=0)
    undivided.network.load_state_dict(agent.network.state_dict())
    return list(undivided.batches(unroll))


# -- evaluation -------------------------------------------------------------------------------------------------------


def test_each_game_of_an_evaluation_begins_with_nothing_remembered() -> None:
    """One observation, always the same: so the first games and the later ones are decided alike, step by step."""
    agent, _ = agent_and_collector(run_of(), OneState(ENDLESS))
    told: list[list[float]] = []

    class Watched:
        def initial_state(self, count: int) -> State:
            state: State = agent.initial_state(count)
            return state

        def act(self, seen: Tensor, state: State, starts: Tensor, *, greedy: bool) -> Decision:
            decision: Decision = agent.act(seen, state, starts, greedy=greedy)
            told.append(decision.recorded["values"].tolist())
            return decision

    watched: Any = Watched()
    games = OneState([Game((1.0,) * 3, "terminated")], [Game((1.0,) * 4, "truncated")])
    list(play(watched, games, episodes=6, greedy=True, seed=0))
    values = np.array(told)
    assert len(values) == 12
    for row, length in ((0, 3), (1, 4)):
        np.testing.assert_allclose(values[:, row], np.tile(values[:length, row], 12 // length), rtol=1e-6)
        assert len(np.unique(values[:length, row].round(6))) == length, "within a game it remembers"
