"""The flags of `python -m rl_cluster.on_ray`, except the settings of the run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from ps_common.errors import SettingsError
from ps_common.program.number_flags import MOST_WORKERS, Seconds, check_numbers


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
