"""
The run specification, as a table of settings: what is trained, how, and until when.

It is decided once, kept by the server, and sent to every worker. Each setting has one name: its key in TOML
(`[algorithm] unroll_length`), its path in an error (`algorithm.unroll_length`), its flag (`--unroll-length`) and its
help text, which stands below it. Its kinds (kinds.py) annotate it. `name` in the sections
`algorithm` and `optimizer` decides which settings they have. run_settings.py makes a RunSpec from names and values,
run_files.py from files.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal, get_args

import msgspec

from ps_common.meters import linear
from ps_common.protocol.names import IMPORT_PATH, LONGEST_TEXT, ImportPath, Text, is_import_path, module_of
from ps_common.settings.families import GYMNASIUM, OF_FRAMES, family_of
from ps_common.settings.keyword_arguments import KeywordArguments, check_arguments
from ps_common.settings.kinds import (
    ADJUSTABLE,
    ADOPTED,
    BUILT_IN,
    CHANGEABLE,
    EACH_WORKERS,
    KEPT,
    KNOWN_TO_THE_SERVER,
    flag,
    kinds,
    needs,
    of_a_game,
    table_flag,
)

# Every number has two bounds: a larger integer cannot travel, and Inf or NaN would pass an open end.
Positive = Annotated[int, msgspec.Meta(ge=1, le=2**53 - 1)]
NotNegative = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]
WorkerCount = Annotated[int, msgspec.Meta(ge=0, le=10_000)]
# Bounds of what memory and time depend on: a number beyond is a slip, and would end in a crash.
Frames = Annotated[int, msgspec.Meta(ge=1, le=1000)]
Noops = Annotated[int, msgspec.Meta(ge=0, le=10_000)]
Action = Annotated[int, msgspec.Meta(ge=0, le=10_000)]
EpisodeSteps = Annotated[int, msgspec.Meta(ge=0, le=10**9)]
LONGEST_UNROLL = 100_000
IMITATION_BYTES = 2**27  # 128 MiB, of the observations that self-imitation remembers
UnrollSteps = Annotated[int, msgspec.Meta(ge=1, le=LONGEST_UNROLL)]
Width = Annotated[int, msgspec.Meta(ge=1, le=100_000)]
Passes = Annotated[int, msgspec.Meta(ge=1, le=10_000)]
GradientCodec = Literal["float32", "bfloat16", "float16", "int8", "topk"]
PullEvery = Annotated[int, msgspec.Meta(ge=1, le=64)]
PushesAhead = Annotated[int, msgspec.Meta(ge=0, le=32)]  # of the 64 unsettled pushes that a worker may have
Fraction = Annotated[float, msgspec.Meta(ge=0, le=1)]
Decay = Annotated[float, msgspec.Meta(ge=0, lt=1)]  # 1 would remember everything and learn nothing
Fading = Annotated[float, msgspec.Meta(gt=0, lt=1)]  # 0 would remember nothing
Tiny = Annotated[float, msgspec.Meta(gt=0, le=1e12)]  # divides: 0 would make the weights NaN
Amount = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
Score = Annotated[float, msgspec.Meta(ge=-1e12, le=1e12)]
# Part of a path: no slashes, and nothing hidden.
ExperimentName = Annotated[str, msgspec.Meta(max_length=60, pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]*)?\Z")]
Seed = Annotated[int, msgspec.Meta(ge=0, le=10**9)]

ADDED_IN_0_3 = kinds(added="0.3.0")
NO_ENVIRONMENT = "none"  # the id in a run that trains something else than a game


def _of_a3c(holds: Callable[["A3CSettings"], bool]) -> Callable[["RunSpec"], bool]:
    """A condition on A3C alone: only another method itself knows what its settings of the same names do."""
    return lambda run: not isinstance(run.algorithm, A3CSettings) or holds(run.algorithm)


def _family(*families: str) -> Callable[["RunSpec"], bool]:
    return lambda run: run.environment.id == NO_ENVIRONMENT or run.environment.family in families


ALE = ("an ALE game", _family("ale"))
FRAMES_OF_GAMES = ("an ALE game or ViZDoom", _family(*OF_FRAMES))
STACKED_FRAMES = (f"{FRAMES_OF_GAMES[0]} (elsewhere a --wrapper of yours stacks them)", FRAMES_OF_GAMES[1])
SLACK = ("--consistency ssp", lambda run: run.consistency.rule == "ssp")
CLIP = ("--surrogate clip", _of_a3c(lambda a3c: a3c.surrogate == "clip"))
IMITATION = ("--imitation-weight", _of_a3c(lambda a3c: a3c.imitation_weight > 0))
REPLAY = (
    "--algorithm dqn or sac",
    lambda run: isinstance(run.algorithm, CustomAlgorithmSettings) or run.algorithm.replays,
)
PRIORITIES = ("--priority-exponent", lambda run: run.replay.priority_exponent > 0)
ANNEALING = ("--entropy-anneal-steps", _of_a3c(lambda a3c: a3c.entropy_anneal_steps > 0))


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A section of a run."""


