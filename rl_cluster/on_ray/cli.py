"""
`python -m rl_cluster.on_ray`: creates the actors of a run, or changes their number, and shows its progress.

The run is its actors, which are detached: when this program ends, the run goes on. It is called again to scale the run,
to watch it, or to end it.
"""

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from ps_common.errors import PsRlError, SettingsError
from ps_common.program.flags import Parsed, parse_with_run
from ps_common.program.number_flags import MOST_WORKERS, Seconds, check_numbers
from ps_common.program.progress_display import ProgressDisplay
from ps_common.program.stop_signals import LAST_CHECKPOINT_SECONDS, StopSignal
from ps_common.protocol.status import Status, how_it_ended
from ps_common.settings.run_settings import flags_for
from rl_cluster.on_ray.processes import RunPlan

PROGRAM = "python -m rl_cluster.on_ray"
SERVER = "server"  # names of actors, in a namespace of the run
WORKER = "worker-"
POLL_SECONDS = 1.0
REPLY_SECONDS = 10.0
LEAVE_SECONDS = 15.0
STOP_SECONDS = LAST_CHECKPOINT_SECONDS  # for the run to end in order; then its programs are asked by SIGTERM
START_SECONDS = 300.0  # until Ray has placed the server and it listens


@dataclass(frozen=True, kw_only=True)
class RaySettings:
    """
    Train on a Ray cluster: a server actor and worker actors, which outlive this program. Called again it scales them.

    The flags that matter first:
      --run-dir PATH      run folder on storage that the nodes share: the only required flag; it names the run
      --preset NAME       what to train; a run that has a checkpoint goes on, and other flags change its settings
      --workers N         workers that the run has from now on; those without a free CPU start when a node joins
      --address ADDRESS   the Ray cluster: auto, HOST:PORT, or ray://HOST:10001
      --detach            do not watch the run
      --stop              end the run: workers leave, the server saves
    """

    run_dir: Path
    """run folder, on storage that all nodes share under this path: there a server that moves finds its checkpoints"""
    address: str = "auto"
    """of the Ray cluster: auto is that of this machine, HOST:PORT its head, ray://HOST:10001 from outside"""
    workers: Annotated[int, Meta(ge=0, le=MOST_WORKERS)] = 4
    """workers that the run has from now on; 0: none here"""
    worker_cpus: Annotated[float, Meta(ge=0, le=MOST_WORKERS)] = 1.0
    """CPUs that Ray sets aside for each worker"""
    worker_gpus: Annotated[float, Meta(ge=0, le=MOST_WORKERS)] = 0.0
    """GPUs that Ray sets aside for each worker; its share of one where it is below 1"""
    device: Literal["cpu", "cuda"] = "cpu"
    """where the workers' networks run"""
    checkpoint_seconds: Seconds | None = None
    """seconds between two checkpoints"""
    keys: bool = True
    """encrypt all traffic with keys that the server makes in the run folder; --no-keys leaves its port open"""
    detach: bool = False
    """end when the actors are created, instead of showing the run's progress"""
    stop: bool = False
    """end the run in order"""

    def __post_init__(self) -> None:
        check_numbers(self)
        if self.device == "cuda" and not self.worker_gpus:
            raise SettingsError("--device cuda: Ray hides GPUs that no actor has asked for; add --worker-gpus 1")


def train_on_ray(argv: Sequence[str] | None = None) -> int:
    """Run the program. Raises PsRlError for what the user can mend."""
    flags = parse_with_run(RaySettings, argv, prog=PROGRAM)
    settings = flags.program
    ray = _connected(settings.address)
    stop = StopSignal()
    actors = RunActors(ray, settings.run_dir.absolute())
    if settings.stop:
        actors.stop(stop)
        return 0
    if flags.remark:
        print(flags.remark)
    actors.create_server(plan_of(flags))
    if actors.wait_until_served(stop):
        actors.scale(settings)
        print(f"the run has {settings.workers} workers; the same command scales, watches or, with --stop, ends it")
    else:
        print("the run is over; to go on with it, raise the limit that it has reached")
    return 0 if settings.detach else actors.watch(stop)


