"""Real processes on one host: vectors go through memory where they can, by wire where not, and nothing is left."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from common import shared_memory
from tests.integration.processes import Program, Programs, status_of, wait_for, weights_of
from tests.segment_names import left_behind, name_that_is_open, names

PARAMETERS = 50_000  # large enough for memory to be worth it
UPDATES = 200
MOST_SAVED = 20  # checkpoints in the few seconds of a test
NOBODY = 65534
ROOT = pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root and `unshare`")

pytestmark = pytest.mark.skipif(not os.path.isdir(shared_memory.FOLDER), reason="there is no /dev/shm")


def kept_by(program: Program) -> int:
    """Segments that a process has open or mapped."""
    process = Path(f"/proc/{program.process.pid}")
    files = [os.readlink(path) for path in (process / "fd").iterdir() if path.is_symlink()]
    maps = (process / "maps").read_text().splitlines()
    # A file that got its name later is shown without it.
    return sum(shared_memory.FOLDER + "/" in line for line in [*files, *maps])


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    before = left_behind()
    yield
    assert left_behind() <= before


def worker(
    programs: Programs, endpoint: str, name: str, *more: int, prefix: tuple[str, ...] = (), updates: int = UPDATES
) -> Program:
    numbers = [updates, len(name), PARAMETERS, *more]
    return programs.start("tests.integration.integer_worker", endpoint, name, *map(str, numbers), prefix=prefix)


def pushed(program: Program) -> np.ndarray:
    """What a worker has pushed in all, once it has pushed everything."""
    wait_for(lambda: "pushed" in program.output and program.output.endswith("\n"), program=program)
    line = next(line for line in program.output.splitlines() if line.startswith("pushed"))
    return np.array(line.split()[1:], dtype=np.float64)


def test_two_workers_of_one_host_push_and_pull_without_a_copy_for_the_wire(programs: Programs) -> None:
    server, endpoint = programs.start_server()
    workers = [worker(programs, endpoint, name) for name in ("a", "bb")]
    total = sum(pushed(one) for one in workers)
    assert status_of(endpoint).snapshots <= MOST_SAVED, "of 400 versions only those that a checkpoint held"
    assert kept_by(server) > 0
    assert not any(name_that_is_open(one.process.pid) for one in workers), "a segment has a name only until WELCOME"
    np.testing.assert_array_equal(weights_of(endpoint, PARAMETERS).numpy(), -total)


def test_of_workers_that_were_killed_or_left_the_server_keeps_nothing(programs: Programs) -> None:
    server, endpoint = programs.start_server("--lease-seconds", "1")
    for round_ in range(2):
        workers = [worker(programs, endpoint, f"{round_}{name}", updates=10) for name in "abc"]
        for one in workers:
            pushed(one)
        assert kept_by(server) > 0
        for one in workers:
            one.kill()
        wait_for(lambda: kept_by(server) == 0, program=server)


def test_a_worker_that_is_killed_before_welcome_leaves_no_name(programs: Programs) -> None:
    server, endpoint = programs.start_server()
    server.kill()
    waiting = worker(programs, endpoint, "a")
    left = wait_for(lambda: name_that_is_open(waiting.process.pid), program=waiting)
    waiting.kill()
    server, _ = programs.start_server(run_dir=programs.folder / "another run")
    wait_for(lambda: left not in names(), program=server)


@pytest.mark.timeout(240)
def test_a_server_that_is_killed_and_resumed_is_lent_memory_again(programs: Programs, tmp_path: Path) -> None:
    server, endpoint = programs.start_server("--checkpoint-seconds", "1")
    workers = [worker(programs, endpoint, name, updates=1500) for name in ("a", "bb")]
    wait_for(lambda: status_of(endpoint).version > 500, program=server)
    server.kill()
    port = int(endpoint.rpartition(":")[2])
    server, _ = programs.start_server("--resume", str(tmp_path / "run"), port=port)
    total = sum(pushed(one) for one in workers)
    wait_for(lambda: status_of(endpoint).version == 1 + 3000, program=server)
    assert kept_by(server) > 0
    np.testing.assert_array_equal(weights_of(endpoint, PARAMETERS).numpy(), -total)


@ROOT
@pytest.mark.parametrize(
    ("more", "prefix"),
    [
        pytest.param((NOBODY,), (), id="a worker of another user"),
        pytest.param(
            (),
            ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /dev/shm && exec "$@"', "sh"),
            id="another /dev/shm",
        ),
        pytest.param(
            (), ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o ro none /dev/shm && exec "$@"', "sh"), id="none"
        ),
    ],
)
def test_where_memory_is_not_shared_all_goes_by_wire(
    programs: Programs, more: tuple[int, ...], prefix: tuple[str, ...]
) -> None:
    if prefix and subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no mount namespace can be made here")
    server, endpoint = programs.start_server()
    total = pushed(worker(programs, endpoint, "a", *more, prefix=prefix))
    assert kept_by(server) == 0
    np.testing.assert_array_equal(weights_of(endpoint, PARAMETERS).numpy(), -total)