class Environment(Section, frozen=True, kw_only=True):
    """The game, and how its frames become observations."""

    id: Annotated[Text, flag(name="environment")] = NO_ENVIRONMENT
    """Gymnasium id, as ALE/Pong-v5; or MODULE:NAME, a function of yours that returns an environment; none: no game, the
    workers are custom programs"""
    kwargs: Annotated[KeywordArguments, of_a_game(), *table_flag("environment-kwargs")] = {}
    """keyword arguments of the environment (not ALE, ViZDoom): numbers, texts, true, false, and lists and
    tables of these"""
    wrapper: Annotated[tuple[ImportPath, ...], kinds(takes="MODULE:NAME")] = ()
    """MODULE:NAME of each wrapper of yours around an environment, the innermost first (not ALE, ViZDoom)"""
    envs: Annotated[int, msgspec.Meta(ge=1, le=4096), EACH_WORKERS, CHANGEABLE] = 8
    """environments that each worker steps in lockstep"""
    preprocessing: Annotated[
        Literal["auto", "none", "atari84", "atari42", "breakout-crop", "field40", "pong80", "doom84", "doom42"],
        of_a_game("breakout-crop", "field40", "pong80"),
    ] = "auto"
    """how frames become observations; auto: atari84 for ALE games, doom84 for ViZDoom, none elsewhere"""
    frame_skip: Annotated[Frames, needs(*FRAMES_OF_GAMES, 1)] = 4
    """emulator frames (ALE) or tics (ViZDoom) for one step"""
    frame_stack: Annotated[Frames, needs(*STACKED_FRAMES, 1)] = 4
    """frames in one observation (ALE, ViZDoom)"""
    sticky_actions: Annotated[Fraction, needs(*ALE, 0.0)] = 0.0
    """probability that the emulator repeats the previous action (ALE)"""
    noop_max: Annotated[Noops, needs(*ALE, 0)] = 30
    """most no-ops at the start of a game (ALE)"""
    fire_on_reset: Annotated[bool, needs(*ALE, False)] = True
    """press FIRE at the start of a game that waits for it (ALE)"""
    life_loss_ends_episode: Annotated[bool, needs(*ALE, False)] = False
    """learn as if the loss of a life ended the game; scores stay those of full games (ALE)"""
    reward_ends_episode: Annotated[bool, needs(*ALE, False), of_a_game()] = False
    """learn as if any reward ended the game, as each point of Pong does in Karpathy 2016; scores stay those of full
    games (ALE)"""
    actions: Annotated[tuple[Action, ...], of_a_game()] = ()
    """the subset of the game's actions to use, by number; all of them when empty"""
    action_mask: Literal["auto", "none"] = "auto"
    """auto: only actions that the environment's action_mask allows (in its observations or info); none: ignore it"""
    max_episode_steps: Annotated[EpisodeSteps, of_a_game()] = 0
    """truncate episodes after this many steps; 0: the environment's own limit"""
    step_in: Annotated[Literal["turn", "threads", "processes"], EACH_WORKERS, CHANGEABLE, ADDED_IN_0_3] = "turn"
    """how a worker's environments are stepped: one after another; in a thread each, for simulators that wait; or in a
    process each, for simulators that compute (neither for ALE and ViZDoom)"""
    most_failures: Annotated[Fraction, EACH_WORKERS, CHANGEABLE, ADDED_IN_0_3] = 0.01
    """share of games that a failure of the environment (an exception, NaN, infinity) may cut off before the worker
    ends; it never ends before the third"""

    def __post_init__(self) -> None:
        takes_none = "" if self.family == GYMNASIUM else self.id
        check_arguments("--environment-kwargs", self.kwargs, takes_none=takes_none)

    @property
    def parts(self) -> tuple[str, ...]:
        """The import paths of the section: the id, if a module stands before it as in Gymnasium, and the wrappers."""
        return (*((self.id,) if module_of(self.id) else ()), *self.wrapper)

    @property
    def family(self) -> str:
        """A key of FAMILIES, or GYMNASIUM; "module:" may stand before the id."""
        return GYMNASIUM if is_import_path(self.id) else family_of(self.id.rpartition(":")[2])

    @property
    def frames_per_step(self) -> int:
        """Emulator frames, or tics of Doom, that one step advances."""
        return self.frame_skip if self.family in OF_FRAMES else 1