def _connected(address: str) -> Any:
    """The module ray, connected. Raises SettingsError."""
    try:
        import ray  # an extra: 380 MB that nothing else needs
    except ImportError as error:
        raise SettingsError("Ray is not installed here: pip install -c constraints.txt '.[ray]'") from error
    try:
        ray.init(address, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise SettingsError(f"--address {address}: no Ray cluster is reached there: {error}") from error
    return ray


def plan_of(flags: Parsed[RaySettings]) -> RunPlan:
    settings = flags.program
    return RunPlan(
        folder=str(settings.run_dir.absolute()),
        settings=flags.run.to_toml() if flags.names_a_run else "",
        flags=tuple(flags_for(flags.overrides)),
        checkpoint_seconds=settings.checkpoint_seconds,
        has_keys=settings.keys,
    )


class RunActors:
    """The actors of the run of a folder, found by their names."""

    def __init__(self, ray: Any, folder: Path) -> None:
        self._ray = ray
        self._folder = folder
        self._namespace = f"ps-rl:{folder}"

    def create_server(self, plan: RunPlan) -> None:
        """The server's actor, unless there is one."""
        from rl_cluster.on_ray.actors import ServerActor  # imports ray

        self._create(ServerActor, SERVER, num_cpus=1, scheduling="DEFAULT", arguments=(plan,))

    def wait_until_served(self, stop: StopSignal) -> bool:
        """
        Wait until the server replies, or a signal comes. False when the run is over: it was resumed at its limit.

        Raises PsRlError with its reason when it fails, or when Ray has no place.
        """
        deadline = time.monotonic() + START_SECONDS
        while not stop.is_set():
            state = self._state()
            if state.get("failure"):
                self._end(SERVER)
                raise PsRlError(state["failure"])
            if state.get("over") or "status" in state:
                return not state.get("over")
            if time.monotonic() > deadline:
                raise PsRlError(f"the server did not start in {START_SECONDS:.0f} s; has the cluster a free CPU?")
            time.sleep(POLL_SECONDS / 5)
        return True

    def scale(self, settings: RaySettings) -> None:
        """As many workers as asked for. Those too many leave in order; Ray starts the others when it has room."""
        from rl_cluster.on_ray.actors import WorkerActor

        resources = {"num_cpus": settings.worker_cpus, "num_gpus": settings.worker_gpus}
        server = self._ray.get_actor(SERVER, namespace=self._namespace)
        for number in range(settings.workers):
            arguments = (number, str(self._folder), server, ["--device", settings.device])
            self._create(WorkerActor, f"{WORKER}{number}", scheduling="SPREAD", arguments=arguments, **resources)
        too_many = [name for name in self._names() if name.startswith(WORKER) and _number(name) >= settings.workers]
        self._leave(too_many)

    def watch(self, stop: StopSignal) -> int:
        """Show the run's progress until it is over, or a signal comes."""
        status: Status | None = None
        shown = 0  # of the lines on workers that were given up
        with ProgressDisplay() as display:
            while not stop.is_set():
                state = self._state()
                for line in state.get("lines", [])[shown:]:
                    display.print_line(line)
                shown = max(shown, len(state.get("lines", [])))
                if "status" in state:
                    status = msgspec.json.decode(state["status"], type=Status)
                    display.show(status)
                if state.get("over") or state.get("failure") or SERVER not in self._names():
                    break
                time.sleep(POLL_SECONDS)
            if status is not None:
                display.finish(status)
        if stop.is_set():
            print("the run goes on; the same command with --stop ends it")
        elif state.get("failure"):
            raise PsRlError(state["failure"])
        elif status is not None:
            print(how_it_ended(status))
        return 0

    def stop(self, again: StopSignal) -> None:
        """End the run: workers leave, the server saves; a signal ends that. Raises PsRlError when it has no actor."""
        if not self._names():
            raise PsRlError(f"--run-dir {self._folder}: no run of this folder is on this cluster")
        # An actor that has no node, or whose server has failed, does not reply: its end is below.
        with contextlib.suppress(ValueError, self._ray.exceptions.RayError):
            server = self._ray.get_actor(SERVER, namespace=self._namespace)
            self._ray.get(server.stop_run.remote(f"{PROGRAM} --stop"), timeout=REPLY_SECONDS)
        deadline = time.monotonic() + STOP_SECONDS
        while SERVER in self._names() and not self._state().get("over"):
            if again.is_set() or time.monotonic() > deadline:
                break
            time.sleep(POLL_SECONDS / 5)
        for name in self._names():
            self._end(name)

    def _create(
        self, kind: type, name: str, *, scheduling: str, arguments: tuple[Any, ...], **resources: float
    ) -> None:
        """An actor that Ray starts again, on another node if it must; unless there is one of this name."""
        self._ray.remote(kind).options(
            name=name,
            namespace=self._namespace,
            lifetime="detached",
            get_if_exists=True,
            max_restarts=-1,
            max_concurrency=8,
            scheduling_strategy=scheduling,
            **resources,
        ).remote(*arguments)

    def _state(self) -> dict[str, Any]:
        """The state of the server's actor; {} while it does not reply."""
        try:
            server = self._ray.get_actor(SERVER, namespace=self._namespace)
            return dict(self._ray.get(server.state.remote(), timeout=REPLY_SECONDS))
        except (ValueError, self._ray.exceptions.RayError):
            return {}

    def _names(self) -> list[str]:
        named = self._ray.util.list_named_actors(all_namespaces=True)
        return [actor["name"] for actor in named if actor["namespace"] == self._namespace]

    def _leave(self, names: Sequence[str]) -> None:
        """Have workers leave in order, all at once, and end their actors."""
        leaving = []
        for name in names:
            actor = self._ray.get_actor(name, namespace=self._namespace)
            leaving.append(actor.leave.remote())
        self._ray.wait(leaving, num_returns=len(leaving), timeout=LEAVE_SECONDS) if leaving else None
        for name in names:
            self._end(name)

    def _end(self, name: str) -> None:
        """End an actor for good, if there is one of this name."""
        try:
            self._ray.kill(self._ray.get_actor(name, namespace=self._namespace), no_restart=True)
        except ValueError:
            return


def _number(name: str) -> int:
    return int(name.removeprefix(WORKER))
