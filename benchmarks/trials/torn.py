"""
Snapshots under load: all weights are always equal, so a torn snapshot is visible.

Each push is a gradient of −1, with SGD and a learning rate of 1: at version v all weights are v − 1, and so are target
weights of version v. Pushers push as fast as possible, pullers check each pull, and meanwhile the server is killed with
SIGKILL and resumed.

Run it as a module, with sizes in the environment: PULLS= (in all), SIZE= (of the vector), KILLS= (of the server). With
arguments it is one of the processes: torn push HOST:PORT NAME SIZE, until it is killed; or torn pull HOST:PORT SIZE
PULLS, which checks at least PULLS pulls and prints its counts by name.
"""

import itertools
import sys
import time

import torch
import zmq
from torch import Tensor

from benchmarks.trials.frame import programs_of_a_trial, report, sizes
from ps_common.protocol import messages
from ps_common.protocol.codecs import CODECS
from ps_common.protocol.messages import Pull
from ps_common.protocol.tensors import Schema, TensorSpec
from ps_common.protocol.wire import read_to_worker, to_frames
from ps_common.sockets.zmq_sockets import COPIED_BYTES
from tests.integration.integer_worker import joined
from tests.integration.processes import Program, status_of, wait_for

PUSHERS, PULLERS = 2, 3
# Vectors of up to COPIED_BYTES are copied into their frames; such a snapshot could not be torn.
SIZE = COPIED_BYTES // 4 + 1
HOURS = 3 * 3600.0
TARGET_STEPS = 25  # pushes from one version of the target weights to the next
IN_FLIGHT = 4  # pulls of one puller
PULLS_OF_A_VERSION = 50  # at most, on average
TIMEOUT_MILLISECONDS = 1000  # after it pulls in flight count as lost, perhaps with a server


def trial(*, pulls: int, size: int, kills: int) -> dict[str, float]:
    """Figures by name; `torn` and `backwards` must be 0."""
    with programs_of_a_trial() as programs:
        server, endpoint = programs.start_server("--checkpoint-seconds", "1")
        for number in range(PUSHERS):
            programs.start("benchmarks.trials.torn", "push", endpoint, f"pusher-{number}", str(size))
        wait_for(lambda: status_of(endpoint).version > 100, program=server)
        began = time.monotonic()
        of_each = ["pull", endpoint, str(size), str(-(-pulls // PULLERS))]
        pullers = [programs.start("benchmarks.trials.torn", *of_each) for _ in range(PULLERS)]
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


def push(server: str, name: str, size: int) -> None:
    torch.set_num_threads(1)
    algorithm = {"name": "n_step_q", "target_interval": TARGET_STEPS}
    parameters, newest, _ = joined(server, name, Schema([TensorSpec("constant", (size,))]), algorithm=algorithm)
    gradient = torch.full((size,), -1.0)
    while True:
        newest = parameters.push_pull(gradient, computed_on=newest, steps=1)
        assert newest.settled is not None
        assert newest.settled.verdict in ("applied", "duplicate"), newest.settled


class Puller:
    """Pulls and checks. Every third pull is of the target weights, every fifth uses bfloat16."""

    def __init__(self, server: str, size: int) -> None:
        self._size = size
        self._requests = itertools.count(1)
        self._asked: dict[int, Pull] = {}
        self._newest: dict[tuple[bool, int], int] = {}  # version, by whether it is the target's, and epoch
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
        self._socket.connect(f"tcp://{server}")
        self.found = dict.fromkeys(("pulled", "targets", "epochs", "versions", "torn", "backwards"), 0)

    def pull(self, pulls: int) -> None:
        # Weights that do not change cannot be torn: there must have been enough new versions among the pulls.
        while self.found["pulled"] < pulls or self.found["versions"] < pulls // PULLS_OF_A_VERSION:
            while len(self._asked) < IN_FLIGHT:
                self._ask()
            if not self._socket.poll(TIMEOUT_MILLISECONDS):
                self._asked.clear()
                continue
            frames = self._socket.recv_multipart(copy=False)
            reply, vector = read_to_worker([frame.buffer for frame in frames])
            asked = self._asked.pop(reply.request, None)
            if asked is not None and isinstance(reply, messages.Weights):
                self._check(reply, asked, CODECS[reply.codec].decode(vector, self._size))
        self.found["epochs"] = len({epoch for _, epoch in self._newest})

    def _ask(self) -> None:
        number = next(self._requests)
        codec = "bfloat16" if number % 5 == 0 else "float32"
        pull = Pull(request=number, target=number % 3 == 0, codec=codec)
        self._asked[number] = pull
        self._socket.send_multipart(to_frames(pull))

    def _check(self, reply: messages.Weights, asked: Pull, weights: Tensor) -> None:
        codec = CODECS[reply.codec]
        expected = codec.decode([codec.encode(torch.tensor([reply.version - 1.0]))], 1)
        before = self._newest.get((asked.target, reply.epoch), 0)
        self.found["pulled"] += 1
        self.found["targets"] += asked.target
        self.found["versions"] += reply.version > before
        self.found["torn"] += not bool((weights == expected).all())
        self.found["backwards"] += reply.version < before
        self._newest[asked.target, reply.epoch] = max(before, reply.version)


def pull(server: str, size: int, pulls: int) -> None:
    torch.set_num_threads(1)
    puller = Puller(server, size)
    puller.pull(pulls)
    print(*(f"{name}={value}" for name, value in puller.found.items()), flush=True)


def main() -> int:
    found = trial(**sizes(pulls=1_000_000, size=SIZE, kills=5))
    return report(
        found,
        {"no pull is torn": found["torn"] > 0, "versions never decrease": found["backwards"] > 0},
    )


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["push", server, name, size]:
            push(server, name, int(size))
        case ["pull", server, size, pulls]:
            pull(server, int(size), int(pulls))
        case _:
            sys.exit(main())