class Method(Section, frozen=True, kw_only=True, tag_field="name"):
    """The settings that all methods have. A method is its settings here, and a file of rl_agent/algorithms."""

    code: ClassVar[str]  # FILE:CLASS in rl_agent/algorithms
    acts: ClassVar[Literal["any", "discrete", "real"]] = "any"  # the actions that it takes
    is_recurrent: ClassVar[bool] = False  # --lstm and --separate fit it
    replays: ClassVar[bool] = False  # it learns from the section `replay`
    recipe: ClassVar[Mapping[str, Any]] = {}  # settings of --algorithm with --environment, in place of the usual

    unroll_length: Annotated[UnrollSteps, KNOWN_TO_THE_SERVER] = 20
    """steps of each environment between two updates (t_max)"""
    discount: Fraction = 0.99
    """discount of future rewards (gamma)"""
    reward_clip: Amount = 1.0
    """rewards are clipped to +- this in the learner, never in reported scores; 0: not clipped, the default of all games
    but ALE's"""
    reward_normalization: Annotated[Literal["none", "returns"], KEPT] = "none"
    """returns: clipped rewards are divided in the learner by the standard deviation of their discounted sum, over all
    workers"""
    reward_scale: Tiny = 1.0
    """rewards are multiplied by this in the learner, at last"""
    loss: Literal["sum", "mean"] = "sum"
    """over the steps of a batch: sum as in the paper, or mean"""


class A3CSettings(Method, frozen=True, kw_only=True, tag="a3c"):
    """Advantage actor-critic (Mnih et al. 2016, algorithm S3), with GAE, V-trace and a clipped surrogate."""

    code = "a3c:A3C"
    is_recurrent = True

    gae_lambda: Fraction = 1.0
    """lambda of generalised advantage estimation; 1: the paper's n-step returns"""
    off_policy: Literal["none", "vtrace"] = "none"
    """vtrace: weight steps by how likely the newest policy is to take them (Espeholt et al. 2018)"""
    value_weight: Amount = 0.5
    """weight of the value loss, (return - value)^2 / 2"""
    entropy_weight: Annotated[Amount, ADJUSTABLE, ADOPTED] = 0.01
    """weight of the entropy bonus (beta)"""
    final_entropy_weight: Annotated[Score | None, ADOPTED, needs(*ANNEALING)] = None
    """the entropy weight moves to this until entropy_anneal_steps global steps; below 0 it makes the policy certain;
    constant when not given"""
    entropy_anneal_start: Annotated[NotNegative, ADOPTED] = 0
    """global steps at which the entropy weight begins to move"""
    entropy_anneal_steps: Annotated[NotNegative, ADOPTED] = 0
    """global steps at which the entropy weight has arrived; 0: constant"""
    gradient_clip: Amount = 40.0
    """greatest Euclidean norm of a gradient, clipped on the worker; 0: not clipped"""
    normalize_advantages: bool = False
    """give the advantages of each unroll mean 0 and standard deviation 1"""
    surrogate: Literal["none", "clip"] = "none"
    """none: the policy gradient; clip: the clipped ratio (Schulman et al. 2017) to the newest policy; reuses unrolls"""
    clip_range: Annotated[Amount, needs(*CLIP)] = 0.1
    """greatest distance of the clipped ratio from 1"""
    epochs: Passes = 1
    """passes over each trajectory"""
    minibatches: Passes = 1
    """minibatches in a pass, each one push and pull; whole environments where the network has a memory"""
    imitation_weight: Amount = 0.0
    """weight of self-imitation: steps whose return was above 0 and better than expected are learned again (Oh et al.
    2018); returns are in the unit of the value, that of clipped, normalized and scaled rewards; it multiplies the mean
    loss of these steps; 0: none; not with an LSTM"""
    imitation_samples: Annotated[Passes, needs(*IMITATION)] = 32
    """remembered steps that each batch imitates"""
    imitation_capacity: Annotated[Passes, needs(*IMITATION)] = 8192
    """steps that each worker remembers, or fewer: their observations take at most 128 MiB"""
    mirror_images: Annotated[bool, of_a_game()] = False
    """half of the steps, drawn in each pass, are learned in a mirror, with LEFT and RIGHT exchanged: for games
    that are the same there; not with an LSTM"""

    def entropy_weight_at(self, global_steps: int) -> float:
        """The entropy weight at this T."""
        return linear(
            global_steps,
            initial=self.entropy_weight,
            final=self.entropy_weight if self.final_entropy_weight is None else self.final_entropy_weight,
            over=self.entropy_anneal_steps,
            start=self.entropy_anneal_start,
        )


