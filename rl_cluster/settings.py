"""The flags of rl-cluster that are not settings of the run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import UseAppendAction, arg

from ps_common.errors import SettingsError
from ps_common.program.number_flags import Port, Seconds, Threads, Workers, check_numbers
from ps_common.protocol.names import LONGEST_PREFIX, check_name
from ps_common.run_folder.endpoint_file import check_server
from ps_common.run_folder.object_store import check_folder
from ps_common.run_folder.paths import check_whole_run, shards_in
from ps_common.run_folder.trackers import TrackerName, check_trackers
from ps_common.settings.run_files import SETTINGS
from ps_common.sockets.curve import CurveFlags


@dataclass(frozen=True, kw_only=True)
class WorkersHere:
    """The flags of the workers of this machine."""

    workers: Workers | Literal["auto"] = "auto"
    """worker processes; auto: one for each CPU, or for what a container may use of them"""
    gang: bool = False
    """the worker processes learn together and are one worker to the server, which gets one push of all of them"""
    stall_seconds: Seconds = 60.0
    """a worker is replaced when its environments make no step for so long, and for ten times their longest step so far;
    raise it where a step may take minutes. rl-cluster's own server is replaced when it does not reply for so long"""


@dataclass(frozen=True, kw_only=True)
class ClusterSettings(WorkersHere):
    """
    Train on this machine: a server and workers, progress to watch, an end at the first limit reached.

    The flags that matter first:
      --list             the presets, and what each is; trains nothing
      --preset NAME      a run that is known to learn: game, method, settings, target
      --environment ID   a game of your choice, with settings for every environment
      --algorithm NAME   a3c, n_step_q, one_step_q or one_step_sarsa
      --workers N        worker processes; one for each CPU when not given
      --max-minutes M    end after M minutes; --max-steps N after N environment steps
      --until-return R   end when the last 100 games have this mean
      --resume RUN_DIR   go on with a run; other flags change its settings
      --seed N           of weights, environments and sampling
      --experiment NAME  runs of one experiment share a folder

    Workers for a server elsewhere: rl-cluster --server HOST:PORT --help
    """

    list: bool = False
    """print the presets, and what each is; trains nothing"""
    run_dir: Path | None = None
    """run folder: logs, metrics, checkpoints; runs/EXPERIMENT/PRESET-DATE-seedN when not given"""
    resume: Path | None = None
    """continue the run in this folder from its newest intact checkpoint; other flags change its settings, but not what
    it was begun with: preset, seed, environment, network, algorithm and optimizer"""
    fork: bool = False
    """with --resume: begin a new run with the state of this folder, a copy of another run's"""
    host: str = "127.0.0.1"
    """address to listen on; 0.0.0.0 is every interface: workers on other machines can help"""
    port: Port = 0
    """TCP port to listen on; 0: a free one"""
    web: bool = True
    """show the run in a browser: its address is among the first lines"""
    web_port: Port = 0
    """port of that page, on the loopback interface; 0: a free one"""
    track: Annotated[tuple[TrackerName, ...], UseAppendAction] = ()
    """experiment tracker that the run is sent to, an extra of the same name; may be given again for another"""
    hook: tuple[str, ...] = ()
    """MODULE:NAME of hooks of yours, whose on_episode and on_unroll are called in each worker"""
    imports: Annotated[tuple[str, ...], arg(name="import")] = ()
    """modules that workers may import: they register environments, or have parts that a --config names"""
    device: Literal["cpu", "cuda"] = "cpu"
    """where the workers' networks run"""
    threads: Threads = 1
    """threads of each worker's network, and of its emulator of Atari games"""
    json: Path | None = None
    """file for one JSON object that sums the run up"""

    def __post_init__(self) -> None:
        check_numbers(self)
        check_trackers(self.track)
        check_folder("--run-dir", self.run_dir)
        check_folder("--resume", self.resume)
        if self.fork and self.resume is None:
            raise SettingsError("--fork goes with --resume RUN_DIR, a copy of another run's folder")
        if self.resume is not None:
            if self.run_dir is not None:
                raise SettingsError("--resume and --run-dir both name the run folder; give one of them")
            check_whole_run(self.resume, flag=f"--resume {self.resume}")
            if shards_in(self.resume) > 1:
                how = "ps-server --resume resumes each, ps-ctl reshard --shards 1 makes a run of one server of them"
                raise SettingsError(f"--resume {self.resume}: has shards: {how}")
            if not (self.resume / SETTINGS).is_file():
                raise SettingsError(f"--resume {self.resume}: no run folder: there is no {SETTINGS} in it")


@dataclass(frozen=True, kw_only=True)
class WorkersElsewhere(WorkersHere, CurveFlags):
    """
    Workers of this machine for a server elsewhere, started, supervised and ended by one command.

    Every other flag is one of rl-worker (rl-worker --help shows them), and holds for each worker.

    The flags that matter first:
      --server HOST:PORT       where ps-server listens: the only required flag
      --workers N              worker processes; one for each CPU when not given
      --name NAME              they are called NAME-0, NAME-1 and so on
      --curve-server-key PATH  public key of a locked server; --curve-secret PATH is the workers' own
    """

    server: str
    """as for rl-worker: HOST:PORT, HOST:PORT,HOST:PORT of a server and its standby, or RUN_DIR/endpoint"""
    name: str | None = None
    """the workers' names begin with it: NAME-0, NAME-1 and so on; HOST-RANDOM when not given"""

    @property
    def of_each_worker(self) -> list[str]:
        """The flags that each worker gets of these."""
        flags = ["--server", self.server, "--stall-seconds", str(self.stall_seconds)]
        for flag, path in (("--curve-server-key", self.curve_server_key), ("--curve-secret", self.curve_secret)):
            flags += [] if path is None else [flag, str(path)]
        return flags

    def __post_init__(self) -> None:
        check_server("--server", self.server)
        check_numbers(self)
        if self.name is not None:
            check_name("--name", self.name, longest=LONGEST_PREFIX)
