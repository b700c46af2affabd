"""
Messages of peers that mean harm, or are broken: each lie is a burst of them from one connection.

The sums of the honest workers stay exact, and the world stays live, whatever is sent.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from ps_common.protocol import messages
from ps_common.protocol.messages import Episode, ToServer
from ps_common.protocol.wire import to_frames
from tests.simulation.cluster import run_id_of
from tests.simulation.swarm_cluster import PROCESSES, Watched

Frames = list[bytes]
MANY = 60  # messages of a burst
HUGE = 2**53 - 1


@dataclass
class Liar:
    """It knows the run, and joins under a name of its own; its gradients are for a weight that no worker has."""

    name: str
    cluster: Watched
    chance: random.Random

    def hello(self, *, name: str = "", **fields: object) -> Frames:
        """It joins, perhaps under another name."""
        number = self.cluster.lineage.shard.number
        first = {"first_shard": run_id_of(1), "number": PROCESSES} if number > 1 else {}
        hello = messages.Hello(
            request=1,
            worker_id=name or self.name,
            secret=f"secret-of-the-{self.name}-0123456789",
            protocols=(1, 1),
            **first | fields,  # type: ignore[arg-type]
        )
        return frames(hello)

    def push(self, sequence: int, *, gradient: np.ndarray | None = None, **fields: object) -> Frames:
        """A push that is right but for these fields."""
        run, schema = self.cluster.server.run, self.cluster.schema
        assert run is not None
        if gradient is None:
            gradient = np.zeros(schema.size, dtype=np.float32)
            gradient[PROCESSES - 1 :: PROCESSES] = 1.0
        right = {"schema_hash": schema.hash, "codec": "float32", "epoch": run.epoch, "computed_on": 1, "steps": 2}
        push = messages.Push(request=sequence, sequence=sequence, **right | fields)  # type: ignore[arg-type]
        return frames(push, gradient.tobytes())


def frames(message: ToServer, *vector: bytes) -> Frames:
    """As they travel."""
    return [bytes(frame) for frame in to_frames(message, vector)]


def wrong_sums(liar: Liar) -> Iterator[Frames]:
    """Gradients that are not finite, absurd, of another length, codec, schema, epoch or time, or count without end."""
    yield liar.hello()
    size = liar.cluster.schema.size
    vectors = [np.full(size, value, dtype=np.float32) for value in (np.nan, np.inf, 1e31)]
    vectors += [np.ones(size + 1, dtype=np.float32), np.ones(1, dtype=np.float32), np.ones(0, dtype=np.float32)]
    for sequence, vector in enumerate(vectors, 1):
        yield liar.push(sequence, gradient=vector)
    wrong: list[dict[str, object]] = [
        {"codec": "delta"},
        {"schema_hash": "0" * 32},
        {"epoch": HUGE},
        {"computed_on": HUGE},
        {"steps": HUGE},
        {"norm": float("nan")},
        {"norm": -1.0},
    ]
    for fields in wrong:
        yield liar.push(20, **fields)
    yield liar.push(HUGE)


def repeats(liar: Liar) -> Iterator[Frames]:
    """The same pushes again and again, in any order, and under HELLOs in between."""
    yield liar.hello()
    sent = [liar.push(sequence) for sequence in range(1, 6)]
    for _ in range(MANY):
        yield liar.chance.choice([*sent, liar.hello()])


def names_without_end(liar: Liar) -> Iterator[Frames]:
    """Names without end, which ask for credit and push nothing, and epochs without a proof."""
    yield liar.hello(latest_epoch=HUGE, epoch_proof="0" * 64)
    for number in range(MANY):
        yield liar.hello(name=f"{liar.name}-{number}")
        yield frames(messages.CreditRequest(request=2, bytes=liar.cluster.schema.bytes))


def false_claims(liar: Liar) -> Iterator[Frames]:
    """Games that were not played, meters that are no numbers, heartbeats that flap."""
    yield liar.hello()
    games = [Episode(value, length) for value, length in ((0.0, 0), (1e30, 1), (-100.0, HUGE))]
    for sequence, game in enumerate(games, 1):
        report = messages.Report(request=sequence, sequence=sequence, episodes=(game,) * 100, meters={"loss": np.nan})
        yield frames(report)
    for number in range(MANY):
        yield frames(messages.Report(request=1, sequence=number + 4, episodes=(), meters={f"meter{number}": 1e308}))
        yield frames(messages.Heartbeat(request=1, stalled=number % 2 == 0, save_soon=True, waits_elsewhere=True))


def costly_requests(liar: Liar) -> Iterator[Frames]:
    """Small requests with large replies; and messages that are none."""
    for number in range(MANY):
        yield frames(messages.StatusRequest(request=number))
        yield frames(messages.Subscribe(request=number))
        pull = {"have_epoch": liar.cluster.lineage.epoch, "have_version": number, "codec": "delta"}
        yield frames(messages.Pull(request=number, **pull))  # type: ignore[arg-type]
        yield [b"ps-rl/1", liar.chance.randbytes(20), *[b""] * 20]
    yield frames(messages.Fence(request=1, run_id=run_id_of(1), latest_epoch=HUGE, epoch_proof="", address="x:1"))


LIES: dict[str, Callable[[Liar], Iterator[Frames]]] = {
    "has wrong sums": wrong_sums,
    "repeats": repeats,
    "takes names without end": names_without_end,
    "claims what is false": false_claims,
    "asks for much": costly_requests,
}