class ActionValuesSettings(Method, frozen=True, kw_only=True):
    """Settings of the methods that learn action values Q(s, a)."""

    acts = "discrete"
    recipe = {
        "algorithm.unroll_length": 16,
        "algorithm.reward_normalization": "returns",
        "algorithm.target_interval": 2000,
        "algorithm.epsilon_anneal_steps": 100_000,
        "algorithm.gradient_clip": 1.0,
        "algorithm.loss": "mean",
    }

    unroll_length: Annotated[UnrollSteps, KNOWN_TO_THE_SERVER] = 5
    """steps of each environment between two updates (I_AsyncUpdate, t_max)"""
    target_interval: Annotated[NotNegative, KNOWN_TO_THE_SERVER] = 10_000
    """global steps between two refreshes of the target network (I_target); 0: the newest weights are the target"""
    final_epsilons: Annotated[tuple[Fraction, ...], ADOPTED] = (0.1, 0.01, 0.5)
    """final shares of random actions; each environment draws one of them"""
    epsilon_probabilities: Annotated[tuple[Fraction, ...], ADOPTED] = (0.4, 0.3, 0.3)
    """probability of each of final_epsilons"""
    epsilon_anneal_steps: NotNegative = 1_000_000
    """global steps over which the share of random actions falls from 1 to the drawn one"""
    gradient_clip: Amount = 10.0
    """greatest Euclidean norm of a gradient, clipped on the worker; 0: not clipped"""

    def __post_init__(self) -> None:
        if len(self.final_epsilons) != len(self.epsilon_probabilities) or not sum(self.epsilon_probabilities) > 0:
            raise ValueError("epsilon_probabilities must have a sum above 0, and one number for each of final_epsilons")


class OneStepQSettings(ActionValuesSettings, frozen=True, kw_only=True, tag="one_step_q"):
    """Asynchronous one-step Q-learning (Mnih et al. 2016, algorithm 1)."""

    code = "one_step_q:OneStepQ"


class OneStepSarsaSettings(ActionValuesSettings, frozen=True, kw_only=True, tag="one_step_sarsa"):
    """Asynchronous one-step Sarsa (Mnih et al. 2016, section 4): the next action is the one really taken."""

    code = "one_step_sarsa:OneStepSarsa"


class NStepQSettings(ActionValuesSettings, frozen=True, kw_only=True, tag="n_step_q"):
    """Asynchronous n-step Q-learning (Mnih et al. 2016, algorithm S2), with lambda-returns."""

    code = "n_step_q:NStepQ"

    q_lambda: Fraction = 1.0
    """lambda of the returns; 1: the paper's n-step returns, less: Q(lambda) (Gallici et al. 2024)"""
    epochs: Passes = 1
    """passes over each trajectory"""
    minibatches: Passes = 1
    """minibatches in a pass, each one push and pull"""


