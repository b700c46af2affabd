"""A worker of the flags: joins the server, builds what the run needs, trains until the run ends or a signal comes."""

import logging
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import nn

from ps_client.shell.newest import Newest
from ps_client.shell.remote_parameters import RemoteParameters
from ps_client.shell.shard_connections import ShardConnections
from ps_client.shell.stall_watch import StallWatch
from ps_client.shell.zmq_client import ZmqClient
from ps_common.errors import RunEnded, SettingsError
from ps_common.program.flags import Parsed
from ps_common.program.reasons import Reason, reason_of, report_reason
from ps_common.program.resources import flush_denormals
from ps_common.program.run_program import bounded
from ps_common.program.stop_signals import Interrupted, StopSignal
from ps_common.protocol.messages import MOST_ENVIRONMENTS, Episode, Welcome
from ps_common.protocol.tensors import Schema
from ps_common.release import of_other
from ps_common.run_folder.endpoint_file import typed_addresses
from ps_common.settings.overrides import slow_link, wire_of
from ps_common.settings.run_settings import run_for_peers, run_from_dict
from ps_common.settings.run_spec import RunSpec
from ps_common.sockets.zmq_sockets import look_up
from rl_agent.agent import build_agent, collector_for, keep_replay
from rl_agent.environments.imports import check_modules, import_modules
from rl_agent.environments.interface import Environments
from rl_agent.environments.make import closing, make_environments
from rl_agent.networks.flat_network import FlatNetwork
from rl_agent.networks.normalization import measure_normalization
from rl_agent.random_numbers import derived_seed, drawing_apart
from rl_agent.trial.hooks import Hooks
from rl_agent.trial.run_check import check_device, check_run
from rl_worker.gang_link import Begin
from rl_worker.gang_speaker import Gang
from rl_worker.live_game import LiveGame
from rl_worker.settings import WorkerSettings
from rl_worker.source_code import code_of_parts
from rl_worker.training import train

PROGRAM = "rl-worker"
CLOSE_SECONDS = 10.0  # for close() of the user's environments
LEAVE_SECONDS = 2.0  # to finish an unroll and push it, when a signal asks to leave

log = logging.getLogger(PROGRAM)


def work_for_server(flags: Parsed[WorkerSettings], name: str) -> None:
    """Work until the run ends or a signal comes. Raises PsRlError for what the user can mend."""
    settings = flags.program
    stop = StopSignal(raises=True)
    flush_denormals()
    torch.set_num_threads(settings.threads)
    _check(flags)
    if not settings.check:
        Work(flags, name, stop).until_the_end()


