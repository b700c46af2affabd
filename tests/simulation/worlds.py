"""
The world that a seed draws, which swarm.py plays.
"""

import random
from dataclasses import dataclass
from typing import Any

from tests.simulation.cluster import Faults
from tests.simulation.swarm_cluster import VECTOR_BYTES

MOST_SECONDS, MOST_MESSAGES = 600.0, 200_000  # of one world, simulated


@dataclass(frozen=True, kw_only=True)
class World:
    """What is drawn from a seed. Each of `events` is a pause in seconds, and what happens then."""

    seed: int
    standbys: tuple[bool, ...]  # of each shard of the run, whether it has one
    has_files: bool  # the disk is a folder, and checkpoints are files, which a crash tears
    workers: int
    rule: str
    slack: int
    quorum: int
    in_flight: int
    pulls: bool
    gradient_codecs: tuple[str, ...]  # of the workers in turn
    weight_kinds: tuple[str, ...]
    resend_pushes: int
    receive_bytes: int
    checkpoint_seconds: float
    checkpoint_takes_seconds: float
    events: tuple[tuple[float, str], ...]

    @property
    def shards(self) -> int:
        """Servers that hold the run together, each perhaps with a standby."""
        return len(self.standbys)

    @property
    def settings(self) -> dict[str, Any]:
        """Those of the run: with them the weights are exact sums."""
        consistency: dict[str, Any] = {"rule": self.rule, "quorum": self.quorum}
        if self.rule == "ssp":
            consistency["slack"] = self.slack
        exact = {"optimizer": {"name": "sgd"}, "schedule": {"learning_rate": 1.0}}
        return exact | {"consistency": consistency}

    def events_of(self, kind: str) -> list[float]:
        """The pauses before each event of this kind."""
        return [seconds for seconds, event in self.events if event == kind]


ANYWHERE = (
    "restart worker",
    "worker leaves",
    "worker stands still",
    "trainer hangs",
    "workers go on",
    "workers go on",
    "a liar speaks",
    "a liar speaks",
    "checkpoint",
    "join",
    "network",
    "link",
    "pause run",
    "resume run",
    "adjust",
)
ALONE = (  # of a server without a standby
    "kill server",
    "kill server",
    "restore server",
    "restore server",
    "stop server",
    "fill or empty disk",
)
FILES = 4 * ("damage disk",)
# Of a pair: nothing breaks but the link between the two servers, and newcomers ask the standby first.
WIRE = ("break wire", "mend wire")
LAST = ("kill primary", "kill primary in sync", "pause primary in sync", "hand over in sync")


def drawn(seed: int) -> World:
    """The world of this seed."""
    chance = random.Random(seed)
    standbys = tuple(chance.random() < 0.4 for _ in range(chance.choice([1, 1, 1, 2, 3])))
    has_files = chance.random() < 0.4
    kinds = [*ANYWHERE, *(() if all(standbys) else ALONE), *(FILES if has_files and not all(standbys) else ())]
    events = [(chance.choice([0.05, 0.3, 1.0, 3.0]), chance.choice(kinds)) for _ in range(chance.randint(1, 12))]
    if any(standbys):
        if chance.random() < 0.7:
            at = chance.randint(0, len(events))
            events.insert(at, (1.0, WIRE[0]))
            events.insert(chance.randint(at + 1, len(events)), (chance.choice([1.0, 10.0]), WIRE[1]))
        events.append((1.0, chance.choice(LAST)))
    workers = chance.randint(1, 6)
    return World(
        seed=seed,
        standbys=standbys,
        has_files=has_files,
        workers=workers,
        rule=chance.choice(["async", "async", "ssp", "sync"]),
        slack=chance.randint(1, 4),
        quorum=chance.choice([0, 0, min(2, workers), workers]),
        in_flight=chance.randint(1, 6),
        pulls=chance.random() < 0.7,
        gradient_codecs=tuple(chance.choice(["float32", "bfloat16", "float16"]) for _ in range(chance.randint(1, 3))),
        weight_kinds=tuple(
            chance.choice(["float32", "bfloat16", "float16", "delta"]) for _ in range(chance.randint(1, 3))
        ),
        resend_pushes=chance.choice([3, 20, 10_000, 10_000]),
        receive_bytes=chance.choice([1, 3, 10**6]) * VECTOR_BYTES,
        checkpoint_seconds=chance.choice([0.5, 2.0, 5.0]),
        checkpoint_takes_seconds=chance.choice([0.0, 0.3, 1.5]),
        events=tuple(events),
    )


def drawn_faults(chance: random.Random, *, worst: float = 0.3) -> Faults:
    """Those of a network, or of a link."""
    return Faults(
        drop=chance.choice([0.0, 0.05, worst]),
        duplicate=chance.choice([0.0, 0.3]),
        longest_delay_seconds=chance.choice([0.0, 0.4]),
    )


def check_bounds(seconds: float, messages: int) -> None:
    """A world ends: what has lasted so long, or sent so much, has a part that is stuck or that asks without end."""
    assert seconds < MOST_SECONDS, f"it has not ended within {MOST_SECONDS} simulated seconds"
    assert messages < MOST_MESSAGES, f"it has not ended within {MOST_MESSAGES} messages"


def kinds_of(world: World) -> set[str]:
    """What this world has in it; what befalls it is known when it was played."""
    servers = "shards" if world.shards > 1 else "server"
    kinds = {world.rule, f"{servers} of {world.rule}", f"{servers} with standby" if any(world.standbys) else servers}
    kinds |= {f"{codec} gradients" for codec in world.gradient_codecs}
    kinds |= {f"{kind} weights" for kind in world.weight_kinds}
    return kinds | {kind for kind, has in (("files", world.has_files), ("quorum", world.quorum)) if has}
