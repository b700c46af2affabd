"""
`rl-eval`: plays full games with the weights of a checkpoint or of a live server and prints their true scores.

The environment and the agent are built as in training, so that evaluation measures the agent that was trained.
"""

import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NoReturn

import msgspec
import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor
from tyro.conf import arg

from common.errors import CheckpointError, SettingsError
from common.program.flags import parse_program
from common.program.number_flags import check_number
from common.program.output_file import check_output
from common.program.run_program import run_program
from common.protocol import messages
from common.protocol.addresses import check_address
from common.protocol.codecs import codec_named
from common.protocol.tensors import Schema
from common.run_folder.checkpoint_file import read_weights
from common.run_folder.checkpoint_folder import best_first, first_sound
from common.settings.run_settings import run_from_dict
from common.settings.run_spec import RunSpec
from common.sockets.curve import ClientKeys, CurveFlags
from common.sockets.request import ask
from rl_worker.agent import build_agent
from rl_worker.algorithms.algorithm import Algorithm
from rl_worker.environments.imports import import_modules
from rl_worker.environments.interface import Environments
from rl_worker.environments.make import make_environments
from rl_worker.networks.flat_network import FlatNetwork
from rl_worker.play.player import Player
from rl_worker.play.recording import record_game, record_gif

PROGRAM = "rl-eval"
MOST_ENVIRONMENTS = 16
MOST_EPISODES = 10**9
MOST_SEED = 10**9  # as in training; seed plus environment number must fit into 31 bits (ALE)
REPLY_TIMEOUT_SECONDS = 30.0

log = logging.getLogger(PROGRAM)


@dataclass(frozen=True, kw_only=True)
class EvaluationSettings(CurveFlags):
    """Play full games with trained weights and print their true scores. Give --checkpoint or --server."""

    checkpoint: Path | None = None
    """a checkpoint file, or a run folder: its best checkpoint, or the newest sound one if there is no sound best"""
    server: str | None = None
    """HOST:PORT of a running ps-server"""
    imports: Annotated[tuple[str, ...], arg(name="import")] = ()
    """modules to import first because they register environments; a run that needs another module is refused, unless
    its server is known by --curve-server-key"""
    episodes: int = 100
    """full games to play"""
    greedy: bool = False
    """take the most probable action instead of sampling the policy"""
    seed: int = 1_000_000
    """seed of the games; the default is far from training's seeds"""
    video: Path | None = None
    """file for an MP4 of one more whole game"""
    gif: Path | None = None
    """file for a GIF of the first minute of one more game"""
    json: Path | None = None
    """file for the result"""

    def __post_init__(self) -> None:
        if (self.checkpoint is None) == (self.server is None):
            raise SettingsError("give either --checkpoint PATH or --server HOST:PORT")
        if self.server is not None:
            check_address("--server", self.server)
        check_number("--episodes", self.episodes, least=1, most=MOST_EPISODES)
        check_number("--seed", self.seed, least=0, most=MOST_SEED)


@dataclass(frozen=True)
class Trained:
    """Weights to evaluate, with the run and the network that they belong to."""

    run: RunSpec
    schema: Schema
    weights: Tensor  # [P]
    global_steps: int
    origin: str  # the checkpoint or server, for messages


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """Scores of the games. `low` and `high` bound the mean with 95 % confidence (normal approximation)."""

    environment: str
    episodes: int
    greedy: bool
    mean: float
    std: float
    low: float
    high: float
    scores: list[float]


def main() -> NoReturn:
    run_program(evaluate, PROGRAM)