class SacSettings(Method, frozen=True, kw_only=True, tag="sac"):
    """Soft actor-critic (Haarnoja et al. 2018), for actions of real numbers."""

    code = "sac:Sac"
    acts = "real"
    replays = True
    recipe = {
        "environment.envs": 1,
        "network.normalization": "none",
        "schedule.learning_rate": 3e-4,
        "schedule.anneal_steps": 0,
    }

    unroll_length: Annotated[UnrollSteps, KNOWN_TO_THE_SERVER] = 8
    """steps of each environment between two rounds of updates"""
    loss: Literal["sum", "mean"] = "mean"
    target_rate: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.005
    """share of the newest critics that the target critics take up with each version of the weights (tau)"""
    critics: Annotated[int, msgspec.Meta(ge=1, le=100)] = 2
    """critics, of which the smallest value counts"""
    critic_subset: Annotated[int, msgspec.Meta(ge=0, le=100)] = 0
    """critics, drawn for each update, that give its targets (Chen et al. 2021); 0: all of them"""
    critic_dropout: Decay = 0.0
    """share of the critics' features that is dropped while they learn (Hiraoka et al. 2022, with --layer-norm)"""
    temperature: Tiny = 1.0
    """initial weight of the entropy (alpha); it is learned"""
    target_entropy: Score | None = None
    """entropy that the temperature is learned for; when not given, minus the number of the action's elements"""
    actor_rate: Annotated[Amount, KEPT] = 1.0
    """the policy's learning rate, as a multiple of --learning-rate"""
    temperature_rate: Annotated[Amount, KEPT] = 1.0
    """the temperature's learning rate, as a multiple of --learning-rate"""
    policy_every: Annotated[Passes, KEPT] = 1
    """policy and temperature learn in each so-many-th update of a worker, the critics in each"""
    gradient_clip: Amount = 0.0
    """greatest Euclidean norm of a gradient, clipped on the worker; 0: not clipped"""


class DqnSettings(ActionValuesSettings, frozen=True, kw_only=True, tag="dqn"):
    """Deep Q-learning from a replay memory (Mnih et al. 2015), with the usual extensions."""

    code = "dqn:Dqn"
    replays = True
    recipe = {
        "network.normalization": "none",
        "network.activation": "relu",
        "network.hidden": (256, 256),
        "replay.batch_size": 64,
        "replay.replay_ratio": 0.5,
        "replay.n_step": 3,
        "schedule.learning_rate": 1e-3,
        "schedule.anneal_steps": 0,
    }

    unroll_length: Annotated[UnrollSteps, KNOWN_TO_THE_SERVER] = 16
    """steps of each environment between two rounds of updates"""
    loss: Literal["sum", "mean"] = "mean"
    final_epsilons: Annotated[tuple[Fraction, ...], ADOPTED] = (0.05,)
    epsilon_probabilities: Annotated[tuple[Fraction, ...], ADOPTED] = (1.0,)
    epsilon_anneal_steps: NotNegative = 10_000
    target_interval: Annotated[NotNegative, KNOWN_TO_THE_SERVER] = 500
    """global steps between two refreshes of the target network (I_target); 0: the newest weights are the target"""
    double: bool = True
    """the newest network chooses the action that the target network evaluates (van Hasselt et al. 2016)"""
    dueling: bool = False
    """a value and advantages in place of action values (Wang et al. 2016)"""
    quantiles: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 0
    """quantiles of the return for each action (Dabney et al. 2018); 0: its mean alone"""


NONE = "None"  # key of a file: the names of a custom algorithm's settings that are None. No setting may be called so


class CustomAlgorithmSettings(msgspec.Struct, frozen=True, kw_only=True, tag_field="name", tag="MODULE:NAME"):
    """
    Settings of a custom algorithm, which is named by its import path. custom_algorithm.py makes a subclass of this for
    each set of settings; those that the server acts on have the values below where they are not given.
    """

    @property
    def unroll_length(self) -> int:
        """Steps of each environment between two updates: bounds the steps that a push may count."""
        return LONGEST_UNROLL

    @property
    def target_interval(self) -> int:
        """Global steps between two refreshes of the target network; 0: none is kept."""
        return 0


