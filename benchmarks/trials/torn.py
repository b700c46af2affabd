"""
Snapshots under load: all weights are always equal, so a torn snapshot is visible.

Each push is a gradient of −1, with SGD and a learning rate of 1: at version v all weights are v − 1, and so are target
weights of version v. Pushers push as fast as possible, pullers check each pull, and meanwhile the server is killed with
SIGKILL and resumed.

Run it as a module, with sizes in the environment: PULLS= (in all), SIZE= (of the vector), KILLS= (of the server).
"""

import sys
import time

from benchmarks.trials.frame import programs_of_a_trial, report, sizes
from tests.integration.processes import Program, status_of, wait_for

PUSHERS, PULLERS = 2, 3
# pyzmq copies vectors shorter than 64 KiB into the message; such a snapshot could not be torn.
SIZE = 20_000
HOURS = 3 * 3600.0


def trial(*, pulls: int, size: int, kills: int) -> dict[str, float]:
    """Figures by name; `torn` and `backwards` must be 0."""
    with programs_of_a_trial() as programs:
        server, endpoint = programs.start_server("--checkpoint-seconds", "1")
        for number in range(PUSHERS):
            programs.start("benchmarks.trials.constant_worker", "push", endpoint, f"pusher-{number}", str(size))
        wait_for(lambda: status_of(endpoint).version > 100, program=server)
        began = time.monotonic()
        of_each = ["pull", endpoint, str(size), str(-(-pulls // PULLERS))]
        pullers = [programs.start("benchmarks.trials.constant_worker", *of_each) for _ in range(PULLERS)]
        for _ in range(kills):
            goal = status_of(endpoint).version + 1000
            wait_for(lambda goal=goal: status_of(endpoint).version > goal, program=server)  # type: ignore[misc]
            server.kill()
            resume = ["--resume", str(programs.folder / "run"), "--checkpoint-seconds", "1"]
            server, _ = programs.start_server(*resume, port=int(endpoint.rpartition(":")[2]))
        found = [_found(puller) for puller in pullers]
        totals = {name: sum(one[name] for one in found) for name in found[0]}
        return totals | {"updates": status_of(endpoint).updates, "seconds": time.monotonic() - began}


def _found(puller: Program) -> dict[str, int]:
    """The counts of a puller, after it has ended."""
    assert puller.wait(HOURS) == 0, puller.output
    return {name: int(value) for name, value in (field.split("=") for field in puller.output.split())}


def main() -> int:
    found = trial(**sizes(pulls=1_000_000, size=SIZE, kills=5))
    return report(
        found,
        {"no pull is torn": found["torn"] > 0, "versions never decrease": found["backwards"] > 0},
    )


if __name__ == "__main__":
    sys.exit(main())
