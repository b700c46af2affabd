"""Options that published systems have, against their formulas written out: SAME padding, the LSTM's forget bias."""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ps_common.settings.run_spec import NetworkSettings
from rl_agent.networks.networks import PolicyValueNetwork
from rl_agent.networks.torsos import torso_for
from tests.rl_agent.observation_spaces import numbers, pixels

Images = NDArray[np.float64]  # [C, H, W]


def same(images: Images, weights: Images, biases: Images, stride: int) -> Images:
    """TensorFlow's padding "SAME", one output at a time: pixels outside of the image are 0; then ReLU."""
    _, side, _ = images.shape
    kernel, outputs = weights.shape[-1], math.ceil(side / stride)
    before = max(0, (outputs - 1) * stride + kernel - side) // 2
    filtered = np.zeros((len(weights), outputs, outputs))
    for row in range(outputs):
        for column in range(outputs):
            total = biases.copy()
            for y in range(kernel):
                for x in range(kernel):
                    at = row * stride - before + y, column * stride - before + x
                    if all(0 <= place < side for place in at):
                        total += weights[:, :, y, x] @ images[:, at[0], at[1]]
            filtered[:, row, column] = np.maximum(total, 0)
    return filtered


def test_same_padding_is_tensorflow_s() -> None:
    """84 → 21 → 11: 3,872 features. The second convolution has three more pixels: one before, two after."""
    torch.manual_seed(0)
    torso, _ = torso_for(NetworkSettings(name="conv84", same_padding=True), pixels(1, 84, 84), ())
    image = torch.randint(256, (1, 1, 84, 84), dtype=torch.uint8)
    convolutions = [module for module in torso if isinstance(module, nn.Conv2d)]
    seen: Images = image[0].double().numpy() / 255
    for convolution in convolutions:
        nn.init.uniform_(convolution.bias, -0.1, 0.1)  # type: ignore[arg-type]
        assert convolution.bias is not None
        weights, biases = (parameter.detach().double().numpy() for parameter in (convolution.weight, convolution.bias))
        seen = same(seen, weights, biases, convolution.stride[0])
    assert seen.shape == (32, 11, 11)
    flat = next(number for number, module in enumerate(torso) if isinstance(module, nn.Flatten))
    with torch.no_grad():
        features = torso[: flat + 1](image)
    np.testing.assert_allclose(features[0].numpy(), seen.reshape(-1), rtol=1e-4, atol=1e-5)


def test_the_forget_bias_is_added_to_the_forget_gate_alone() -> None:
    """With all else at 0 one step of a cell c is sigmoid(bias) · c."""

    def network(bias: float) -> PolicyValueNetwork:
        torch.manual_seed(0)
        return PolicyValueNetwork(
            NetworkSettings(hidden=(4,), lstm=3, lstm_forget_bias=bias), numbers(2), policy_parameters=2
        )

    plain, biased = network(0.0), network(1.5)
    for (name, before), after in zip(plain.named_parameters(), biased.parameters(), strict=True):
        added = torch.zeros_like(before)
        if name == "branch.lstm.bias_ih":
            added[3:6] = 1.5
        torch.testing.assert_close(after, before + added)
    assert biased.branch.lstm is not None
    for one, other in zip(biased.branch.lstm.parameters(), plain.branch.lstm.parameters(), strict=True):  # type: ignore[union-attr]
        one.data.sub_(other.data)
    _, _, (_, cell) = biased(torch.zeros(1, 1, 2), (torch.zeros(1, 3), torch.ones(1, 3)), torch.zeros(1, 1).bool())
    torch.testing.assert_close(cell, torch.full((1, 3), 1 / (1 + math.exp(-1.5))))
