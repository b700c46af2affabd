"""
`rl-eval`: plays full games with the weights of a checkpoint or of a live server and prints their true scores.

The environment and the agent are built as in training, so that evaluation measures the agent that was trained.
"""

import dataclasses
import logging
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec
import torch
from rich.console import Console
from rich.progress import track

from ps_common.program.flags import parse_program
from ps_common.program.reasons import report_reason
from ps_common.run_folder.output_files import write_output
from ps_common.run_folder.policy_file import MODEL
from ps_common.run_folder.trained import Trained, trained_in
from ps_common.settings.run_spec import SacSettings
from rl_agent.algorithms.algorithm import Algorithm
from rl_agent.environments.imports import import_modules
from rl_agent.environments.interface import Environments
from rl_agent.environments.make import closing, make_environments, with_time_limit
from rl_agent.random_numbers import drawing, drawing_apart
from rl_eval.export import write_policy
from rl_eval.games import MOST_ENVIRONMENTS, MOST_GAME_STEPS, Beside, Game, Result, play, summary
from rl_eval.onnx_file import check_onnx
from rl_eval.receipt import read_receipt, receipt_of, verify, write_receipt
from rl_eval.recording import record
from rl_eval.scores import measure_baselines, print_result
from rl_eval.settings import EvaluationSettings
from rl_eval.trained import agent_of, new_weights, report, trained_at

PROGRAM = "rl-eval"

log = logging.getLogger(PROGRAM)