class Work:
    """The work of one worker, from its first HELLO to its GOODBYE."""

    def __init__(
        self,
        flags: Parsed[WorkerSettings],
        name: str,
        stop: StopSignal,
        *,
        connection: Callable[..., Any] = ZmqClient,
        forgives: bool = True,
    ) -> None:
        """
        Joining begins at once. `connection` makes that to the server, or to each shard. `forgives`: a failure of
        an environment costs a game.
        """
        settings = flags.program
        self._flags, self._name, self._stop, self._forgives = flags, name, stop, forgives
        self._hooks = Hooks(settings.hook)
        self._watch = StallWatch(settings.stall_seconds, now=time.monotonic())
        self.environments = ExitStack()  # closed last: nobody waits for that
        self._gang: Gang | None = None
        self.connections = ShardConnections(
            name,
            settings.server,
            proposed_run=run_for_peers(flags.run),
            overrides=flags.overrides,
            environments=flags.run.environment.envs if "environment.envs" in flags.overrides else 0,
            keys=settings.client_keys(),
            patience_seconds=60 * settings.patience_minutes,
            resend_mib=settings.resend_mib,
            postponing_signals=stop.postponed,
            watch=self._watch,
            connection=connection,
        )

    def until_the_end(self) -> None:
        """Work until the run ends or a signal comes. GOODBYE is said in any case."""
        ending = Reason("left", "interrupted")
        try:
            self.work()
            log.info("asked to leave: everything is pushed")
        except RunEnded as ended:
            ending = Reason("over", str(ended))
            log.info("the run is over: %s", ended)
        except Interrupted:
            log.info("asked to leave: an unroll in progress is lost")
        except BaseException as error:
            ending = Reason("failed", reason_of(error))
            raise
        finally:
            self.connections.close(ending.text, failed=ending.how == "failed")
            report_reason(ending.how, ending.text)
            with bounded("close() of the environments", PROGRAM, seconds=CLOSE_SECONDS):
                self.environments.close()

    def work(self) -> None:
        """Join, and train until something is raised, as RunEnded is, or a signal comes."""
        run, welcome = self._join()
        try:
            self._train(run, welcome)
        except RunEnded:
            if self._gang is not None:
                self._gang.dismiss()
            raise

    def _join(self) -> tuple[RunSpec, Welcome]:
        """The server's run, whose modules are imported, and its WELCOME."""
        settings = self._flags.program
        log.info("joining %s", settings.server)
        for why in filter(None, (look_up(address)[1] for address in typed_addresses(settings.server))):
            log.warning("%s; trying on", why)
        welcome = self.connections.join()
        source = f"the server at {settings.server}"
        run = run_from_dict(welcome.run, source=source)
        is_trusted = settings.curve_server_key is not None
        import_modules(self._flags.modules, run, source=source, is_trusted=is_trusted)
        if settings.gang == 1 and not run.parts:
            return run, welcome
        environments = settings.gang * self._environments_of_each(run)
        if environments > MOST_ENVIRONMENTS:
            raise SettingsError(
                f"--gang {settings.gang}: its processes would have {environments} environments, and a worker has at "
                f"most {MOST_ENVIRONMENTS}; give fewer --envs"
            )
        return run, self.connections.join_with(code_of_parts(run.parts), environments=environments)

    def _environments_of_each(self, run: RunSpec) -> int:
        """How many environments each process of this worker steps."""
        flags = self._flags
        return (flags.run if "environment.envs" in flags.overrides else run).environment.envs

    def _given_seed(self, run: RunSpec) -> int | None:
        """The seed that those of all processes are derived from; None where nobody has given one."""
        return self._flags.run.seed if "seed" in self._flags.overrides else run.seed

    def _train(self, run: RunSpec, welcome: Welcome) -> None:
        """Build what the run needs, and train until something is raised or a signal comes."""
        flags, connections, count = self._flags, self.connections, self._environments_of_each(run)
        threads, given = flags.program.threads, self._given_seed(run)
        first_seed = secrets.randbelow(10**9) if given is None else given
        seed = derived_seed(first_seed, welcome.number, 0, welcome.incarnation - 1)
        self.environments.enter_context(drawing_apart(seed))
        environments = self.environments.enter_context(
            closing(make_environments(run.environment, count=count, threads=threads, forgives=self._forgives))
        )
        algorithm = build_agent(run, environments, device=torch.device(flags.program.device), seed=seed)
        keep_replay(algorithm, flags.program.replay_folder, self._name, welcome.run_id, log.info)
        if not welcome.schema:
            self._measure(algorithm.network, environments, given)
        network = FlatNetwork(algorithm.network, connections.shared_array, blocks=algorithm.blocks)
        overrides = slow_link(run) | flags.overrides if flags.program.link == "slow" else flags.overrides
        of_server = connections.parameters(network.schema, wire_of(run, overrides))
        _log_start(environments, network, welcome, seed=seed)
        of_server.seed(network.weights)
        parameters = self._shared(of_server, network.schema, run, welcome, first_seed)
        of_games = None if given is None else seed
        live = LiveGame(algorithm, environments, is_watched=lambda: connections.is_watched, send=connections.show)

        def decided(*decision: Any) -> None:
            self._progressed()
            live.decided(*decision)

        def on_episodes(episodes: Sequence[Episode], newest: Newest) -> None:
            self._hooks.games_ended(episodes, global_steps=newest.global_steps, worker=welcome.number)

        collector = collector_for(algorithm, environments, seed=of_games, watcher=decided)
        with self._stop.grace(LEAVE_SECONDS):
            train(
                parameters, network, collector, algorithm,
                on_episodes=on_episodes,
                on_unroll=self._hooks.unroll_learned,
                adjusted=parameters.adjusted_algorithm,
                is_leaving=self._stop.is_set,
            )  # fmt: skip

    def _shared(
        self, parameters: RemoteParameters, schema: Schema, run: RunSpec, welcome: Welcome, run_seed: int
    ) -> RemoteParameters | Gang:
        """The parameters for the trainer of this process: shared with those of the gang's members, if it has any."""
        settings = self._flags.program
        if settings.gang == 1:
            return parameters
        gang = Gang(
            parameters,
            schema,
            run,
            partial(self._begin, run, welcome, run_seed),
            members=settings.gang,
            check=self.connections.check,
        )
        self._gang = self.environments.enter_context(gang)
        return gang

    def _begin(self, run: RunSpec, welcome: Welcome, run_seed: int, member: int, memory: str, size: int) -> Begin:
        """What a member of the gang is told."""
        settings = self._flags.program
        return Begin(
            run=run.to_dict(),
            modules=self._flags.modules,
            hooks=settings.hook,
            name=f"{self._name}+{member}",
            worker=welcome.number,
            member=member,
            is_seeded=self._given_seed(run) is not None,
            environments=self._environments_of_each(run),
            threads=settings.threads,
            device=settings.device,
            seed=derived_seed(run_seed, welcome.number, member, welcome.incarnation - 1),
            replay_folder=None if settings.replay_folder is None else str(settings.replay_folder),
            run_id=welcome.run_id,
            memory=memory,
            size=size,
        )

    def _measure(self, network: nn.Module, environments: Environments, seed: int | None) -> None:
        """
        Measure what is normalized, for the first weights of the run. The seed is that of the run, so that the
        statistics are the same whichever worker is the first, unless steps are so slow that random play ends by the
        clock.
        """

        def played() -> None:
            self._progressed()
            self.connections.check_drain()

        measure_normalization(network, environments, seed=seed, played=played, say=log.info, clock=time.monotonic)

    def _progressed(self) -> None:
        """At each step of the environments. Raises RunEnded when the run is over."""
        self._watch.progressed()
        self.connections.check()


def _check(flags: Parsed[WorkerSettings]) -> None:
    """Raises SettingsError for what would fail later; a run from the flags before the server takes it over."""
    settings = flags.program
    check_device(settings.device)
    check_modules(flags.modules, flags.run, source="--config")
    if flags.names_a_run:
        check_run(flags.run, imports=settings.imports)


def _log_start(environments: Environments, network: FlatNetwork, welcome: Welcome, *, seed: int) -> None:
    for what, value in environments.description.items():
        log.info("%s: %s", what, value)
    log.info(
        "worker %d of run %s%s: %d environments, %d parameters, seed %d",
        welcome.number,
        welcome.run_id,
        of_other(welcome.release),
        environments.count,
        network.schema.size,
        seed,
    )
