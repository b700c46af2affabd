"""The flags of `ps-bench load`."""

import socket
from dataclasses import dataclass
from typing import Annotated, Literal

from tyro.conf import arg

from common.errors import SettingsError
from common.program.number_flags import MOST_SECONDS, check_number
from common.protocol.addresses import check_address
from common.protocol.deltas import DELTA, WHOLE
from common.protocol.names import as_name, is_name
from common.protocol.tensors import MAX_ELEMENTS
from common.settings.run_spec import Wire
from common.sockets.curve import CurveFlags

MOST_WORKERS = 50_000  # half of the worker ids that a run may see
MOST_PROCESSES = 1024
LONGEST_PREFIX = 80
GradientCodec = Literal["float32", "bfloat16", "float16", "int8", "topk"]
WeightCodec = Literal["float32", "bfloat16", "float16"]


@dataclass(frozen=True, kw_only=True)
class LoadSettings(CurveFlags):
    """Flags of one load test."""

    server: str
    """HOST:PORT of the ps-server"""
    workers: int = 100
    """synthetic workers"""
    processes: Literal["auto"] | int = "auto"
    """processes that the workers are in; auto: by cores and workers"""
    seconds: float = 10.0
    """how long the workers push, once all have joined"""
    compute_seconds: float = 0.0
    """time between a reply and a worker's next push, in place of games and network (80 to 120 percent of it, drawn each
    time); 0: as fast as the server replies. A worker that pushes R times a second has 1/R"""
    parameters: int = 150_000
    """elements of the weights, if the server has no run yet; 150,000 is the network of pong-a3c"""
    gradient_codec: GradientCodec | None = None
    """codec of gradients; that of the server's run when not given"""
    weight_codec: WeightCodec | None = None
    """codec of weights; likewise"""
    name: str | None = None
    """names of the workers: NAME-0, NAME-1, ...; load-HOST when not given. The server keeps an account of each name for
    good, so repeated tests should repeat it"""
    join_seconds: float = 60.0
    """how long workers have to join and pull the first weights"""
    json: bool = False
    """print one JSON object instead of text"""
    disturb: Annotated[bool, arg(name="yes-disturb-this-run")] = False
    """put load on a server whose run is not one of ps-bench: the gradients are zeros and count no steps, but each still
    makes a version, and moves what the optimizer remembers"""

    @property
    def prefix(self) -> str:
        """The beginning of each worker's name."""
        return self.name or as_name(f"load-{socket.gethostname()}"[:LONGEST_PREFIX])

    def wire(self, of_run: Wire) -> Wire:
        """
        The codecs: those of the run, unless flags name others. Weights are never deltas: synthetic workers keep none.
        """
        of_weights = WHOLE if of_run.weight_codec == DELTA else of_run.weight_codec
        return Wire(
            gradient_codec=self.gradient_codec or of_run.gradient_codec,
            weight_codec=self.weight_codec or of_weights,
        )

    def __post_init__(self) -> None:
        check_address("--server", self.server)
        check_number("--workers", self.workers, least=1, most=MOST_WORKERS)
        if self.processes != "auto":
            check_number("--processes", self.processes, least=1, most=min(self.workers, MOST_PROCESSES))
        check_number("--seconds", self.seconds, least=0.1, most=MOST_SECONDS)
        check_number("--compute-seconds", self.compute_seconds, least=0, most=MOST_SECONDS)
        check_number("--parameters", self.parameters, least=1, most=MAX_ELEMENTS)
        check_number("--join-seconds", self.join_seconds, least=0.1, most=MOST_SECONDS)
        if self.name is not None and (not is_name(self.name) or len(self.name) > LONGEST_PREFIX):
            raise SettingsError(
                f"--name {self.name!r}: must have 1 to {LONGEST_PREFIX} letters, digits and _.:@/+-, and begin with a "
                f"letter, a digit or _; for example {as_name(self.name)[:LONGEST_PREFIX]}"
            )
