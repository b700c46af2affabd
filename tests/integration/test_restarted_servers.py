"""
A primary that is started again as it was, by its same command, in a new folder: the run that its standby has taken over
goes on alone, whoever comes first.
"""

from dataclasses import dataclass

import pytest

from tests.integration.processes import Program, Programs, free_ports, status_of, wait_for

pytestmark = pytest.mark.timeout(300)  # five programs that import torch, one after another

TARGETLESS = ("--preset", "cartpole-a3c", "--until-return", "None")


@dataclass
class Command:
    """The one command of each machine, in a working folder of its own."""

    programs: Programs
    ports: list[int]

    @property
    def addresses(self) -> list[str]:
        return [f"127.0.0.1:{port}" for port in self.ports]

    def start_primary(self) -> Program:
        return self._start("a", self.ports[0], *TARGETLESS)

    def start_standby(self) -> Program:
        return self._start("b", self.ports[1], "--standby-of", self.addresses[0])

    def start_worker(self, name: str) -> Program:
        return self.programs.start("rl-worker", "--server", ",".join(self.addresses), "--name", name)

    def _start(self, machine: str, port: int, *flags: str) -> Program:
        folder = self.programs.folder / machine
        folder.mkdir(exist_ok=True)
        where = ("--host", "127.0.0.1", "--port", str(port))
        program = self.programs.start("ps-server", *where, *flags, folder=folder)
        wait_for(lambda: "listens on" in program.output, program=program)
        return program

    def has(self, server: int, worker: str) -> bool:
        """Whether a worker is a member there, and pushes."""
        return any(one.worker_id == worker and one.pushes for one in status_of(self.addresses[server]).workers)


@dataclass
class Following(Command):
    """A pair in sync, with one worker that trains."""

    primary: Program
    standby: Program
    worker: Program

    @classmethod
    def begun(cls, programs: Programs) -> "Following":
        command = Command(programs, free_ports(2))
        primary, standby = command.start_primary(), command.start_standby()
        worker = command.start_worker("early")
        wait_for(lambda: "follows as the standby" in primary.output, program=worker)
        return cls(programs, command.ports, primary, standby, worker)

    def one_run_goes_on(self, run_id: str) -> None:
        """At B, with A as its standby and every worker; at A when B is killed in its turn; and B follows again."""
        wait_for(lambda: self.has(1, "late") and self.has(1, "early"), program=self.standby)
        wait_for(lambda: "follows as the standby" in self.standby.output, program=self.standby)
        there, here = status_of(self.addresses[1]), status_of(self.addresses[0])
        assert (there.run_id, there.phase, here.run_id, here.phase) == (run_id, "serving", run_id, "standby")
        before = there.global_steps
        self.standby.kill()
        wait_for(lambda: self.has(0, "late") and self.has(0, "early"), program=self.primary)
        after = status_of(self.addresses[0])
        assert (after.run_id, after.phase) == (run_id, "serving")
        assert after.global_steps >= before
        self.standby = self.start_standby()
        wait_for(lambda: self.primary.output.count("follows as the standby"), program=self.standby)


@pytest.fixture
def pair(programs: Programs) -> Following:
    return Following.begun(programs)


def test_a_primary_that_comes_back_as_it_was_follows_the_standby_that_took_over(pair: Following) -> None:
    run_id = status_of(pair.addresses[0]).run_id
    pair.primary.kill()
    wait_for(lambda: "promoted at" in pair.standby.output, program=pair.standby)
    pair.primary = pair.start_primary()
    pair.start_worker("late")
    pair.one_run_goes_on(run_id)
    assert f"{pair.addresses[1]} serves run {run_id} now" in pair.primary.output