def evaluate(argv: Sequence[str] | None = None) -> int:
    """Run the program. Raises PsRlError for errors that the user can correct."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    settings = parse_program(EvaluationSettings, argv, prog=PROGRAM)
    check_output("--video", settings.video, suffix=".mp4")
    check_output("--gif", settings.gif, suffix=".gif")
    check_output("--json", settings.json)
    torch.set_num_threads(1)
    torch.manual_seed(settings.seed)
    trained = _trained(settings)
    environment = trained.run.environment
    log.info("%s from %s", environment.id, trained.origin)
    is_trusted = settings.curve_server_key is not None
    import_modules(settings.imports, environment, source=trained.origin, is_trusted=is_trusted)
    environments = make_environments(environment, count=min(settings.episodes, MOST_ENVIRONMENTS))
    agent = build_agent(trained.run, environments, device=torch.device("cpu"), seed=settings.seed)
    _load(agent, trained)
    agent.begin_unroll(trained.global_steps)  # ε is as it was in training at that step
    games = play(agent, environments, episodes=settings.episodes, greedy=settings.greedy, seed=settings.seed)
    console = Console(stderr=True)
    is_silent = not console.is_terminal
    scores = list(track(games, "games", settings.episodes, console=console, transient=True, disable=is_silent))
    environments.close()
    result = summary(scores, environment=environment.id, greedy=settings.greedy)
    _print(result)
    if settings.json is not None:
        _write(settings.json, result)
    if settings.video is not None:
        record_game(agent, environment, settings.video, greedy=settings.greedy, seed=settings.seed)
        print(f"video: {settings.video}")
    if settings.gif is not None:
        _write_gif(settings.gif, agent, trained.run, greedy=settings.greedy, seed=settings.seed)
        print(f"GIF: {settings.gif}")
    return 0


def play(agent: Algorithm, environments: Environments, *, episodes: int, greedy: bool, seed: int) -> Iterator[float]:
    """
    The true scores of `episodes` full games, as they end.

    Each environment plays a fixed share of the games. Otherwise short games, which end first, would be overrepresented.
    """
    share = np.full(environments.count, episodes // environments.count)
    share[: episodes % environments.count] += 1
    returns = np.zeros(environments.count)
    player = Player(agent, environments, greedy=greedy, seed=seed)
    while share.any():
        stepped = player.step()
        returns += stepped.rewards
        for row in np.flatnonzero(stepped.terminated | stepped.truncated):
            if share[row]:
                share[row] -= 1
                yield float(returns[row])
            returns[row] = 0.0


def summary(scores: Sequence[float], *, environment: str, greedy: bool) -> Result:
    """Mean, standard deviation and confidence interval of scores."""
    mean = float(np.mean(scores))
    std = float(np.std(scores, ddof=1)) if len(scores) > 1 else 0.0
    margin = 1.96 * std / math.sqrt(len(scores))
    return Result(
        environment=environment,
        episodes=len(scores),
        greedy=greedy,
        mean=mean,
        std=std,
        low=mean - margin,
        high=mean + margin,
        scores=list(scores),
    )


def _print(result: Result) -> None:
    how = "greedy" if result.greedy else "sampled"
    print(
        f"{result.environment}: mean {result.mean:.2f} (95 % {result.low:.2f} to {result.high:.2f}), "
        f"std {result.std:.2f}, of {result.episodes} full games, {how} actions"
    )


def _write(path: Path, result: Result) -> None:
    try:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n")
    except OSError as error:
        raise SettingsError(f"--json {path}: cannot be written: {error.strerror}") from error


def _write_gif(path: Path, agent: Algorithm, run: RunSpec, *, greedy: bool, seed: int) -> None:
    environments = make_environments(run.environment, count=1, with_screen=True)
    try:
        record_gif(agent, environments, path, greedy=greedy, seed=seed)
    except OSError as error:
        raise SettingsError(f"--gif {path}: cannot be written: {error.strerror or error}") from error
    finally:
        environments.close()


def _trained(settings: EvaluationSettings) -> Trained:
    if settings.server is not None:
        return _trained_at_server(settings.server, settings.client_keys())
    assert settings.checkpoint is not None, "EvaluationSettings require one of the two"
    path, (run, schema, weights, record) = _read(settings.checkpoint)
    steps = record["progress"]["global_steps"]
    return Trained(run, schema, weights, steps, f"{path}, step {steps}")


def _trained_at_server(server: str, keys: ClientKeys | None) -> Trained:
    status, _ = ask(server, messages.StatusRequest(request=1), timeout_seconds=REPLY_TIMEOUT_SECONDS, keys=keys)
    assert isinstance(status, messages.StatusReply)
    if not status.schema:
        raise SettingsError(f"--server {server}: its run has no weights yet; try again when a worker has joined")
    reply, vector = ask(server, messages.Pull(request=2), timeout_seconds=REPLY_TIMEOUT_SECONDS, keys=keys)
    assert isinstance(reply, messages.Weights)
    schema = Schema(status.schema)
    weights = codec_named(reply.codec).decode(vector, schema.size).clone()
    run = run_from_dict(status.run, source=server)
    return Trained(run, schema, weights, reply.global_steps, f"{server}, version {reply.version}")


def _read(path: Path) -> tuple[Path, tuple[RunSpec, Schema, Tensor, dict[str, Any]]]:
    """A checkpoint and its path; in a run folder the best checkpoint, or the newest sound one."""
    if not path.is_dir():
        return path, read_weights(path)
    found = first_sound(best_first(path), read_weights, lambda error: log.warning("%s; trying another", error))
    if found is None:
        raise CheckpointError(f"--checkpoint {path}: contains no sound checkpoints")
    return found


def _load(agent: Algorithm, trained: Trained) -> None:
    """Raises CheckpointError if the weights belong to another network."""
    network = FlatNetwork(agent.network)
    if sentence := network.schema.difference(trained.schema):
        raise CheckpointError(f"{trained.origin}: its weights are of another network: {sentence}")
    network.load(trained.weights)
