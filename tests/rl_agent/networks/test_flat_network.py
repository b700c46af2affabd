"""
A network on flat vectors: it computes and learns as torch alone does, and its gradients are views, and stay views.

The trap these tests are for: since torch 2.0 a gradient may be set to None and made anew, and a flat vector that was
tied to it would for ever hold the first gradient, or the sum of all.
"""

import copy

import pytest
import torch
from torch import Tensor, nn

from rl_agent.networks.flat_network import Block, FlatNetwork, move_towards


def small_network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def loss_of(network: nn.Module, seed: int, *, scale: float = 1.0) -> Tensor:
    inputs = torch.randn(6, 3, generator=torch.Generator().manual_seed(seed))
    loss: Tensor = scale * network(inputs).square().sum()
    return loss


def autograd_of(network: nn.Module, seed: int, *, scale: float = 1.0) -> Tensor:
    """The gradient of a network that nobody tied, parameter after parameter."""
    gradients = torch.autograd.grad(loss_of(network, seed, scale=scale), list(network.parameters()))
    return torch.cat([gradient.reshape(-1) for gradient in gradients])


def assert_tied(flat: FlatNetwork, network: nn.Module, gradient: Tensor) -> None:
    """Every parameter's gradient lies in the vector, at its place in the schema."""
    slopes = flat.schema.views(gradient)
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None
        assert parameter.grad.data_ptr() == slopes[name].data_ptr(), name


def test_gradients_are_views_before_and_after_everything() -> None:
    network = small_network()
    flat = FlatNetwork(network)
    first, _ = flat.gradient_of(loss_of(network, 1), clip=0)
    assert_tied(flat, network, first)
    flat.load(torch.randn(flat.schema.size))
    assert_tied(flat, network, first)
    second, _ = flat.gradient_of(loss_of(network, 2), clip=0.1)
    assert_tied(flat, network, second)


