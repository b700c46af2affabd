"""The interface between `training.train` and an algorithm."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor, nn

from rl_agent.networks.flat_network import Block
from rl_agent.rollouts import Decision, State, Trajectory


@dataclass(frozen=True)
class Loss:
    """
    A scalar to differentiate, and named meters (tensors: reading their values would wait for the device).

    `blocks` are those that its gradient moves, by name; () are all. The others stay as they are, with their moments.
    """

    total: Tensor
    meters: dict[str, Tensor]
    blocks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Loaded:
    """The weights that the network has now, and the run that they are of."""

    epoch: int  # one life of a server
    version: int  # one more with each update of all workers
    global_steps: int  # T
    workers: int  # that are alive, this one included; 0 where the server does not say
    went_back: bool  # the run went back to an earlier version since the last call: what followed the weights is void


@dataclass(frozen=True)
class Prediction:
    """An algorithm's expectations for B observations, for display."""

    values: Tensor  # [B] the expected return
    probabilities: Tensor | None  # [B, A] of the actions when it explores; None for actions of real numbers
    choices: tuple[Tensor, ...] = ()  # [B, options] of each choice, where an action is several
    # Of actions of real numbers the mean and the standard deviation of a Gaussian [B, A], 0 where a mask forbids them.
    gaussian: tuple[Tensor, Tensor] | None = None
    is_squashed: bool = False  # a tanh follows the Gaussian, scaled to the bounds of the actions


class FollowsNothing:
    """Of algorithms without targets of their own."""

    def loaded(self, loaded: Loaded) -> None:
        """Nothing follows the weights here."""


class Algorithm(Protocol):
    """Any object with these members can be trained; there is no base class. An algorithm also acts in its rollouts."""

    @property
    def network(self) -> nn.Module:
        """θ"""

    blocks: tuple[Block, ...]  # of the network's parameters, each with settings of its own; () moves all alike
    target_network: nn.Module | None  # θ⁻, of the same schema; None if the algorithm bootstraps from θ
    unroll_length: int  # steps of each environment per unroll
    commits_next_action: bool  # the unroll decides the action after its last step, and the next unroll takes it (Sarsa)
    learns_with_newest: bool  # it corrects for off-policy data, so the newest weights are pulled before learning
    # The next unroll is collected in a thread of its own while this one is learned from. `act` then uses weights that
    # `begin_unroll` has copied, and no generator of random numbers that `loss` uses.
    learns_while_acting: bool
    discount: float
    gradient_clip: float  # greatest norm of a gradient; 0: no clipping

    def adjust(self, settings: Any) -> None:
        """The settings of the run were adjusted; later steps are played and learned with these."""

    def begin_unroll(self, global_steps: int) -> None:
        """Set T, on which schedules are annealed, for the next unroll."""

    def loaded(self, loaded: Loaded) -> None:
        """The network has these weights now, after each pull. Targets that the algorithm keeps itself follow here."""

    def initial_state(self, count: int) -> State:
        """The recurrent state before the first observation of `count` environments."""

    def act(self, observations: Tensor, state: State, starts: Tensor, *, greedy: bool = False) -> Decision:
        """Choose actions for observations [B, ...]; without gradients."""

    def predict(self, observations: Tensor, state: State, starts: Tensor) -> Prediction:
        """The grounds of `act` for the same arguments; without gradients, and without effect on later decisions."""

    def batches(self, trajectory: Trajectory) -> Iterator[Any]:
        """
        Batches to learn from, made from one unroll; each becomes one push. Called for each unroll, and read to its end.

        Without a batch the steps of the unroll are counted all the same.
        """

    def loss(self, batch: Any) -> Loss:
        """The loss of a batch."""
