"""
Optimizers: rules that turn a gradient into an update, in place on one flat float32 vector.

An optimizer has `slots`, named tensors that a checkpoint keeps, and `apply`. Optimizers run only on the server: all
workers share their slots (Mnih et al. 2016, section 4, "Shared RMSProp"), and no update can race another. Where the
vector has blocks, each range of one has a rule of its own, whose slots are parts of the vectors of slots.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec
import torch
from torch import Tensor

from ps_common.errors import SettingsError
from ps_common.protocol.tensors import BlockSpec, Schema
from ps_common.settings import run_spec


class Rule(Protocol):
    """The interface of a rule. Tensors are [P] float32 on the CPU unless stated otherwise."""

    slots: dict[str, Tensor]

    def apply(self, weights: Tensor, gradient: Tensor, learning_rate: float) -> None:
        """Change `weights` in place, downhill. `gradient` is only read."""


def mean(pushed: Sequence[tuple[Tensor, tuple[str, ...]]], schema: Schema) -> tuple[Tensor, float]:
    """
    Of gradients, each with the blocks that it moves: the mean for each weight over those that move it, the sum for
    statistics, always in this order; and the norm of the part for weights.
    """
    total = torch.zeros(schema.size)
    for place, block in schema.blocks:
        moving = [gradient for gradient, moved in pushed if not moved or block.name in moved]
        for one in moving:
            total[place].add_(one[place], alpha=1 / len(moving))
    for one, _ in pushed:
        total[schema.weights :] += one[schema.weights :]
    return total, float(torch.linalg.vector_norm(total[: schema.weights]))


class Optimizer:
    """
    The rules of a vector: one, or one for each range of a block.

    A slot of numbers for each weight is one vector [P] for all ranges, which shards cut and put together as they do the
    weights. A single number, such as a count of steps, is a slot of its own range: `step`, `step.1`, …
    """

    def __init__(self, settings: run_spec.Optimizer, schema: Schema) -> None:
        """With fresh slots. Raises SettingsError when a block has settings that the optimizer cannot have."""
        self.slots: dict[str, Tensor] = {}
        self._rules: list[tuple[slice, BlockSpec, Rule]] = []
        for number, (place, block) in enumerate(schema.blocks):
            rule = rule_for(settings_in(settings, block), place.stop - place.start)
            for name, slot in rule.slots.items():
                if slot.dim() == 0:
                    self.slots[f"{name}.{number}" if number else name] = slot
                    continue
                whole = self.slots.setdefault(
                    name, slot if len(slot) == schema.weights else torch.zeros(schema.weights)
                )
                whole[place] = slot
                rule.slots[name] = whole[place]
            self._rules.append((place, block, rule))

    def apply(self, weights: Tensor, gradient: Tensor, learning_rate: float, moved: Sequence[str] = ()) -> None:
        """Change the blocks named `moved` of `weights` in place, downhill; () are all. `gradient` is only read."""
        if (
            len(self._rules) == 1 and not moved
        ):  # without views, which of a short vector cost half of what the rule does
            _, block, rule = self._rules[0]
            rule.apply(weights, gradient, learning_rate * block.learning_rate)
            return
        for place, block, rule in self._rules:
            if not moved or block.name in moved:
                rule.apply(weights[place], gradient[place], learning_rate * block.learning_rate)


def settings_in(settings: run_spec.Optimizer, block: BlockSpec) -> run_spec.Optimizer:
    """The optimizer's settings in a block. Raises SettingsError that names the block."""
    if not block.optimizer:
        return settings
    try:
        changed: run_spec.Optimizer = msgspec.convert(msgspec.to_builtins(settings) | block.optimizer, type(settings))
    except msgspec.ValidationError as error:
        raise SettingsError(f"block {block.name!r}: {error}, of the optimizer of the run") from error
    return changed


class Sgd:
    """w ← w − η g"""

    def __init__(self, size: int, settings: run_spec.SgdSettings) -> None:
        self.slots: dict[str, Tensor] = {}

    def apply(self, weights: Tensor, gradient: Tensor, learning_rate: float) -> None:
        weights.add_(gradient, alpha=-learning_rate)