class Sharing(nn.Module):
    """The second of two layers, and what else holds its memory: that is what `reads` computes with."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 4, bias=False)
        weight = self.second.weight
        match kind:
            case "a view":
                self.held = weight.t()
            case "raw data":
                self.held = [weight.data.t()]
            case "a numpy view":
                self.held = weight.detach().numpy()
            case "a Parameter under two names":
                self.held = nn.Linear(4, 4, bias=False)
                self.held.weight = weight
            case "a trace":
                self.held = torch.jit.trace(self.second, torch.zeros(1, 4)).forward
            case "the old weight norm":
                self.held = nn.utils.weight_norm(self.second)
            case "a parametrization":
                self.held = nn.utils.parametrizations.weight_norm(self.second)
            case "an LSTM":
                self.held = nn.LSTM(4, 4)

    def forward(self, seen: Tensor) -> Tensor:
        features, held = torch.tanh(self.first(seen)), self.held
        match held:
            case nn.LSTM():
                return held(features)[0]
            case Tensor():
                return features @ held
            case [Tensor() as transposed]:
                return features @ transposed + self.second(features)
            case nn.Module():
                return held(features)
            case _ if callable(held):
                return held(features)
        return features @ torch.from_numpy(held).t() + self.second(features)


SHARED = ["a view", "raw data", "a numpy view", "a Parameter under two names", "a trace", "the old weight norm",
          "a parametrization", "an LSTM"]  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated|.*torch.jit.trace:FutureWarning")
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("kind", SHARED)
def test_gradient_descent_on_the_vector_is_that_of_torch_whatever_else_holds_the_weights(kind: str) -> None:
    plain, network = Sharing(kind), Sharing(kind)
    flat, descent = FlatNetwork(network), torch.optim.SGD(plain.parameters(), lr=0.01)
    for seed in range(5):
        descent.zero_grad()
        loss_of(plain, seed).backward()
        descent.step()
        gradient, _ = flat.gradient_of(loss_of(network, seed), clip=0)
        flat.load(flat.weights - 0.01 * gradient)
    assert not torch.equal(plain(torch.ones(1, 3)), Sharing(kind)(torch.ones(1, 3)))
    torch.testing.assert_close(network(torch.ones(1, 3)), plain(torch.ones(1, 3)))


def test_each_gradient_is_that_of_its_own_loss() -> None:
    network = small_network()
    untied = copy.deepcopy(network)
    flat = FlatNetwork(network)
    seen = []
    for seed in (1, 2, 3):
        gradient, norm = flat.gradient_of(loss_of(network, seed), clip=0)
        expected = autograd_of(untied, seed)
        torch.testing.assert_close(gradient, expected)
        assert norm == pytest.approx(float(expected.norm()))
        seen.append(gradient.clone())
    assert not torch.allclose(seen[0], seen[1])
    assert not torch.allclose(seen[1], seen[2])


@pytest.mark.parametrize("clip", [0.5, 40.0])
def test_a_long_gradient_is_scaled_down_and_keeps_its_direction(clip: float) -> None:
    network = small_network()
    expected = autograd_of(copy.deepcopy(network), 1, scale=1000.0)
    gradient, norm = FlatNetwork(network).gradient_of(loss_of(network, 1, scale=1000.0), clip=clip)
    assert norm == pytest.approx(float(expected.norm()), rel=1e-5)
    assert norm > clip
    assert float(gradient.norm()) == pytest.approx(clip, rel=1e-5)
    torch.testing.assert_close(gradient / clip, expected / expected.norm())


def test_what_changes_the_network_shows_in_the_vector_and_not_the_other_way_round() -> None:
    network = small_network()
    flat = FlatNetwork(network)
    with torch.no_grad():
        network[0].weight.fill_(7.0)  # type: ignore[index]
    assert (flat.weights[:12] == 7).all()
    flat.weights.zero_()
    assert (flat.weights[:12] == 7).all()


def test_buffers_are_statistics_behind_the_weights_and_have_no_gradient() -> None:
    network = small_network()
    network.register_buffer("mean", torch.tensor([3.0, 4.0]))
    flat = FlatNetwork(network)
    assert [spec.role for spec in flat.schema.specs][-1] == "statistic"
    assert flat.schema.weights == flat.schema.size - 2
    assert flat.weights[-2:].tolist() == [3.0, 4.0]
    gradient, norm = flat.gradient_of(loss_of(network, 1), clip=0)
    assert gradient[-2:].tolist() == [0.0, 0.0]
    assert norm > 0
    flat.load(torch.arange(flat.schema.size, dtype=torch.float32))
    assert network.mean.tolist() == [flat.schema.size - 2, flat.schema.size - 1]


def test_a_gradient_that_somebody_keeps_is_not_written_to_again() -> None:
    """A push may be sent again long after the next gradients were made."""
    network = small_network()
    flat = FlatNetwork(network)
    kept = [flat.gradient_of(loss_of(network, seed), clip=0)[0] for seed in range(5)]
    for seed, gradient in enumerate(kept):
        torch.testing.assert_close(gradient, autograd_of(network, seed))


def test_a_gradient_that_nobody_keeps_leaves_its_memory_to_the_next_ones() -> None:
    network = small_network()
    flat = FlatNetwork(network)
    places = {flat.gradient_of(loss_of(network, seed), clip=0)[0].data_ptr() for seed in range(20)}
    assert len(places) <= 3


FIRST = Block("first", ("0.",), gradient_clip=0.5)


@pytest.mark.parametrize("clip", [0.0, 0.1, 1e9])
def test_a_block_with_a_clip_of_its_own_is_clipped_by_that_alone(clip: float) -> None:
    network = small_network()
    expected = autograd_of(copy.deepcopy(network), 1, scale=1000.0)
    flat = FlatNetwork(network, blocks=(FIRST, Block("others", ("2.",))))
    gradient, norm = flat.gradient_of(loss_of(network, 1, scale=1000.0), clip=clip)
    assert norm == pytest.approx(float(expected.norm()), rel=1e-5)
    places = {block.name: place for place, block in flat.schema.blocks}
    first, others = (gradient[places[name]] for name in ("first", "others"))
    assert float(first.norm()) == pytest.approx(0.5, rel=1e-5)
    wanted = expected[places["others"]]
    torch.testing.assert_close(others, wanted * min(1.0, clip / float(wanted.norm()) if clip else 1.0))


def test_a_gradient_moves_no_block_but_those_that_are_named() -> None:
    network = small_network()
    flat = FlatNetwork(network, blocks=(FIRST,))
    expected = autograd_of(copy.deepcopy(network), 1)
    gradient, _ = flat.gradient_of(loss_of(network, 1), clip=0, blocks=("first",))
    (first,) = (place for place, block in flat.schema.blocks if block.name == "first")
    assert float(gradient[first].norm()) == pytest.approx(min(0.5, float(expected[first].norm())), rel=1e-5)
    assert not gradient[first.stop :].any()


def test_the_way_from_nan_ends_where_the_whole_of_it_is_made() -> None:
    follower, leader = small_network(), small_network()
    for parameter in follower.parameters():
        parameter.data.fill_(torch.nan)
    move_towards(follower, leader)
    assert all(map(torch.equal, follower.parameters(), leader.parameters()))
