"""
docker/role.sh with the real programs: the pair that Compose, a swarm and Kubernetes start, each server with its own
volume. Whichever dies is started again by its one command, and follows the other.
"""

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.integration.processes import Program, Programs, free_ports, status_of, wait_for

pytestmark = pytest.mark.timeout(400)

SCRIPT = Path(__file__).parents[2] / "docker" / "role.sh"
ENDLESS = "--max-steps 1000000000 --until-return 1000000 --checkpoint-seconds 1"


@dataclass
class Containers:
    """The services `server` and `standby`, by number 0 and 1."""

    programs: Programs
    ports: list[int] = field(default_factory=lambda: free_ports(2))

    def address(self, number: int) -> str:
        return f"localhost:{self.ports[number]}"

    def start(self, number: int) -> Program:
        """The one command of a service, for the first time or after its end."""
        begins = {"BEGINS": "yes", "FLAGS": ENDLESS} if number == 0 else {}
        variables = {"PRESET": "cartpole-a3c", "PEER": self.address(1 - number), **begins}
        return self._role(f"server-{number}", "server", "--port", str(self.ports[number]), **variables)

    def start_worker(self) -> Program:
        return self._role("worker", "worker", SERVERS=f"{self.address(0)},{self.address(1)}")

    def phase(self, number: int) -> str:
        return status_of(self.address(number)).phase

    def _role(self, container: str, *arguments: str, **variables: str) -> Program:
        folder = self.programs.folder / container
        (folder / "runs").mkdir(parents=True, exist_ok=True)
        script = folder / "role.sh"
        script.write_text(SCRIPT.read_text().replace("/runs/", f"{folder}/runs/"))
        script.chmod(0o755)
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return self.programs.start(str(script), *arguments, folder=folder, variables=variables | {"PATH": path})


@pytest.mark.nightly
def test_whichever_server_dies_follows_the_other_when_its_command_starts_it_again(programs: Programs) -> None:
    containers = Containers(programs)
    servers = [containers.start(0), containers.start(1)]
    worker = containers.start_worker()
    wait_for(lambda: "follows as the standby" in servers[0].output, program=worker)
    run_id = status_of(containers.address(0)).run_id
    for died in (0, 1):
        other = 1 - died
        before = status_of(containers.address(died)).global_steps
        servers[died].kill()
        wait_for(lambda other=other: containers.phase(other) == "serving", program=servers[other])
        servers[died] = containers.start(died)
        wait_for(lambda other=other: "follows as the standby" in servers[other].output, program=servers[died])
        wait_for(
            lambda other=other, before=before: status_of(containers.address(other)).global_steps > before,
            program=worker,
        )
        status = status_of(containers.address(other))
        assert (status.run_id, containers.phase(died)) == (run_id, "standby")