NETWORKS = ("auto", "conv84", "nature84", "conv42", "shallow40", "universe42", "conv10", "conv", "mlp")


class NetworkSettings(Section, frozen=True, kw_only=True):
    """The function that is trained."""

    name: Annotated[
        str,
        msgspec.Meta(max_length=LONGEST_TEXT, pattern=rf"^(?:{'|'.join(NETWORKS)}|{IMPORT_PATH})\Z"),
        kinds(takes=f"one of {', '.join(NETWORKS)}, or a torso of yours as MODULE:NAME"),
        flag(name="network", metavar=f"{{{','.join(NETWORKS)},MODULE:NAME}}"),
    ] = "auto"
    """the torso: conv84 as in the paper, nature84 as in Mnih et al. 2015, conv42 and universe42 for 42x42, shallow40
    for 40x40, conv10 for MinAtar, conv for images of any size, mlp; auto: by the observation's shape; MODULE:NAME: a
    torso of yours"""
    kwargs: Annotated[KeywordArguments, *table_flag("network-kwargs")] = {}
    """keyword arguments of a torso of yours, as --environment-kwargs"""
    hidden: tuple[Width, ...] = ()
    """widths of the hidden layers after the torso; the torso's defaults when empty"""
    separate: bool = False
    """policy and value each have their own torso"""
    lstm: Annotated[int, msgspec.Meta(ge=0, le=100_000)] = 0
    """width of an LSTM after the hidden layers; 0: none"""
    activation: Literal["auto", "relu", "elu", "tanh"] = "auto"
    """between layers; auto: tanh in mlp, relu elsewhere"""
    layer_norm: bool = False
    """normalise each layer's sums before its activation (Ba et al. 2016)"""
    initialization: Literal["orthogonal", "xavier", "normal", "normalized_columns"] = "orthogonal"
    """of the weights; normal: standard deviation 0.1; normalized_columns: in the heads, xavier elsewhere"""
    normalization: Literal["auto", "none", "random_play", "running"] = "none"
    """of observations; none: pixels are divided by 255; random_play: pixels are standardized with the mean and standard
    deviation of random play; running: numbers are, with those so far; auto: running for numbers"""

    def __post_init__(self) -> None:
        takes_none = "" if is_import_path(self.name) else f"--network {self.name}"
        check_arguments("--network-kwargs", self.kwargs, takes_none=takes_none)


class Replay(Section, frozen=True, kw_only=True):
    """The memory of the methods that learn from remembered steps, and how often they learn."""

    replay_ratio: Annotated[float, msgspec.Meta(gt=0, le=1000)] = 1.0
    """updates to one environment step, over all workers"""
    batch_size: Passes = 256
    """remembered steps in an update"""
    learning_starts: NotNegative = 1000
    """global steps before the first update; actions are random until then, except with --start-from"""
    replay_steps: Positive = 1_000_000
    """steps that each worker remembers"""
    replay_mib: Annotated[int, msgspec.Meta(ge=1, le=2**24)] = 1024
    """most MiB of a worker's replay memory; it remembers fewer steps where they do not fit"""
    n_step: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1
    """rewards in a return before it is bootstrapped"""
    priority_exponent: Fraction = 0.0
    """how strongly the error of a step decides how often it is drawn (alpha of Schaul et al. 2016); 0: not at all"""
    priority_correction: Annotated[Fraction, needs(*PRIORITIES)] = 0.4
    """how far importance weights correct that (beta)"""


class Rule(Section, frozen=True, kw_only=True, tag_field="name"):
    """A rule by which the server applies gradients."""


class SgdSettings(Rule, frozen=True, kw_only=True, tag="sgd"):
    """Plain gradient descent."""


class MomentumSettings(Rule, frozen=True, kw_only=True, tag="momentum"):
    """Gradient descent with momentum."""

    momentum: Decay = 0.9
    """share of the previous update that is kept"""


