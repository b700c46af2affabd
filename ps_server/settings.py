"""The flags of ps-server that are not settings of the run."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from ps_common.errors import SettingsError
from ps_common.program.number_flags import LEAST_MIB, MOST_MIB, Port, Seconds, Threads, check_numbers
from ps_common.protocol.lineage import WHOLE, Shard, shard_of
from ps_common.protocol.names import EVERY_INTERFACE, check_address, is_host, split_address
from ps_common.run_folder.object_store import check_folder, is_url
from ps_common.run_folder.paths import SHARD_NAME, shard_folder


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """
    Hold the weights of a run, apply the gradients that workers push, and keep both in checkpoints.

    The flags that matter first:
      --preset NAME            what to train (rl-cluster --list); without it the first worker decides
      --environment ID         a game of your choice, with settings for every environment
      --port N                 port to listen on, and --host ADDRESS
      --resume RUN_DIR         continue a run from its newest verified checkpoint; or s3://… on any machine
      --run-dir PATH           run folder
      --standby-of HOST:PORT   follow that server, and be promoted when it fails
      --shard K/N              hold the K-th of N ranges of the weights; --shards names the servers of all
      --checkpoint-seconds S   time between two checkpoints
      --curve-secret PATH      lock the port, with --authorized-keys FOLDER: see ps-ctl keygen
      --max-minutes M          end after M minutes; also --max-steps N, and --until-return R of the last 100 games
    """

    port: Port = 5555
    """TCP port to listen on; 0: a free one"""
    host: str = "0.0.0.0"
    """address to listen on; 0.0.0.0 is every interface, :: the same with IPv6, 127.0.0.1 only this machine"""
    advertise: str | None = None
    """name or address by which workers and the other server of a pair reach this one, if --host does not tell: of a
    container that gets another address each time it starts, for example"""
    run_dir: Path | None = None
    """run folder; runs/EXPERIMENT/PRESET-DATE-seedN when not given, for a standby runs/standby-of-HOST-PORT"""
    checkpoint_dir: str | None = None
    """folder for checkpoints, RUN_DIR/checkpoints when not given; or an object store (s3://BUCKET/NAME), where they are
    kept as well, and durable only then"""
    resume: str | None = None
    """continue the run in this folder, or object store, from its newest verified checkpoint; other flags change its
    settings, except preset, seed, environment, network, algorithm and optimizer"""
    take_back: bool = False
    """with --resume: continue from this folder although another server serves the run now; its updates are lost"""
    fork: bool = False
    """with --resume: begin a new run with the state of this folder, a copy of another run's: it has a run id of its
    own, and workers of the other run cannot join it"""
    new_code: bool = False
    """with --resume: modules of the run's custom parts were changed on purpose; the first worker states them anew"""
    standby_of: str | None = None
    """HOST:PORT of the ps-server to follow, and to replace when it fails"""
    takeover_seconds: Seconds = 1.0
    """silence of that ps-server after which workers may promote this one; more where it may stall"""
    arbiter: Path | None = None
    """with --standby-of: the run folder of that ps-server, on a disk that both share; its lock then decides, and no
    worker, whether this one is promoted"""
    shard: str | None = None
    """K/N: hold the K-th of N ranges of the weights, with --shards; each shard has a run folder, checkpoints and a
    standby of its own; ps-ctl reshard gives a run another number of them"""
    shards: tuple[str, ...] = ()
    """addresses of all N shards in order, as workers reach them; HOST:PORT,HOST:PORT is a shard with a standby"""
    checkpoint_seconds: Seconds | None = None
    """seconds between two checkpoints; 30, or as ps-ctl set it, when not given"""
    lease_seconds: Seconds = 5.0
    """silence after which a worker counts as dead"""
    receive_mib: Annotated[float, Meta(ge=LEAST_MIB, le=MOST_MIB)] = 256.0
    """push budget: memory for pushes in flight and waiting, shared by all workers; too little makes them take turns"""
    curve_secret: Path | None = None
    """the server's secret key, made by `ps-ctl keygen`: traffic is encrypted, and only authorised keys may connect"""
    authorized_keys: Path | None = None
    """folder of public keys that may connect; those in its subfolder admins may also save and stop the run"""
    threads: Threads = 1
    """threads of the optimizer; 1 is best unless cores are idle and the network is large"""

    @property
    def place(self) -> Shard | None:
        """The shard that the flags name; None where they name none. Raises SettingsError."""
        return shard_of(self.shard, self.shards)

    def __post_init__(self) -> None:
        check_numbers(self)
        if self.place is not None and self.standby_of is not None:
            raise SettingsError("--standby-of and --shard: a standby learns its shard from the primary; give one")
        if (self.curve_secret is None) != (self.authorized_keys is None):
            raise SettingsError("--curve-secret and --authorized-keys go together; ps-ctl keygen makes both")
        if self.advertise is not None and not is_host(self.advertise):
            raise SettingsError(f"--advertise {self.advertise}: must be a name or an address, without a port")
        check_folder("--run-dir", self.run_dir)
        check_folder("--checkpoint-dir", self.checkpoint_dir)
        if self.arbiter is not None and self.standby_of is None:
            raise SettingsError("--arbiter goes with --standby-of: it decides whether a standby is promoted")
        if self.standby_of is not None:
            check_address("--standby-of", self.standby_of)
            if self.resume is not None:
                raise SettingsError("--standby-of and --resume: a standby receives its run from the primary; give one")
        if self.take_back and self.resume is None:
            raise SettingsError("--take-back goes with --resume RUN_DIR, the folder of the server that was replaced")
        if self.fork and (self.resumed_folder is None or self.take_back or self.shard is not None):
            raise SettingsError("--fork goes with --resume RUN_DIR, a copy, and without --take-back and --shard")
        if self.new_code and self.resume is None:
            raise SettingsError("--new-code goes with --resume RUN_DIR: a new run takes the code of its first worker")
        if self.resume is not None:
            self._check_resume(self.resume)

    def following(self, primary: str, folder: Path, *, port: int) -> "ServerSettings":
        """These flags for a standby, which learns its shard from the primary, on the port of this server."""
        return replace(self, standby_of=primary, run_dir=folder, port=port, shard=None, shards=())

    def first_line(self, bound: str, address: str) -> str:
        """What the server prints once it listens there: its address, and the command for other machines."""
        where = "all interfaces" if bound in EVERY_INTERFACE else self.host
        keys = " --curve-server-key server.key --curve-secret worker.key_secret" if self.curve_secret else ""
        servers = f"{self.standby_of},{address}" if self.standby_of else address
        what = f"the standby of {self.standby_of}, " if self.standby_of else ""
        what += f"{self.place}, " if self.place else ""
        port = split_address(address)[1]
        return (
            f"ps-server listens on {where}, {what}port {port}; start workers with: rl-worker --server {servers}{keys}"
        )

    @property
    def resumed_folder(self) -> Path | None:
        """The folder of --resume; None when it names an object store."""
        return None if self.resume is None or is_url(self.resume) else Path(self.resume)

    @property
    def checkpoint_folder(self) -> Path | None:
        """The folder of --checkpoint-dir; None when it names an object store."""
        return None if self.checkpoint_dir is None or is_url(self.checkpoint_dir) else Path(self.checkpoint_dir)

    @property
    def store_flag(self) -> tuple[str, str] | None:
        """The flag that names an object store, and the URL there, below that of the run for each shard."""
        shard = self.place or WHOLE
        own = shard_folder(self.resumed_folder or Path("/"), shard.number, shard.of).resolve()
        below = f"/{own.name}" if SHARD_NAME.fullmatch(own.name) else ""
        for flag, place in (("--resume", self.resume), ("--checkpoint-dir", self.checkpoint_dir)):
            if place is not None and is_url(place):
                return flag, place.rstrip("/") + below
        return None

    def _check_resume(self, place: str) -> None:
        if is_url(place):
            if self.checkpoint_dir is not None:
                raise SettingsError(f"--resume {place}: its checkpoints go on there; leave out --checkpoint-dir")
            whole, _, own = place.rstrip("/").rpartition("/")
            if self.shard is not None and SHARD_NAME.fullmatch(own):
                raise SettingsError(f"--resume {place}: is the place of one shard; name that of the run, {whole}")
            return
        if self.run_dir is not None:
            raise SettingsError("--resume and --run-dir both name the run folder; give one of them")
        check_folder("--resume", place)
        if not Path(place).is_dir():
            raise SettingsError(f"--resume {place}: there is no such folder")
