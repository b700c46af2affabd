"""
The Python interface of ps-rl.

    from ps_rl import train, Run, load_policy, make_env, evaluate, ParameterServerClient

`train` starts a server and workers on this machine and returns a `Run`; `Run.open` reads a run folder; `load_policy`
makes a trained policy a Python object; `make_env` makes what it plays in, and `evaluate` has it play;
`ParameterServerClient` is a worker for anything that has parameters. The
classes that custom algorithms, networks and hooks build on are here, too. Errors are `PsRlError`s. A name is imported
when it is used: `import ps_rl` loads nothing else.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ps_client.client import ParameterServerClient as ParameterServerClient
    from ps_common.errors import PsRlError as PsRlError
    from ps_common.errors import RunEnded as RunEnded
    from ps_common.errors import SettingsError as SettingsError
    from ps_common.protocol.messages import Settlement as Settlement
    from ps_common.run_folder.run_rows import EpisodeRow as EpisodeRow
    from ps_common.run_folder.run_rows import EvaluationRow as EvaluationRow
    from ps_common.run_folder.run_rows import MetricsRow as MetricsRow
    from ps_common.settings.run_spec import A3CSettings as A3CSettings
    from ps_common.settings.run_spec import ActionValuesSettings as ActionValuesSettings
    from ps_common.settings.run_spec import DqnSettings as DqnSettings
    from ps_common.settings.run_spec import NetworkSettings as NetworkSettings
    from ps_common.settings.run_spec import SacSettings as SacSettings
    from ps_rl.environment import make_env as make_env
    from ps_rl.evaluation import evaluate as evaluate
    from ps_rl.run import Run as Run
    from ps_rl.training import train as train
    from ps_rl.updates import Curve as Curve
    from ps_rl.updates import Update as Update
    from rl_agent.algorithms.a3c import A3C as A3C
    from rl_agent.algorithms.a3c import PolicyBatch as PolicyBatch
    from rl_agent.algorithms.action_values import ActionValueLearner as ActionValueLearner
    from rl_agent.algorithms.action_values import ValueBatch as ValueBatch
    from rl_agent.algorithms.algorithm import Algorithm as Algorithm
    from rl_agent.algorithms.algorithm import Loaded as Loaded
    from rl_agent.algorithms.algorithm import Loss as Loss
    from rl_agent.algorithms.algorithm import Prediction as Prediction
    from rl_agent.algorithms.dqn import Dqn as Dqn
    from rl_agent.algorithms.replayed import ReplayedUpdates as ReplayedUpdates
    from rl_agent.algorithms.sac import Sac as Sac
    from rl_agent.environments.spaces import BoxActions as BoxActions
    from rl_agent.environments.spaces import DiscreteActions as DiscreteActions
    from rl_agent.environments.spaces import ObservationSpace as ObservationSpace
    from rl_agent.environments.spaces import Part as Part
    from rl_agent.environments.spaces import Spaces as Spaces
    from rl_agent.networks.custom_network import part_of as part_of
    from rl_agent.networks.flat_network import Block as Block
    from rl_agent.networks.networks import ActionValueNetwork as ActionValueNetwork
    from rl_agent.networks.networks import PolicyValueNetwork as PolicyValueNetwork
    from rl_agent.networks.parts import Parts as Parts
    from rl_agent.networks.policies import ActionDistribution as ActionDistribution
    from rl_agent.replay.replay_memory import Drawn as Drawn
    from rl_agent.replay.replay_memory import ReplayMemory as ReplayMemory
    from rl_agent.rollouts import CutOff as CutOff
    from rl_agent.rollouts import Decision as Decision
    from rl_agent.rollouts import State as State
    from rl_agent.rollouts import Trajectory as Trajectory
    from rl_agent.trial.hooks import Game as Game
    from rl_eval.games import Result as Result
    from rl_eval.policy import Distribution as Distribution
    from rl_eval.policy import Policy as Policy
    from rl_eval.policy import load_policy as load_policy

    __version__: str

TO_TRAIN_AND_PLAY = {
    "train": "ps_rl.training",
    "Run": "ps_rl.run",
    "Update": "ps_rl.updates",
    "MetricsRow": "ps_common.run_folder.run_rows",
    "EvaluationRow": "ps_common.run_folder.run_rows",
    "EpisodeRow": "ps_common.run_folder.run_rows",
    "Curve": "ps_rl.updates",
    "Result": "rl_eval.games",
    "load_policy": "rl_eval.policy",
    "Policy": "rl_eval.policy",
    "Distribution": "rl_eval.policy",
    "make_env": "ps_rl.environment",
    "evaluate": "ps_rl.evaluation",
    "ParameterServerClient": "ps_client.client",
    "Settlement": "ps_common.protocol.messages",
}
FOR_CUSTOM_PARTS = {
    "Algorithm": "rl_agent.algorithms.algorithm",
    "A3C": "rl_agent.algorithms.a3c",
    "A3CSettings": "ps_common.settings.run_spec",
    "PolicyBatch": "rl_agent.algorithms.a3c",
    "ActionDistribution": "rl_agent.networks.policies",
    "ActionValueLearner": "rl_agent.algorithms.action_values",
    "ActionValuesSettings": "ps_common.settings.run_spec",
    "ValueBatch": "rl_agent.algorithms.action_values",
    "Dqn": "rl_agent.algorithms.dqn",
    "DqnSettings": "ps_common.settings.run_spec",
    "Sac": "rl_agent.algorithms.sac",
    "SacSettings": "ps_common.settings.run_spec",
    "ReplayedUpdates": "rl_agent.algorithms.replayed",
    "ReplayMemory": "rl_agent.replay.replay_memory",
    "Drawn": "rl_agent.replay.replay_memory",
    "Block": "rl_agent.networks.flat_network",
    "Loss": "rl_agent.algorithms.algorithm",
    "Loaded": "rl_agent.algorithms.algorithm",
    "Prediction": "rl_agent.algorithms.algorithm",
    "Decision": "rl_agent.rollouts",
    "State": "rl_agent.rollouts",
    "CutOff": "rl_agent.rollouts",
    "Trajectory": "rl_agent.rollouts",
    "Spaces": "rl_agent.environments.spaces",
    "BoxActions": "rl_agent.environments.spaces",
    "DiscreteActions": "rl_agent.environments.spaces",
    "PolicyValueNetwork": "rl_agent.networks.networks",
    "ActionValueNetwork": "rl_agent.networks.networks",
    "NetworkSettings": "ps_common.settings.run_spec",
    "ObservationSpace": "rl_agent.environments.spaces",
    "Part": "rl_agent.environments.spaces",
    "Parts": "rl_agent.networks.parts",
    "part_of": "rl_agent.networks.custom_network",
    "Game": "rl_agent.trial.hooks",
}
ERRORS = {
    "PsRlError": "ps_common.errors",
    "RunEnded": "ps_common.errors",
    "SettingsError": "ps_common.errors",
}
PLACES = TO_TRAIN_AND_PLAY | FOR_CUSTOM_PARTS | ERRORS
__all__ = [*PLACES]

if not TYPE_CHECKING:  # a type checker would take every name for one of ours

    def __getattr__(name: str) -> Any:
        """A public name, imported now."""
        if name == "__version__":
            from ps_common.release import release

            return release()
        if name not in PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *PLACES, "__version__"})