class RmsPropSettings(Rule, frozen=True, kw_only=True, tag="rmsprop"):
    """Shared RMSProp exactly as in Mnih et al. 2016, section 4 (epsilon inside the root)."""

    decay: Fading = 0.99
    """decay of the mean square (alpha)"""
    epsilon: Tiny = 0.1
    """added to the mean square inside the root"""


class AdamSettings(Rule, frozen=True, kw_only=True, tag="adam"):
    """Adam (Kingma & Ba 2015)."""

    beta1: Decay = 0.9
    """decay of the mean gradient"""
    beta2: Decay = 0.999
    """decay of the mean square"""
    epsilon: Tiny = 1e-5
    """added to the root of the mean square"""


class Schedule(Section, frozen=True, kw_only=True):
    """The learning rate as a function of the global step counter T."""

    learning_rate: Annotated[Amount, ADJUSTABLE] = 7e-4
    """step size of the optimizer until T = anneal_start"""
    final_learning_rate: Amount = 0.0
    """step size from T = anneal_steps on"""
    anneal_start: NotNegative = 0
    """global steps at which the learning rate begins to move"""
    anneal_steps: NotNegative = 0
    """global steps at which the learning rate has arrived, in a straight line; 0: constant"""

    def learning_rate_at(self, global_steps: int) -> float:
        """The learning rate at this T."""
        return linear(
            global_steps,
            initial=self.learning_rate,
            final=self.final_learning_rate,
            over=self.anneal_steps,
            start=self.anneal_start,
        )


class Consistency(Section, frozen=True, kw_only=True):
    """How far living workers may drift apart."""

    rule: Annotated[Literal["async", "ssp", "sync"], flag(name="consistency")] = "async"
    """async: each push is applied on arrival; ssp: no worker is more than `slack` pushes ahead of the slowest; sync:
    one push of each worker in a round, as one update with their mean"""
    slack: Annotated[Positive, needs(*SLACK)] = 4
    """pushes that a worker may be ahead of the slowest"""
    quorum: WorkerCount = 0
    """no push is applied before this many workers are alive at once"""


class Budget(Section, frozen=True, kw_only=True):
    """When the run ends: at the first limit reached. 0 and none mean no limit."""

    max_steps: Annotated[NotNegative, ADJUSTABLE] = 0
    """end after this many global steps"""
    max_episodes: NotNegative = 0
    """end after this many episodes of all workers"""
    max_minutes: Annotated[Amount, ADJUSTABLE] = 0.0
    """end after this many minutes of training; they stand still while no worker is alive"""
    until_return: Annotated[Score | None, ADJUSTABLE, of_a_game()] = None
    """end when the mean return of the last 100 episodes reaches this"""


class Wire(Section, frozen=True, kw_only=True):
    """How vectors travel: smaller and less exact where links are slow."""

    gradient_codec: GradientCodec = "float32"
    """gradients as float32; in half the bytes; in a quarter; or in a tenth, with the largest quarter of their elements.
    The part that int8 and topk drop is added to the next gradient"""
    weight_codec: Literal["float32", "bfloat16", "float16", "delta"] = "float32"
    """weights as float32; in half the bytes; or as bfloat16, of which only what has changed since the version that a
    worker has travels: losslessly, in a quarter to an eighth of the bytes of float32"""
    pull_every: PullEvery = 1
    """pushes to one pull of weights: fewer bytes come back, and the gradients between two pulls are later"""
    prefetch: PushesAhead = 0
    """pushes in flight while a worker continues with the weights that it has: it waits less, and each push makes its
    gradients one version later"""


class Records(Section, frozen=True, kw_only=True):
    """Files of a run in addition to its metrics and newest checkpoints."""

    summaries: Literal["none", "perf"] = "perf"
    """numbers for TensorBoard, named Perf/Reward, Losses/Value Loss, ...; none: no event files"""
    checkpoint_every_episodes: NotNegative = 0
    """keep a checkpoint apart after so many episodes of all workers; 0: never"""
    keep_checkpoints: Positive = 5
    """number of newest checkpoints that are kept, and of those that are kept apart"""
    evaluate_every: Annotated[NotNegative, ADDED_IN_0_3] = 0
    """rl-cluster plays games of evaluation after so many global steps, apart from training: their scores are a curve of
    their own, and decide the best checkpoint and until_return; 0: never"""
    evaluate_games: Annotated[Positive, ADDED_IN_0_3] = 20
    """full games of each evaluation"""
    evaluate_greedy: Annotated[bool, ADDED_IN_0_3] = False
    """evaluation takes the most probable action, as it always does of sac, in place of sampling the policy; for action
    values the best one in place of 5 % random ones"""


