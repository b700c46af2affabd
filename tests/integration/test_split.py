"""
The wire between two real servers breaks, and nothing else: every worker reaches both. Newcomers ask the standby first.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests.integration.integer_worker import SCHEMA, told
from tests.integration.processes import Program, Programs, status_of, wait_for, weights_of
from tests.integration.slow_link import SlowLink

pytestmark = pytest.mark.timeout(300)  # five programs that import torch, one after another

PATIENT = ("--takeover-seconds", "2")  # a machine that runs tests may stall
UPDATES = 4000  # of each worker
SOON = {"ps_client.machine.patience.WARNING_SECONDS": 0.5}  # a worker says so early that it is not served


@dataclass
class Split:
    """A pair in sync, and a worker that pushes."""

    programs: Programs
    wire: SlowLink
    primary: Program
    standby: Program
    addresses: tuple[str, str]
    workers: list[Program]

    def start_worker(self, name: str, *, first: int) -> Program:
        """One that asks the primary (0) or the standby (1) first."""
        servers = f"{self.addresses[first]},{self.addresses[1 - first]}"
        number = len(self.workers)
        arguments = (servers, name, str(UPDATES), str(number))
        self.workers.append(self.programs.start("tests.integration.integer_worker", *arguments, constants=SOON))
        return self.workers[-1]

    def pushes_of(self, name: str, server: int) -> int:
        return sum(one.pushes for one in status_of(self.addresses[server]).workers if one.worker_id == name)

    def promote(self, *flags: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "ps_ctl", "promote", "--server", self.addresses[1], *flags]
        return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def split(programs: Programs, request: pytest.FixtureRequest) -> Iterator[Split]:
    primary, first = programs.start_server("--checkpoint-seconds", "1")
    with closing(SlowLink(first)) as wire:
        flags = [one.format(run=programs.folder / "run") for one in getattr(request, "param", ())]
        follow = ("--standby-of", wire.endpoint, *PATIENT, *flags)
        standby, second = programs.start_server(*follow, run_dir=programs.folder / "standby")
        pair = Split(programs, wire, primary, standby, (first, second), [])
        worker = pair.start_worker("early", first=0)
        wait_for(lambda: "follows as the standby" in primary.output, program=worker)
        yield pair


def test_a_newcomer_promotes_nobody_and_no_push_is_lost_when_the_wire_is_whole_again(split: Split) -> None:
    split.wire.cut()
    wait_for(lambda: "is gone; checkpoints alone count again" in split.primary.output, program=split.primary)
    late = split.start_worker("late", first=1)
    wait_for(lambda: split.pushes_of("late", 0) > 0, program=late)
    version = status_of(split.addresses[0]).version
    wait_for(lambda: status_of(split.addresses[0]).checkpoint_version > version, program=split.primary)
    assert status_of(split.addresses[1]).phase == "standby"
    assert "promoted at" not in split.standby.output
    split.wire.mend()
    wait_for(lambda: split.primary.output.count("follows as the standby") == 2, program=split.standby)
    split.primary.kill()
    wait_for(lambda: "promoted at" in split.standby.output, program=split.standby)
    totals = [wait_for(lambda one=one: told(one.output), program=one) for one in split.workers]  # type: ignore[misc]
    where, pushes = split.addresses[1], len(split.workers) * UPDATES
    wait_for(lambda: status_of(where).version >= 1 + pushes, program=split.standby)
    wait_for(lambda: status_of(where).version == 1 + pushes)
    np.testing.assert_array_equal(weights_of(where, SCHEMA.size).numpy(), -np.sum(totals, axis=0))


def nobody_of_the_run_is_left(split: Split) -> Program:
    """The primary and its worker are killed; a newcomer asks in vain."""
    for program in (split.workers.pop(), split.primary):
        program.kill()
    late = split.start_worker("late", first=1)
    wait_for(lambda: "ps-ctl promote" in late.output, program=late)
    return late


def test_an_admin_promotes_a_standby_with_a_reason_where_no_worker_of_the_run_is_left(split: Split) -> None:
    late = nobody_of_the_run_is_left(split)
    asked = split.promote()
    assert (asked.returncode, "lost" in asked.stderr, "--reason" in asked.stderr) == (1, True, True), asked.stderr
    assert status_of(split.addresses[1]).phase == "standby"
    done = split.promote("--reason", "its host is gone")
    assert done.returncode == 0, done.stderr
    assert "an admin: its host is gone" in split.standby.output
    wait_for(lambda: split.pushes_of("late", 1) > 0, program=late)
    assert (Path(split.programs.folder) / "standby" / "lineage.json").exists(), "no later life has this epoch"


@pytest.mark.parametrize("split", [("--arbiter", "{run}")], indirect=True)
def test_the_lock_of_the_primarys_folder_decides_where_both_share_a_disk(split: Split) -> None:
    split.wire.cut()
    wait_for(lambda: "is gone; checkpoints alone count again" in split.primary.output, program=split.primary)
    late = split.start_worker("late", first=1)
    wait_for(lambda: split.pushes_of("late", 0) > 0, program=late)
    assert "promoted at" not in split.standby.output
    split.wire.mend()
    wait_for(lambda: split.primary.output.count("follows as the standby") == 2, program=split.standby)
    for program in (*split.workers, split.primary):
        program.kill()
    split.workers.clear()
    last = split.start_worker("last", first=1)
    wait_for(lambda: "the arbiter says that nobody serves" in split.standby.output, program=last)
    wait_for(lambda: split.pushes_of("last", 1) > 0, program=last)
    resumed = split.programs.start("ps-server", "--port", "0", "--resume", str(split.programs.folder / "run"))
    assert resumed.wait() == 2
    assert "another ps-server keeps a run there" in resumed.output
