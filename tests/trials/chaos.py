"""
Integer chaos: small workers each count in a weight of their own, over a network that loses, duplicates, delays and
reorders messages, while workers and server are killed with SIGKILL at random moments. At the end the weights must equal
the counts.

Run it as a module, with sizes in the environment: SEED=, KILLS=, SWARM= (workers that die together). It prints one line
of figures and exits with a status other than 0 if a push was lost or applied twice.
"""

import random
import sys
import tempfile
from pathlib import Path

from common.errors import RequestRefused, ServerUnreachable
from common.protocol import messages
from common.sockets.request import ask
from tests.integration.processes import Programs, programs_in, status_of, wait_for
from tests.trials import figures
from tests.trials.counting import Swarms, broken, rest
from tests.trials.proxy import Faults, Proxy

SWARMS = 3  # at a time


class Chaos:
    """One trial. `weights` bounds the number of workers, since each has a weight of its own."""

    def __init__(self, programs: Programs, *, seed: int, swarm: int, weights: int) -> None:
        self._programs = programs
        self._random = random.Random(seed)
        self._server, self._endpoint = programs.start_server("--checkpoint-seconds", "2")
        self.proxy = Proxy(self._endpoint, Faults(), seed)
        self.swarms = Swarms(programs, size=swarm, weights=weights)
        self.server_kills = self.swarm_kills = 0
        for _ in range(SWARMS):
            self.swarms.start(self.proxy.endpoint)
        wait_for(lambda: status_of(self._endpoint).version > 1, program=self._server)

    def disturb(self) -> None:
        """Wait for some updates, cut up to two connections, then kill the server or a swarm."""
        self._grow(self._random.randrange(10, 200))
        for _ in range(self._random.randrange(3)):
            self.proxy.cut()
        if self._random.random() < 0.5:
            self._kill_server()
        else:
            self._kill_swarm()

    def finish(self) -> dict[str, int]:
        """The final counts of pushes."""
        counts = self.swarms.finish(self._endpoint)
        self.proxy.close()
        return counts

    def _kill_server(self) -> None:
        port = int(self._endpoint.rpartition(":")[2])
        self._server.kill()
        self.server_kills += 1
        rest(self._random.uniform(0, 1.5))
        run = str(self._programs.folder / "run")
        self._server, _ = self._programs.start_server("--resume", run, "--checkpoint-seconds", "2", port=port)
        # The guarantee holds for workers that outlive the crash: none may die before it has resent its pushes.
        self.swarms.wait_until_resent(self._endpoint)

    def _kill_swarm(self) -> None:
        swarm = self._random.choice(self.swarms.alive)
        self.swarms.kill(swarm)
        self.swarm_kills += 1
        self._save()
        # Some workers return under their old names, as new incarnations.
        again = self._random.random() < 0.3 or self.swarms.is_full
        self.swarms.start(self.proxy.endpoint, swarm.first if again else None)

    def _save(self) -> None:
        """Wait for a checkpoint that begins now."""
        try:
            ask(self._endpoint, messages.CheckpointRequest(request=1), timeout_seconds=60)
        except (RequestRefused, ServerUnreachable) as error:
            raise AssertionError(f"no checkpoint: {error}\n{self._server.output[-2000:]}") from error

    def _grow(self, updates: int) -> None:
        goal = status_of(self._endpoint).version + updates
        wait_for(lambda: status_of(self._endpoint).version >= goal, within_seconds=120, program=self._server)


def trial(*, seed: int, kills: int, swarm: int) -> dict[str, int]:
    """Figures by name; `lost` and `doubled` must be 0."""
    with tempfile.TemporaryDirectory() as folder, programs_in(Path(folder)) as programs:
        chaos = Chaos(programs, seed=seed, swarm=swarm, weights=swarm * (SWARMS + kills))
        for _ in range(kills):
            chaos.disturb()
        counts = chaos.finish()
        return {
            "seed": seed,
            "workers": chaos.swarms.next,
            "server_kills": chaos.server_kills,
            "swarm_kills": chaos.swarm_kills,
            "cut": chaos.proxy.cut_off,
            "dropped": chaos.proxy.dropped,
            "duplicated": chaos.proxy.doubled,
            **counts,
        }


def main() -> int:
    found = trial(**figures.sizes(seed=0, kills=20, swarm=30))
    return figures.report(found, broken(found))


if __name__ == "__main__":
    sys.exit(main())
