"""
Real servers and the folders of their runs: the first command again beside a successor, a copy of a live run, its fork,
and a run that ended in order.
"""

from pathlib import Path

import pytest

from tests.integration.processes import Program, Programs, free_ports, status_of, wait_for

pytestmark = pytest.mark.timeout(300)

FOREVER = ["--preset", "cartpole-a3c", "--until-return", "None"]


def test_the_first_command_again_in_its_folder_makes_a_former_primary_the_standby(
    programs: Programs, tmp_path: Path
) -> None:
    """As tutorial 5 says. Both of a pair are killed in turn, and each is started again by its own command."""
    first, second = (f"127.0.0.1:{port}" for port in free_ports(2))

    def start(address: str, name: str, *flags: str) -> Program:
        port = address.rpartition(":")[2]
        return programs.start(
            "ps-server", "--host", "127.0.0.1", "--port", port, "--run-dir", str(tmp_path / name), *flags
        )

    a = start(first, "a", *FOREVER, "--checkpoint-seconds", "1")
    b = start(second, "b", "--standby-of", first)
    worker = programs.start("rl-worker", "--server", f"{first},{second}")
    wait_for(lambda: "follows as the standby" in a.output, program=worker)
    wait_for(lambda: status_of(first).checkpoint_version > 1, program=a)
    run_id = status_of(first).run_id
    a.kill()
    wait_for(lambda: "promoted at" in b.output or "promoted" in b.output, program=b)
    a = start(first, "a", *FOREVER, "--checkpoint-seconds", "1")
    wait_for(lambda: "follows as the standby" in b.output, program=a)
    assert f"{second} has run {run_id}: following, with the older state in" in a.output
    assert (status_of(first).phase, status_of(second).run_id) == ("standby", run_id)
    steps = status_of(second).global_steps
    b.kill()
    wait_for(lambda: status_of(first).phase == "serving", program=a)
    wait_for(lambda: status_of(first).global_steps > steps, program=worker)
    assert status_of(first).run_id == run_id
