"""A real primary, killed or paused under load, and its standby: each push of the living workers counts exactly once."""

import signal
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from ps_server.keys import make_keys
from tests.integration.integer_worker import SCHEMA, told
from tests.integration.processes import Program, Programs, status_of, wait_for, weights_of

pytestmark = pytest.mark.timeout(300)  # five programs that import torch, one after another

WORKERS = 2
PATIENT = ("--takeover-seconds", "2")  # a machine that runs tests may stall
UPDATES = 5000  # of each worker


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

    def wait_for_takeover(self) -> None:
        wait_for(lambda: "taking over" in self.standby.output, program=self.standby)

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
    standby, second = programs.start_server("--standby-of", first, *PATIENT, run_dir=folder)
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
    port = pair.addresses[0].rpartition(":")[2]
    back = pair.programs.start("ps-server", "--host", "127.0.0.1", "--port", port, "--resume", str(pair.primary_folder))
    assert back.wait() == 1
    assert f"{pair.addresses[1]} has taken over this run" in back.output
    assert f"ps-server --standby-of {pair.addresses[1]}" in back.output
    pair.standby.kill()
    again, _ = pair.programs.start_server("--resume", str(pair.primary_folder))
    assert f"the standby {pair.addresses[1]} cannot be asked whether it has taken over; starting" in again.output


def test_a_primary_that_was_paused_stops_when_it_goes_on(pair: Pair) -> None:
    pair.primary.signal(signal.SIGSTOP)
    pair.wait_for_takeover()
    pair.primary.signal(signal.SIGCONT)
    assert pair.primary.wait() == 1
    assert f"{pair.addresses[1]} has taken over this run" in pair.primary.output
    pair.each_push_is_there_once()


def test_the_old_primary_follows_the_new_one_and_takes_over_in_its_turn(pair: Pair) -> None:
    pair.primary.kill()
    pair.wait_for_takeover()
    port = int(pair.addresses[0].rpartition(":")[2])
    folder = pair.programs.folder / "back"
    pair.primary, _ = pair.programs.start_server("--standby-of", pair.addresses[1], *PATIENT, port=port, run_dir=folder)
    wait_for(lambda: "follows as the standby" in pair.standby.output, program=pair.standby)
    pair.standby.kill()
    pair.standby, pair.addresses = pair.primary, (pair.addresses[1], pair.addresses[0])
    pair.wait_for_takeover()
    pair.each_push_is_there_once()


def test_locked_servers_know_each_other_by_their_own_keys(programs: Programs, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    make_keys(keys)
    lock = ["--curve-secret", str(keys / "server.key_secret"), "--authorized-keys", str(keys / "authorized")]
    primary, first = programs.start_server(*lock, "--preset", "cartpole")
    standby, second = programs.start_server(*lock, "--standby-of", first, *PATIENT, run_dir=tmp_path / "standby")
    flags = ["--curve-server-key", str(keys / "server.key"), "--curve-secret", str(keys / "worker.key_secret")]
    worker = programs.start("rl-worker", "--server", f"{first},{second}", *flags)
    wait_for(lambda: "follows as the standby" in primary.output, program=worker)
    primary.kill()
    wait_for(lambda: "taking over" in standby.output, program=standby)
    wait_for(lambda: "joined" in standby.output, program=worker)
