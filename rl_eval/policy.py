"""
`load_policy`: a trained policy as a Python object, without its environment.

    policy = load_policy("pong-policy")      # an exported folder, a run folder, a checkpoint, or a live server
    policy.reset()                           # before the first observation of each game
    action = policy.act(observation)         # as the game's env.step takes it

An exported folder only needs torch, numpy, safetensors and msgspec; no environment is imported for it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ps_common.errors import CheckpointError, SettingsError
from ps_common.program.objects import check_is_here, objects_here
from ps_common.protocol.names import module_of
from ps_common.run_folder.policy_file import MODEL
from rl_agent.agent import trained_agent
from rl_agent.algorithms.action_values import EpsilonGreedy
from rl_agent.algorithms.algorithm import Prediction
from rl_agent.environments.spaces import ActionSpace, BoxActions, ObservationSpace
from rl_agent.rollouts import State
from rl_eval.native.observations import as_seen
from rl_eval.policy_folder import ExportedPolicy, read_model
from rl_eval.spaces_record import PolicySpaces


@dataclass(frozen=True)
class Distribution:
    """
    How a policy chooses its action, of one observation; arrays have N rows of N.

    Of real numbers it is a Gaussian of each, in the shape of the environment's actions. Its numbers are not yet the
    environment's: where `is_squashed` (SAC) a tanh follows, scaled to the bounds; otherwise
    they are clipped to the bounds. A number that a mask forbids has mean and standard deviation 0.
    """

    probabilities: NDArray[np.float32] | tuple[NDArray[np.float32], ...] | None = (
        None  # [A], or of each choice; or None
    )
    mean: NDArray[np.float32] | None = None  # of real numbers
    standard_deviation: NDArray[np.float32] | None = None
    is_squashed: bool = False


class Policy:
    """
    A trained policy, for one game or for many that are played side by side.

    Methods take an observation as the environment of the run shows it: a Dict with its keys, a Tuple, an image, the
    number of a Discrete; or a batch of N, whose arrays are [N, ...], as vector environments show it. A mask that the
    environment gives in `info` is the argument `action_mask`.

    They also take what the network sees: an array of shape `observations.shape`, or [N, ...], or of several parts (of a
    Dict, or with a mask) a list or tuple of arrays, one for each of `observations.parts` in their order: all numbers as
    one vector, images with their channels first, the mask. `make_env` shows this. Other shapes are a ValueError, and
    so are floats where the policy sees bytes.
    """

    def __init__(self, exported: ExportedPolicy, *, seed: int = 0) -> None:
        """`seed` is that of sampled actions."""
        self.exported = exported
        self.run = exported.run
        self.global_steps = exported.global_steps
        self.objects = objects_here()  # by name, as they are now: a later run may have others of these names
        self._agent = trained_agent(
            exported.run,
            exported.spaces,
            exported.schema,
            exported.weights,
            global_steps=exported.global_steps,
            seed=seed,
            origin=exported.origin,
        )
        self.learns_values = isinstance(self._agent, EpsilonGreedy)  # it takes some actions at random
        self.reset()

    @property
    def observations(self) -> ObservationSpace:
        """The space of the argument of `act`."""
        return self.exported.spaces.observations

    @property
    def actions(self) -> ActionSpace:
        """The space that the policy acts in; its `native` makes the result of `act`."""
        return self.exported.spaces.actions

    def reset(self, ended: ArrayLike | None = None) -> None:
        """
        Forget the games so far. Call this before the first observation of each game.

        `ended` [N]: which of the games played side by side have ended, such as `terminated | truncated` of a vector
        environment; None: all of them.
        """
        if ended is None or self._starts is None:
            self._state: State = ()
            self._starts: Tensor | None = None
            return
        if np.shape(ended) != (len(self._starts),):
            raise ValueError(
                f"reset: `ended` has shape {np.shape(ended)}, and the policy plays {len(self._starts)} games"
            )
        self._starts = self._starts | torch.from_numpy(np.array(ended, np.bool_))

    def act(self, observation: Any, *, greedy: bool = False, action_mask: Any = None) -> Any:
        """
        The action for an observation, as `step` of the run's environment takes it; [N, ...] for N observations.

        It is a numpy number or array, by the environment's own numbers, and within its bounds, shape and type. The
        action is sampled from the policy, or the most probable one if `greedy`: of real numbers the mean, that of SAC
        before its tanh. A method of action values takes the best one, and a random one with probability 0.05 unless
        `greedy`.
        """
        seen, is_one = self.seen(observation, action_mask)
        decision = self._agent.act(*self._grounds(seen), greedy=greedy)
        self._state, self._starts = decision.state, torch.zeros(len(seen), dtype=torch.bool)
        actions = self.actions.native(decision.actions.numpy())
        return actions[0] if is_one else actions

    def value(self, observation: Any, *, action_mask: Any = None) -> Any:
        """
        The return that the policy expects from here on, in the units that it learned from: discounted, and of clipped
        or normalised rewards where the run has these. float32 [N] for N observations. The memory stays as it is.
        """
        values, is_one = self._prediction(observation, action_mask)
        return values.values.numpy()[0] if is_one else values.values.numpy()

    def probabilities(self, observation: Any, *, action_mask: Any = None) -> NDArray[np.float32]:
        """
        The probability of each action, [A]; [N, A] for N observations. `actions.native(range(A))` are the actions.

        The memory stays as it is. Raises ValueError for actions of real numbers, and of several choices at once.
        """
        prediction, is_one = self._prediction(observation, action_mask)
        if prediction.probabilities is None:
            raise ValueError(f"only single choices have a probability each; the actions are {self.actions}")
        probabilities: NDArray[np.float32] = prediction.probabilities.numpy()
        return probabilities[0] if is_one else probabilities

    def distribution(self, observation: Any, *, action_mask: Any = None) -> Distribution:
        """
        How the policy chooses when it is not greedy: probabilities of discrete actions, a Gaussian of real numbers.

        The memory stays as it is. Raises ValueError for a custom algorithm that tells neither.
        """
        prediction, is_one = self._prediction(observation, action_mask)

        def shown(tensor: Tensor) -> Any:
            return tensor.numpy()[0] if is_one else tensor.numpy()

        actions = self.actions
        if prediction.gaussian is not None and isinstance(actions, BoxActions):
            shape = actions.shape or actions.low.shape
            mean, deviation = (shown(part.reshape(len(part), *shape)) for part in prediction.gaussian)
            return Distribution(None, mean, deviation, prediction.is_squashed)
        if prediction.choices:
            return Distribution(tuple(map(shown, prediction.choices)))
        if prediction.probabilities is None:
            raise ValueError(f"{self.run.algorithm_name} does not tell how it chooses among {actions}")
        return Distribution(shown(prediction.probabilities))

    def __repr__(self) -> str:
        run = self.run
        trained = f"{run.environment.id} ({run.algorithm_name}, {self.global_steps:,} steps)"
        return f"<Policy of {trained}: {self.observations} -> {self.actions}>"

    def _prediction(self, observation: Any, action_mask: Any) -> tuple[Prediction, bool]:
        seen, is_one = self.seen(observation, action_mask)
        return self._agent.predict(*self._grounds(seen)), is_one

    def _grounds(self, seen: Tensor) -> tuple[Tensor, State, Tensor]:
        """The grounds of a decision. Raises ValueError for another number of games than the policy remembers."""
        if self._starts is None or (len(self._starts) != len(seen) and not self._state):
            self._state = self._agent.initial_state(len(seen))
            self._starts = torch.ones(len(seen), dtype=torch.bool)
        if len(self._starts) != len(seen):
            raise ValueError(f"the policy remembers {len(self._starts)} games, and here are {len(seen)}; reset() it")
        return seen, self._state, self._starts

    def seen(self, observation: Any, action_mask: Any = None) -> tuple[Tensor, bool]:
        """[N, ...] as the network sees it, and whether it is of one observation. Raises ValueError."""
        rows, is_one = as_seen(self.observations, self.actions, observation, action_mask)
        return torch.from_numpy(np.array(rows)), is_one


def load_policy(
    source: str | Path,
    *,
    seed: int = 0,
    imports: Sequence[str] = (),
    newest: bool = False,
    curve_server_key: str | Path | None = None,
    curve_secret: str | Path | None = None,
) -> Policy:
    """
    The policy in `source`: a folder that `rl-eval --export` has made, a run folder (its best checkpoint, or the newest
    intact one; the newest where `newest`), one checkpoint, or HOST:PORT of a running server.

    An exported folder needs no environment. The others have one made for a moment, to learn the shapes of observations
    and actions. `imports` names the modules of environments, networks and algorithms of somebody's own that may be
    imported, because you trust them. `seed` is that of sampled actions. A locked server takes the
    two key files of `rl-eval`. Raises CheckpointError, SettingsError or ServerUnreachable.
    """
    path = Path(source)
    imports = [imports] if isinstance(imports, str) else imports
    if path.name == MODEL or (path / MODEL).is_file():
        return Policy(_checked(read_model(path), path, imports), seed=seed)
    return Policy(_of_a_run(path, str(source), imports, newest, curve_server_key, curve_secret), seed=seed)


def _of_a_run(
    path: Path,
    server: str,
    imports: Sequence[str],
    newest: bool,
    curve_server_key: str | Path | None,
    curve_secret: str | Path | None,
) -> ExportedPolicy:
    """The weights of a run folder, of one checkpoint, or of a running server, with the spaces of the environment."""
    # These load Gymnasium and ZeroMQ.
    from ps_common.protocol.names import check_address
    from ps_common.run_folder.checkpoint_folder import best_first
    from ps_common.run_folder.places import newest_set
    from ps_common.run_folder.trained import trained_in
    from ps_common.sockets.curve import client_keys
    from rl_agent.environments.imports import import_modules
    from rl_agent.environments.make import closing, make_environments
    from rl_agent.environments.process_guard import leave_children_alone
    from rl_eval.trained import trained_at

    if path.is_dir() and not newest_set(path) and not best_first(path):
        raise CheckpointError(f"{path}: holds neither {MODEL} nor checkpoints")
    if path.exists():
        trained = trained_in(path, newest=newest)
    elif ":" not in server:
        raise CheckpointError(f"{server}: there is no such folder or checkpoint, and it is no HOST:PORT")
    else:
        check_address("load_policy", server)
        trained = trained_at(server, client_keys(curve_server_key, curve_secret))
    import_modules(imports, trained.run, source=trained.origin, is_trusted=False)
    leave_children_alone()
    with closing(make_environments(trained.run.environment, count=1)) as environments:
        spaces = PolicySpaces(environments.observations, environments.actions)
    steps, minutes, origin = trained.global_steps, trained.minutes, trained.origin
    return ExportedPolicy(trained.run, trained.schema, trained.weights, spaces, steps, minutes, origin)


def _checked(exported: ExportedPolicy, path: Path, imports: Sequence[str]) -> ExportedPolicy:
    """The policy. Raises SettingsError that names a module of its network or algorithm which may not be imported."""
    for part in exported.run.agent_parts:
        if not check_is_here(part) and module_of(part) not in imports:
            raise SettingsError(
                f"{path} was trained with {part}, and a file causes no import; if you trust the code of "
                f"{module_of(part)}: load_policy({str(path)!r}, imports=[{module_of(part)!r}])"
            )
    return exported