def evaluate(argv: Sequence[str] | None = None) -> int:
    """Run the program. Raises PsRlError for errors that the user can correct."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    settings = parse_program(EvaluationSettings, argv, prog=PROGRAM)
    settings.check_outputs()
    torch.set_num_threads(1)
    if settings.verify is not None:
        _verify(settings.verify, settings)
        return 0
    with drawing_apart(settings.seed):
        _evaluate(settings)
    return 0


def _evaluate(settings: EvaluationSettings) -> None:
    """Play, and write what is asked for. Raises PsRlError as `evaluate` does."""
    if settings.follow is not None:
        _follow(settings.follow, settings)
        report_reason("over", "")
        return
    trained = _trained(settings)
    log.info("%s from %s", trained.run.environment.id, trained.origin)
    played, most_steps = _playable(trained, settings)
    agent = _play(trained, played, most_steps, settings)
    _record(agent, played, settings)
    report_reason("over", "")


def _playable(trained: Trained, settings: EvaluationSettings) -> tuple[Trained, int]:
    """The same, trained in games that all end, and after how many steps; its modules are imported."""
    is_trusted = settings.curve_server_key is not None
    import_modules(settings.imports, trained.run, source=trained.origin, is_trusted=is_trusted)
    environment, most_steps = with_time_limit(
        trained.run.environment, at_least=MOST_GAME_STEPS, given=settings.max_episode_steps
    )
    run = msgspec.structs.replace(trained.run, environment=environment)
    return dataclasses.replace(trained, run=run), most_steps


def _follow(place: str, settings: EvaluationSettings) -> None:
    """Play games with each new checkpoint of the run at this place, in the same environments, until it is over."""
    keys = settings.client_keys()
    count = min(settings.episodes, MOST_ENVIRONMENTS)
    with ExitStack() as opened:
        environments: Environments | None = None
        for trained in new_weights(place, keys):
            played, most_steps = _playable(trained, settings)
            if isinstance(played.run.algorithm, SacSettings):  # whose policy is judged by its mean action
                settings = dataclasses.replace(settings, greedy=True)
            if environments is None:
                made = make_environments(played.run.environment, count=count, forgives=True)
                environments = opened.enter_context(closing(made))
            with drawing(settings.seed):  # scores only differ by the weights
                _, result, _ = _scored(played, environments, most_steps, settings)
            outcome = report(place, trained, result, keys)
            print(f"step {trained.global_steps:,}: {f'{outcome}: ' if outcome else ''}", end="")
            print_result(result)
            sys.stdout.flush()


def _trained(settings: EvaluationSettings) -> Trained:
    if settings.server is not None:
        return trained_at(settings.server, settings.client_keys())
    assert settings.checkpoint is not None, "EvaluationSettings require one"
    return trained_in(settings.checkpoint)


def _verify(path: Path, settings: EvaluationSettings) -> None:
    receipt = read_receipt(path)
    import_modules(settings.imports, receipt.environment, source=str(path), is_trusted=False)
    verify(receipt, path)
    print(f"{path}: verified: each of {receipt.episodes} games has its score again")
    id, greedy, epsilon = receipt.environment.id, receipt.greedy, receipt.epsilon
    result = summary(receipt.games, environment=id, greedy=greedy, epsilon=epsilon)
    print_result(msgspec.structs.replace(result, baselines=receipt.baselines))


def _play(trained: Trained, played: Trained, most_steps: int, settings: EvaluationSettings) -> Algorithm:
    """Play the games, print and write their scores; returns the agent. `played` is trained in games that all end."""
    environment, seed = played.run.environment, settings.seed
    count = min(settings.episodes, MOST_ENVIRONMENTS)
    # A receipt replays all games of an environment: none may have been cut off between them.
    forgives = settings.receipt is None and settings.export is None
    with closing(make_environments(environment, count=count, forgives=forgives)) as environments:
        agent, result, games = _scored(played, environments, most_steps, settings)
    if settings.baselines:
        baselines = measure_baselines(environment, epsilon=result.epsilon or 0.0, seed=seed, most_steps=most_steps)
        result = msgspec.structs.replace(result, baselines=baselines)
    print_result(result)
    _write_files(games, result, trained, played, environments, agent, settings)
    return agent


def _scored(
    played: Trained, environments: Environments, most_steps: int, settings: EvaluationSettings
) -> tuple[Algorithm, Result, list[Game]]:
    """The agent, and its games, played beside a progress bar; with their actions only where a file needs them."""
    seed, greedy, beside = settings.seed, settings.greedy, Beside()
    agent, epsilon = agent_of(played, environments, epsilon=settings.epsilon, greedy=greedy, seed=seed)
    if settings.onnx:
        check_onnx(agent.network)  # before the games, which an error would lose
    playing = play(
        agent,
        environments,
        episodes=settings.episodes,
        greedy=greedy,
        seed=seed,
        most_steps=most_steps,
        keeps_actions=any((settings.receipt, settings.export)),
        beside=beside,
    )
    console = Console(stderr=True)
    is_silent = not console.is_terminal
    games = list(track(playing, "games", settings.episodes, console=console, transient=True, disable=is_silent))
    id = played.run.environment.id
    return agent, summary(games, environment=id, greedy=greedy, epsilon=epsilon, beside=beside), games


def _write_files(
    games: list[Game],
    result: Result,
    trained: Trained,
    played: Trained,
    environments: Environments,
    agent: Algorithm,
    settings: EvaluationSettings,
) -> None:
    """Write the files that the games themselves fill."""
    if settings.export is not None:
        # A path of this machine would mean nothing to others: the hash names the weights.
        portable = dataclasses.replace(played, origin=MODEL)
        receipt = receipt_of(games, result, portable, environments, seed=settings.seed)
        write_policy(settings.export, trained, agent.network, environments, receipt, result, has_onnx=settings.onnx)
        print(f"policy: {settings.export}")
    if settings.json is not None:
        write_output("--json", settings.json, msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n")
    if settings.receipt is not None:
        write_receipt(settings.receipt, receipt_of(games, result, played, environments, seed=settings.seed))
        print(f"receipt: {settings.receipt}")


def _record(agent: Algorithm, trained: Trained, settings: EvaluationSettings) -> None:
    """Record the games that are shown."""
    for flag, kind, path in (("--video", "video", settings.video), ("--gif", "GIF", settings.gif)):
        if path is None:
            continue
        environment, greedy, seed = trained.run.environment, settings.greedy, settings.seed
        record(flag, path, agent, environment, greedy=greedy, seed=seed)
        print(f"{kind}: {path}")