class Momentum:
    """m ← μ m + g;  w ← w − η m"""

    def __init__(self, size: int, settings: run_spec.MomentumSettings) -> None:
        self._momentum = settings.momentum
        self.slots = {"momentum": torch.zeros(size)}

    def apply(self, weights: Tensor, gradient: Tensor, learning_rate: float) -> None:
        momentum = self.slots["momentum"].mul_(self._momentum).add_(gradient)
        weights.add_(momentum, alpha=-learning_rate)


class RmsProp:
    """
    g ← α g + (1 − α) Δθ²;  θ ← θ − η Δθ / √(g + ε)      Mnih et al. 2016, equations S2 and S3

    ε is inside the root. (PyTorch's RMSprop has it outside, which is another method for ε = 0.1.) g starts at 0, so the
    first step of a weight is η / √(1 − α), however small its gradient is beside ε.

    The slot holds u = g + ε, whose recursion is u ← α u + (1 − α) (Δθ² + ε). Then θ ← θ − η Δθ / √u is a step of Adam
    with β1 = 0 and ε = 0, after so many steps that bias correction is 1. For that torch has a kernel of one pass over
    memory; the five passes of the formula as written take more than twice as long.
    """

    def __init__(self, size: int, settings: run_spec.RmsPropSettings) -> None:
        self._decay = settings.decay
        self._before_decay = settings.epsilon * (1 - settings.decay) / settings.decay
        self._gradient = torch.zeros(size)  # the kernel's running mean of one gradient
        self._steps = torch.tensor(1e9)
        self.slots = {"mean_square_plus_epsilon": torch.full((size,), settings.epsilon)}

    def apply(self, weights: Tensor, gradient: Tensor, learning_rate: float) -> None:
        plus_epsilon = self.slots["mean_square_plus_epsilon"].add_(self._before_decay)
        adam_step(
            weights, gradient, self._gradient, plus_epsilon, self._steps, learning_rate,
            beta1=0.0, beta2=self._decay, epsilon=0.0,
        )  # fmt: skip


class Adam:
    """Kingma & Ba 2015, algorithm 1. One step count for all workers."""

    def __init__(self, size: int, settings: run_spec.AdamSettings) -> None:
        self._settings = settings
        self.slots = {"mean": torch.zeros(size), "mean_square": torch.zeros(size), "step": torch.zeros(())}

    def apply(self, weights: Tensor, gradient: Tensor, learning_rate: float) -> None:
        step = self.slots["step"].add_(1)
        adam_step(
            weights, gradient, self.slots["mean"], self.slots["mean_square"], step, learning_rate,
            beta1=self._settings.beta1, beta2=self._settings.beta2, epsilon=self._settings.epsilon,
        )  # fmt: skip


def adam_step(
    weights: Tensor, gradient: Tensor, mean: Tensor, mean_square: Tensor, step: Tensor, learning_rate: float,
    *, beta1: float, beta2: float, epsilon: float,
) -> None:  # fmt: skip
    """Step number `step` of Adam in one pass over memory; changes weights, mean and mean_square."""
    # The public functions of torch.optim first group tensors by device, at each step.
    torch._fused_adam_(
        [weights], [gradient], [mean], [mean_square], [], [step],
        lr=learning_rate, beta1=beta1, beta2=beta2, eps=epsilon, weight_decay=0.0, amsgrad=False, maximize=False,
    )  # fmt: skip


def rule_for(settings: run_spec.Optimizer, size: int) -> Rule:
    """The rule of these settings, with fresh slots, for a vector of `size` elements."""
    match settings:
        case run_spec.SgdSettings():
            return Sgd(size, settings)
        case run_spec.MomentumSettings():
            return Momentum(size, settings)
        case run_spec.RmsPropSettings():
            return RmsProp(size, settings)
        case run_spec.AdamSettings():
            return Adam(size, settings)
