"""The servers of one run that each hold a range of its weights, as real programs."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import torch

from ps_common.run_folder.paths import shard_folder
from ps_common.sockets.curve import ClientKeys
from tests.integration.processes import Program, Programs, free_ports, status_of, wait_for, weights_of

NO_STANDBYS: Mapping[int, str] = MappingProxyType({})


class Shards:
    """The servers of a run, in its folder."""

    def __init__(
        self,
        programs: Programs,
        count: int,
        *flags: str,
        first: Sequence[str] = (),
        others: Sequence[str] = (),
        standbys: Mapping[int, str] = NO_STANDBYS,
        name: str = "run",
    ) -> None:
        """
        `flags` are those of every start, `first` those of a new run alone, `others` those of shards after the first.
        `standbys` are addresses of standbys, by
        number of the shard.
        """
        self._programs = programs
        self._flags = flags
        self._first = first
        self._others = others
        self.folder = programs.folder / name
        self.ports = free_ports(count)
        self.addresses = [f"127.0.0.1:{port}" for port in self.ports]
        pairs = [",".join(filter(None, (one, standbys.get(at)))) for at, one in enumerate(self.addresses, 1)]
        self._shards = ["--shards", *pairs]
        self.servers = [self.start(number, wait=False) for number in range(1, count + 1)]
        for number in range(1, count + 1):
            self.wait_for_start(number)

    def start(self, number: int, *place: str, wait: bool = True) -> Program:
        """Start the server of this shard: in a new run, or with flags that say where its run is."""
        place = place or ("--run-dir", str(self.folder), *self._first)
        (shard_folder(self.folder, number, len(self.ports)) / "endpoint").unlink(missing_ok=True)
        address = ["--host", "127.0.0.1", "--port", str(self.ports[number - 1])]
        shard = ["--shard", f"{number}/{len(self.ports)}", *self._shards]
        often = ["--checkpoint-seconds", "0.5", *(self._others if number > 1 else ())]
        program = self._programs.start("ps-server", *address, *shard, *often, *self._flags, *place)
        if wait:
            self.wait_for_start(number, program)
        return program

    def wait_for_start(self, number: int, program: Program | None = None) -> None:
        """Wait until the server of this shard listens."""
        program = program or self.servers[number - 1]
        wait_for(lambda: "listens on" in program.output, within_seconds=180, program=program)

    def resume(self, number: int, *place: str) -> None:
        """Start it again after its end, with --resume."""
        self.servers[number - 1] = self.start(number, *(place or ("--resume", str(self.folder))))

    def weights(self, addresses: list[str] | None = None, keys: ClientKeys | None = None) -> torch.Tensor:
        """The whole vector, of these servers or of those that were started first."""
        servers = addresses or self.addresses
        sizes = [status_of(address, keys).parameters for address in servers]
        return torch.cat([weights_of(address, size, keys) for address, size in zip(servers, sizes, strict=True)])

    def stop(self) -> None:
        """Each writes its last checkpoint."""
        for server in self.servers:
            server.process.terminate()
        for server in self.servers:
            assert server.wait() == 0, server.output
