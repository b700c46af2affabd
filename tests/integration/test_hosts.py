"""Programs on several hosts (benchmarks/trials/hosts.py). Needs root and iproute2."""

import os
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from benchmarks.trials.hosts import Hosts
from ps_common.run_folder.paths import METRICS
from ps_common.run_folder.run_rows import MetricsRow, last_row
from tests.integration.processes import Programs, wait_for

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None, reason="network namespaces need root and the program `ip`"
)


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    try:
        made = Hosts(3)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"network namespaces cannot be made here: {error.stderr.decode()}")
    try:
        yield made
    finally:
        made.remove()


def test_workers_on_other_hosts_need_only_the_command_that_the_server_prints(programs: Programs, hosts: Hosts) -> None:
    head, *others = hosts.hosts
    flags = ["--preset", "cartpole", "--max-steps", "100000000", "--until-return", "1000", "--lease-seconds", "2"]
    server = programs.start("ps-server", *flags, "--run-dir", str(programs.folder / "run"), prefix=head.prefix)
    wait_for(lambda: "start workers with" in server.output, program=server)
    # The log goes to another stream, whose first lines may come before it.
    (line,) = [line for line in server.output.splitlines() if "start workers with: " in line]
    command = line.rpartition("start workers with: ")[2].split()
    assert command[:2] == ["rl-worker", "--server"]
    assert "all interfaces" in line
    # Without a default route the host cannot know which of its addresses others reach; its bridge address is used here.
    address = f"{head.address}:{command[2].rpartition(':')[2]}"
    workers = [programs.start("rl-worker", "--server", address, prefix=host.prefix) for host in others]

    def workers_alive() -> int:
        row = last_row(programs.folder / "run" / METRICS, MetricsRow)
        return row.workers_alive if row else -1

    wait_for(lambda: workers_alive() == 2, program=server)
    hosts.cut(others[0])
    wait_for(lambda: workers_alive() == 1, program=server)
    hosts.heal(others[0])
    wait_for(lambda: workers_alive() == 2, program=server)
    assert [worker.process.poll() for worker in workers] == [None, None]
    status = programs.start("ps-ctl", "status", "--server", address, "--json", prefix=others[1].prefix)
    assert status.wait() == 0, status.output
