"""A real primary, killed or paused under load, and its standby: each push of the living workers counts exactly once."""

import signal
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from ps_server.storage.earlier_life import read_lineage
from tests.integration.integer_worker import SCHEMA, told
from tests.integration.processes import Program, Programs, status_of, wait_for, weights_of

pytestmark = pytest.mark.timeout(300)  # five programs that import torch, one after another

WORKERS = 2
PATIENT = ("--takeover-seconds", "2")  # a machine that runs tests may stall
UPDATES = 5000  # of each worker


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


@dataclass
class Pair:
    """A primary with a standby that follows it, and workers that push."""

    programs: Programs
    primary: Program
    standby: Program
    workers: list[Program]
    addresses: tuple[str, str]  # of the primary and the standby

    @property
    def primary_folder(self) -> Path:
        return self.programs.folder / "run"

    def start_primary(self) -> Program:
        """Again, on its port and in its folder."""
        where = ("--host", "127.0.0.1", "--port", str(port_of(self.addresses[0])))
        return self.programs.start("ps-server", *where, "--resume", str(self.primary_folder))

    def wait_for_takeover(self) -> None:
        wait_for(lambda: "promoted at" in self.standby.output, program=self.standby)

    def each_push_is_there_once(self) -> None:
        """Once the workers have pushed everything to the standby."""
        totals = [wait_for(lambda worker=worker: told(worker.output), program=worker) for worker in self.workers]  # type: ignore[misc]
        where = self.addresses[1]
        wait_for(lambda: status_of(where).version >= 1 + WORKERS * UPDATES, program=self.standby)
        status = status_of(where)
        assert (status.version, status.global_steps) == (1 + WORKERS * UPDATES, WORKERS * UPDATES)
        np.testing.assert_array_equal(weights_of(where, SCHEMA.size).numpy(), -np.sum(totals, axis=0))


@pytest.fixture
def pair(programs: Programs) -> Pair:
    """Under load."""
    primary, first = programs.start_server("--checkpoint-seconds", "1")
    folder = programs.folder / "standby"
    # By a name that is not the address it listens on.
    standby, second = programs.start_server("--standby-of", first, *PATIENT, "--advertise", "localhost", run_dir=folder)
    assert second.startswith("localhost:")
    workers = [
        programs.start("tests.integration.integer_worker", f"{first},{second}", f"w{number}", str(UPDATES), str(number))
        for number in range(WORKERS)
    ]
    wait_for(lambda: "follows as the standby" in primary.output, program=primary)
    # From the first checkpoint after that on, the primary remembers who has followed it.
    followed_at = max(status_of(first).version, UPDATES // 10)
    wait_for(lambda: status_of(first).checkpoint_version >= followed_at, program=primary)
    status = status_of(second)
    assert status.phase == "standby"
    assert status.version > 1
    return Pair(programs, primary, standby, workers, (first, second))


def test_a_primary_killed_under_load_is_replaced_and_may_not_come_back(pair: Pair) -> None:
    pair.primary.kill()
    pair.wait_for_takeover()
    pair.each_push_is_there_once()
    back = pair.start_primary()
    assert back.wait() == 1
    assert f"{pair.addresses[1]} serves this run now" in back.output
    assert f"ps-server --standby-of {pair.addresses[1]}" in back.output
    pair.standby.kill()
    again = pair.start_primary()
    assert again.wait() == 1, "its folder remembers, though nobody can be asked"
    assert "--take-back" in again.output
    _, where = pair.programs.start_server("--resume", str(pair.primary_folder), "--take-back")
    assert status_of(where).phase == "serving"


def test_a_primary_that_is_asked_to_leave_hands_over_and_exits_with_success(pair: Pair) -> None:
    for number in (signal.SIGUSR1, signal.SIGTERM):  # as Slurm does: a warning, then the end
        pair.primary.signal(number)
    assert pair.primary.wait() == 0
    assert f"handed the run over to {pair.addresses[1]}" in pair.primary.output
    assert "has not confirmed" not in pair.primary.output
    assert "Traceback" not in pair.primary.output
    pair.each_push_is_there_once()
    assert f"{pair.addresses[0]} leaves: promoted at version" in pair.standby.output
    remembered = read_lineage(pair.primary_folder)
    assert remembered is not None
    assert remembered.replaced_by == pair.addresses[1]


@pytest.mark.nightly
def test_the_old_primary_follows_the_new_one_and_takes_over_in_its_turn(pair: Pair) -> None:
    pair.primary.kill()
    pair.wait_for_takeover()
    port, folder = port_of(pair.addresses[0]), pair.programs.folder / "back"
    pair.primary, _ = pair.programs.start_server("--standby-of", pair.addresses[1], *PATIENT, port=port, run_dir=folder)
    wait_for(lambda: "follows as the standby" in pair.standby.output, program=pair.standby)
    pair.standby.kill()
    pair.standby, pair.addresses = pair.primary, (pair.addresses[1], pair.addresses[0])
    pair.wait_for_takeover()
    pair.each_push_is_there_once()
