"""A member of a gang, started by the speaker: acts and learns with the speaker's weights, and gives it gradients."""

import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ps_client.shell.newest import Newest
from ps_common.errors import RunEnded
from ps_common.program.output import log_as
from ps_common.program.reasons import report_reason
from ps_common.program.resources import flush_denormals
from ps_common.program.run_program import bounded
from ps_common.program.start import start
from ps_common.program.stop_signals import StopSignal
from ps_common.protocol.messages import Episode
from ps_common.settings.run_settings import run_from_dict
from ps_common.settings.run_spec import Algorithm, RunSpec
from ps_common.sockets.shared_memory import Segment
from rl_agent.agent import build_agent, collector_for, keep_replay
from rl_agent.environments.imports import import_named
from rl_agent.environments.interface import Environments, close_logged
from rl_agent.environments.make import make_environments
from rl_agent.networks.flat_network import FlatNetwork
from rl_agent.random_numbers import drawing_apart
from rl_agent.trial.hooks import Hooks
from rl_worker.gang_link import TARGET, WEIGHTS, Answer, Begin, Leave, Link, Pull, Push, Report, Vectors
from rl_worker.training import train

PROGRAM = "rl-worker"
SOURCE = "the speaker of the gang"
CLOSE_SECONDS = 2.0  # for close() of the user's environments

log = logging.getLogger(PROGRAM)


class OfSpeaker:
    """The parameters of the run, asked of the speaker. A call raises RunEnded when the member is to leave."""

    def __init__(self, link: Link, vectors: Vectors, number: int) -> None:
        self._link, self._number = link, number
        self._weights, self._target = vectors.tensor(WEIGHTS), vectors.tensor(TARGET)
        self._gradient = vectors.row(TARGET + number)
        self._adjusted: Algorithm | None = None

    def pull(self, have: Newest | None = None, *, target: bool = False) -> Newest:
        return self._asked(Pull(target), self._target if target else self._weights)

    def push_pull(
        self, gradient: Tensor | None, *, computed_on: Newest, steps: int, blocks: tuple[str, ...] = ()
    ) -> Newest:
        own = torch.from_numpy(self._gradient)
        if gradient is not None and gradient.data_ptr() != own.data_ptr():  # it was computed on a GPU
            own.copy_(gradient)
        return self._asked(Push(steps, gradient is not None, blocks), self._weights)

    def report(self, episodes: Sequence[Episode], meters: dict[str, float]) -> None:
        with suppress(OSError):  # the next question finds the speaker gone
            self._link.send(Report(list(episodes), meters))

    def finish(self) -> None:
        """Every push has its answer."""

    def adjusted_algorithm(self) -> Algorithm | None:
        adjusted, self._adjusted = self._adjusted, None
        return adjusted

    def gradient_memory(self, _size: int) -> np.ndarray:
        """Where each gradient is made: the answer to a push says that the speaker has taken it."""
        return self._gradient

    def _asked(self, question: Pull | Push, weights: Tensor) -> Newest:
        try:
            self._link.send(question)
            answer = self._link.receive()
        except (EOFError, OSError) as error:
            raise RunEnded("the speaker of the gang has left") from error
        if isinstance(answer, Leave):
            raise RunEnded("the gang leaves")
        if answer.adjusted is not None:
            self._adjusted = run_from_dict(answer.adjusted, source=SOURCE).algorithm
        versions = (answer.epoch, answer.version, answer.global_steps, answer.target_version)
        return Newest(*versions, weights if answer.are_new else None, workers=answer.workers, recalls=answer.recalls)


def link_of_input() -> Link:
    """The pipe to the speaker, out of the reach of environments: they may read their input, or start processes."""
    link = Link(Connection(os.dup(0)), Answer | Leave | Begin)
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    return link


def act_and_learn() -> int:
    """Run the program. Raises PsRlError for what the user can mend."""
    StopSignal(raises=True)
    link = link_of_input()
    begin: Begin = link.receive()
    log_as(begin.name)
    flush_denormals()
    torch.set_num_threads(begin.threads)
    run = run_from_dict(begin.run, source=SOURCE)
    for module in begin.modules:
        import_named(module, flag=f"--import {module}")
    with drawing_apart(begin.seed):
        environments = make_environments(
            run.environment, count=begin.environments, threads=begin.threads, forgives=True
        )
        try:
            _train(begin, run, link, environments)
        except RunEnded as ended:
            report_reason("over", str(ended))
        finally:
            link.connection.close()  # the speaker does not wait for the environments
            with bounded("close() of the environments", PROGRAM, seconds=CLOSE_SECONDS):
                close_logged(environments)
    return 0


def _train(begin: Begin, run: RunSpec, link: Link, environments: Environments) -> None:
    """Raises RunEnded when the speaker says so, or is gone."""
    algorithm = build_agent(run, environments, device=torch.device(begin.device), seed=begin.seed)
    folder = None if begin.replay_folder is None else Path(begin.replay_folder)
    keep_replay(algorithm, folder, begin.name, begin.run_id, log.info)
    parameters = OfSpeaker(link, Vectors(Segment.open(begin.memory), begin.size), begin.member)
    hooks = Hooks(begin.hooks)
    train(
        parameters,
        FlatNetwork(algorithm.network, parameters.gradient_memory, blocks=algorithm.blocks),
        collector_for(
            algorithm,
            environments,
            seed=begin.seed if begin.is_seeded else None,
        ),
        algorithm,
        on_episodes=lambda games, newest: hooks.games_ended(
            games, global_steps=newest.global_steps, worker=begin.worker
        ),
        on_unroll=hooks.unroll_learned,
        adjusted=parameters.adjusted_algorithm,
    )


if __name__ == "__main__":
    start("rl_worker.gang_member", "act_and_learn")
