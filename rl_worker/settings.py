"""The flags of rl-worker, except the settings of the run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta
from tyro.conf import arg

from ps_common.errors import SettingsError
from ps_common.program.number_flags import (
    LEAST_SECONDS,
    MOST_MIB,
    MOST_MINUTES,
    Seconds,
    Threads,
    Workers,
    check_numbers,
)
from ps_common.protocol.names import check_name
from ps_common.run_folder.endpoint_file import check_server, is_path
from ps_common.sockets.curve import CurveFlags


@dataclass(frozen=True, kw_only=True)
class WorkerSettings(CurveFlags):
    """
    Step environments, compute gradients, push them to a server. The server names the run.

    The flags that matter first:
      --server HOST:PORT       where ps-server listens: the only required flag
      --name NAME              of this worker
      --envs N                 environments that this worker steps in lockstep
      --device cuda            run the network on a GPU
      --curve-server-key PATH  public key of a locked server; --curve-secret PATH is the worker's own
      --link slow              behind a slow line: codecs that take a tenth of the bytes
      --patience-minutes M     how long to go on without a server
      --preset NAME            what to train, if the server was started without a run
      --environment ID         the game to train, if the server was started without a run
    """

    server: str
    """HOST:PORT of ps-server, which may be started later; HOST:PORT,HOST:PORT if it has a standby; or the path of the
    file endpoint in its run folder (RUN_DIR/endpoint, with a slash), where its address is, also after it moved"""
    name: str | None = None
    """name of this worker, which no other process of the run may have; HOST-PID-RANDOM when not given"""
    gang: Workers = 1
    """processes that act and learn together and are one worker to the server: each with its own --envs environments, on
    the same weights; the mean of their gradients is pushed once; for hosts with many cores"""
    device: Literal["cpu", "cuda"] = "cpu"
    """where the network runs; environments run on the CPU"""
    threads: Threads = 1
    """threads of the network, and of the emulator of Atari games; 1 is best with one worker a core"""
    hook: tuple[str, ...] = ()
    """MODULE:NAME of hooks of yours, whose on_episode and on_unroll are called in this worker"""
    imports: Annotated[tuple[str, ...], arg(name="import")] = ()
    """modules to import first: they register environments, or have parts of the run; a run that needs another module
    is refused, unless the flag of a part names it or the server is authenticated by --curve-server-key"""
    link: Literal["run", "slow"] = "run"
    """how vectors travel: run: as the run's settings say; slow: in a tenth of the bytes, as --gradient-codec topk
    --weight-codec delta --pull-every 2; these flags stand above both"""
    stall_seconds: Seconds = 60.0
    """this worker is stalled, and no other waits for it, when its environments make no step for so long, and for ten
    times their longest step so far; raise it where a step may take minutes"""
    replay_folder: Path | None = None
    """folder of the file with this worker's replay memory (dqn, sac), which a later process of the same name continues
    with; rl-cluster gives the run folder's `replay`; only in memory when not given"""
    check: bool = False
    """check the flags, and what they name, on this machine, and end"""
    patience_minutes: Annotated[float, Meta(ge=LEAST_SECONDS / 60, le=MOST_MINUTES)] = 30.0
    """give up after so long without a server"""
    resend_mib: Annotated[float, Meta(ge=0, le=MOST_MIB)] = 256.0
    """resend buffer: memory for gradients that are in no checkpoint yet, to send again to a restored server; 0: none"""

    def __post_init__(self) -> None:
        if is_path(self.server) and Path(self.server).is_dir():
            raise SettingsError(f"--server {self.server}: is a folder; name the file endpoint in a run folder")
        check_server("--server", self.server)
        check_numbers(self)
        if self.name is not None:
            check_name("--name", self.name)
