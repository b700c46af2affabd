"""
`load_policy`: a trained policy as a Python object, without its environment.

    policy = load_policy("pong-policy")      # an exported folder, a run folder, a checkpoint, or a live server
    policy.reset()                           # before the first observation of each game
    action = policy.act(observation)         # as the game's env.step takes it

An exported folder needs torch, numpy, safetensors and msgspec alone; no environment is imported for it.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ps_common.errors import CheckpointError, SettingsError
from ps_common.program.objects import check_is_here
from ps_common.protocol.names import module_of
from rl_agent.agent import trained_agent
from rl_agent.environments.spaces import ActionSpace, ObservationSpace, fitted, packed
from rl_eval.policy_folder import MODEL, ExportedPolicy, read_model
from rl_eval.spaces_record import PolicySpaces


class Policy:
    """A trained policy for one game at a time."""

    def __init__(self, exported: ExportedPolicy, *, seed: int = 0) -> None:
        """`seed` is that of sampled actions."""
        self.run = exported.run
        self.global_steps = exported.global_steps
        self._spaces = exported.spaces
        self._agent = trained_agent(
            exported.run,
            exported.spaces,
            exported.schema,
            exported.weights,
            global_steps=exported.global_steps,
            seed=seed,
            origin=exported.origin,
        )
        self.reset()

    @property
    def observations(self) -> ObservationSpace:
        """The space of the argument of `act`."""
        return self._spaces.observations

    @property
    def actions(self) -> ActionSpace:
        """The space that the policy acts in; its `native` makes the result of `act`."""
        return self._spaces.actions

    def reset(self) -> None:
        """Forget the game so far. Call this before the first observation of each game."""
        self._state = self._agent.initial_state(1)
        self._is_first = True

    def act(self, observation: NDArray[Any] | Sequence[NDArray[Any]], *, greedy: bool = False) -> Any:
        """
        The action for an observation of shape `observations.shape`, as `step` of the run's environment takes it.

        It is a numpy number or array, by the environment's own numbers, and within its bounds, shape and type.

        An observation of several parts (of a Dict, or with a mask) is a list of arrays, one for each of
        `observations.parts` in their order: all numbers as one vector, images with their channels first, the mask. The
        action is sampled from the policy, or the most probable one if `greedy`. A method of action values takes the
        best one, and a random one with probability 0.05 unless `greedy`. Raises ValueError for other shapes, and for
        floats where the policy sees bytes.
        """
        batch = torch.from_numpy(np.array(self._array(observation)[None]))
        starts = torch.tensor([self._is_first])
        decision = self._agent.act(batch, self._state, starts, greedy=greedy)
        self._state, self._is_first = decision.state, False
        return self.actions.native(decision.actions.numpy())[0]

    def _array(self, observation: Any) -> NDArray[Any]:
        """One array, as the network sees it. Raises ValueError."""
        space, parts = self.observations, self.observations.parts
        if not parts or (not isinstance(observation, list | tuple) and np.shape(observation) == space.shape):
            return _fitted(observation, space.shape, space.dtype, "an observation")
        if not isinstance(observation, list | tuple) or len(observation) != len(parts):
            raise ValueError(f"an observation is a list of its parts: {space}")
        arrays = [
            # A mask of any numbers allows what is not 0.
            _fitted(np.not_equal(seen, 0) if part.kind == "mask" else seen, part.shape, part.dtype, f"the {part.kind}")
            for seen, part in zip(observation, parts, strict=True)
        ]
        return packed(space, arrays)


def _fitted(seen: Any, shape: tuple[int, ...], dtype: np.dtype[Any], what: str) -> NDArray[Any]:
    try:
        return fitted(seen, shape, dtype)
    except ValueError as error:
        raise ValueError(f"{what} does not fit this policy: {error}") from error


def load_policy(
    source: str | Path,
    *,
    seed: int = 0,
    imports: Sequence[str] = (),
    curve_server_key: str | Path | None = None,
    curve_secret: str | Path | None = None,
) -> Policy:
    """
    The policy in `source`: a folder that `rl-eval --export` has made, a run folder (its best checkpoint, or the newest
    sound one), one checkpoint, or HOST:PORT of a running server.

    An exported folder needs no environment. The others have one made for a moment, to learn the shapes of observations
    and actions. `imports` names the modules of environments, networks and algorithms of somebody's own that may be
    imported, because you trust them. `seed` is that of sampled actions. A locked server takes the
    two key files of `rl-eval`. Raises CheckpointError, SettingsError or ServerUnreachable.
    """
    path = Path(source)
    imports = [imports] if isinstance(imports, str) else imports
    if path.name == MODEL or (path / MODEL).is_file():
        return Policy(_checked(read_model(path), path, imports), seed=seed)
    return Policy(_of_a_run(path, str(source), imports, curve_server_key, curve_secret), seed=seed)


def _of_a_run(
    path: Path,
    server: str,
    imports: Sequence[str],
    curve_server_key: str | Path | None,
    curve_secret: str | Path | None,
) -> ExportedPolicy:
    """The weights of a run folder, of one checkpoint, or of a running server, with the spaces of the environment."""
    # These load Gymnasium and ZeroMQ.
    from ps_common.protocol.addresses import check_address
    from ps_common.run_folder.checkpoint_folder import best_first
    from ps_common.run_folder.shard_folders import newest_set
    from ps_common.sockets.curve import client_keys
    from rl_agent.environments.imports import import_modules
    from rl_agent.environments.make import closing, make_environments
    from rl_eval.trained import trained_at, trained_in

    if path.is_dir() and not newest_set(path) and not best_first(path):
        raise CheckpointError(f"{path}: holds neither {MODEL} nor checkpoints")
    if path.exists():
        trained = trained_in(path)
    elif ":" not in server:
        raise CheckpointError(f"{server}: there is no such folder or checkpoint, and it is no HOST:PORT")
    else:
        check_address("load_policy", server)
        trained = trained_at(server, client_keys(curve_server_key, curve_secret))
    import_modules(imports, trained.run, source=trained.origin, is_trusted=False)
    with closing(make_environments(trained.run.environment, count=1)) as environments:
        spaces = PolicySpaces(environments.observations, environments.actions)
    steps, minutes, origin = trained.global_steps, trained.minutes, trained.origin
    return ExportedPolicy(trained.run, trained.schema, trained.weights, spaces, steps, minutes, origin)


def _checked(exported: ExportedPolicy, path: Path, imports: Sequence[str]) -> ExportedPolicy:
    """The policy. Raises SettingsError that names a module of its network or algorithm which may not be imported."""
    for part in exported.run.agent_parts:
        if not check_is_here(part, source=str(path)) and module_of(part) not in imports:
            raise SettingsError(
                f"{path} was trained with {part}, and a file causes no import; if you trust the code of "
                f"{module_of(part)}: load_policy({str(path)!r}, imports=[{module_of(part)!r}])"
            )
    return exported