Algorithm = (
    A3CSettings
    | OneStepQSettings
    | OneStepSarsaSettings
    | NStepQSettings
    | DqnSettings
    | SacSettings
    | CustomAlgorithmSettings
)
Optimizer = SgdSettings | MomentumSettings | RmsPropSettings | AdamSettings

ALGORITHM_SETTINGS: dict[str, type[Algorithm]] = {
    kind.__struct_config__.tag: kind for kind in get_args(Algorithm) if kind is not CustomAlgorithmSettings
}
OPTIMIZER_SETTINGS: dict[str, type[Optimizer]] = {kind.__struct_config__.tag: kind for kind in get_args(Optimizer)}


class RunSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of one run. `preset` is the name that it started from."""

    preset: Annotated[Text, KEPT, flag(help="the name of the preset that the run started from")] = "custom"
    experiment: Annotated[
        ExperimentName,
        flag(help="name of what is tried: of the folder of its runs"),
    ] = ""
    seed: Annotated[
        Seed | None,
        KEPT,
        EACH_WORKERS,
        flag(help="seed of weights, environments and sampling; each worker derives its own from it"),
    ] = None
    start_from: Annotated[
        Text,
        KEPT,
        kinds(takes="a path in ASCII characters"),
        flag(
            metavar="PATH",
            help="run folder, checkpoint, exported policy or s3://… whose weights the run begins with: to fine-tune, "
            "or for another environment of the same spaces. The server reads it when it starts",
        ),
    ] = ""
    environment: Annotated[Environment, KEPT, BUILT_IN] = Environment()
    algorithm: Annotated[Algorithm, BUILT_IN] = A3CSettings()
    network: Annotated[NetworkSettings, KEPT, BUILT_IN] = NetworkSettings()
    replay: Annotated[Replay, ADDED_IN_0_3, BUILT_IN, needs(*REPLAY)] = Replay()
    optimizer: Optimizer = RmsPropSettings()
    schedule: Schedule = Schedule()
    consistency: Consistency = Consistency()
    budget: Budget = Budget()
    wire: Annotated[Wire, EACH_WORKERS, BUILT_IN] = Wire()
    records: Records = Records()

    @property
    def algorithm_name(self) -> str:
        """The value of --algorithm."""
        return str(type(self.algorithm).__struct_config__.tag)

    @property
    def parts(self) -> tuple[str, ...]:
        """The import paths of a run: of the environment, and of a custom network and algorithm."""
        return (*self.environment.parts, *self.agent_parts)

    @property
    def agent_parts(self) -> tuple[str, ...]:
        """The import paths of a custom network and algorithm; () of those that come with ps-rl."""
        names = (self.network.name, self.algorithm_name)
        return tuple(name for name in names if is_import_path(name))

    def to_dict(self) -> dict[str, Any]:
        """Plain nested dictionaries, as in WELCOME and in a checkpoint."""
        built: dict[str, Any] = msgspec.to_builtins(self)
        return built

    def to_toml(self) -> str:
        """
        The text of a file for --config, without empty tables, empty names of the whole run, and settings that are None
        by default. TOML has no None: those of a custom algorithm, whose default is not known here, are listed by name.
        """
        sections = {
            name: {key: value for key, value in section.items() if value not in (None, {})}
            for name, section in self.to_dict().items()
            if isinstance(section, dict)
        }
        if isinstance(self.algorithm, CustomAlgorithmSettings):
            unset = [name for name, value in self.to_dict()["algorithm"].items() if value is None]
            sections["algorithm"] |= {NONE: unset} if unset else {}
        given = {name: value for name, value in self.to_dict().items() if not isinstance(value, dict | None)}
        settings = {name: value for name, value in given.items() if value != "" or name == "preset"}
        import tomli_w  # which a reader of policies need not have

        return tomli_w.dumps(settings | sections)
