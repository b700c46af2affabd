"""
Programs of the release before this one against those of this release, each way: docs/COMPATIBILITY.md has the table.

Each cell works, and none has a traceback.
"""

import re
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.integration.processes import Program, Programs, programs_in, status_of, wait_for
from tests.rows import row
from tests.upgrade.sides import NEW, Side, earlier_release

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]
SECONDS = 300  # for one program under any load of the machine
ENDLESS = ("--until-return", "None", "--max-steps", "1000000000")  # a quick machine learns before the test is over
RUN_FLAGS = ("--preset", "cartpole-a3c", "--checkpoint-seconds", "5", *ENDLESS)
SHORT = ("--preset", "cartpole-a3c", "--workers", "1", "--max-steps", "5000", "--no-web", "--run-dir")


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Side:
    return earlier_release(tmp_path_factory.mktemp("old"))


def soundly_ended(program: Program) -> int:
    """The exit status of a program that has left no traceback."""
    status = program.wait(SECONDS)
    assert "Traceback" not in program.output, program.output
    return status


def metrics_of(page: Program) -> str:
    """What Prometheus reads of a page."""
    found = wait_for(lambda: re.search(r"page: (http://[^/]+)/", page.output), within_seconds=SECONDS, program=page)
    return str(urlopen(f"{found[1]}/metrics", timeout=60).read().decode())


def a_server_serves_all(programs: Programs, server: Side, peers: Side) -> None:
    """Worker, ps-ctl, rl-eval, ps-web and standby of `peers`."""
    running, at = server.start_server(programs, programs.folder / "run", *RUN_FLAGS)
    server.start(programs, "rl-worker", "--server", at, "--name", "own")
    worker = peers.start(programs, "rl-worker", "--server", at, "--name", "other")

    def pushes() -> bool:
        return any(one.worker_id == "other" and one.pushes > 3 for one in status_of(at).workers)

    wait_for(pushes, within_seconds=SECONDS, program=worker)
    for name, flags, says in [
        ("ps-ctl", ("status", "--server", at), "cartpole-a3c on CartPole-v1 is serving"),
        ("ps-ctl", ("checkpoint", "--server", at), "saved as"),
        ("ps-ctl", ("set", "learning_rate=1e-3", "--server", at), "schedule.learning_rate"),
        ("rl-eval", ("--server", at, "--episodes", "1"), "CartPole-v1: mean"),
    ]:
        with row(name, flags):
            program = peers.start(programs, name, *flags)
            assert soundly_ended(program) == 0, program.output
            assert says in program.output
    page = peers.start(programs, "ps-web", "--server", at, "--port", "0")
    wait_for(lambda: "ps_rl_environment_steps" in metrics_of(page), within_seconds=SECONDS, program=page)
    folder = str(programs.folder / "standby")
    flags = ("--host", "127.0.0.1", "--port", "0", "--standby-of", at, "--run-dir", folder)
    standby = peers.start(programs, "ps-server", *flags)
    if peers is NEW:
        wait_for(lambda: "follows as the standby" in running.output, within_seconds=SECONDS, program=standby)
    else:  # the format of the record has changed
        wait_for(lambda: "of a later version of ps-rl" in standby.output, within_seconds=SECONDS)
    for program in programs.started:
        assert "Traceback" not in program.output, program.output


def test_a_new_server_serves_old_programs(old: Side, tmp_path: Path) -> None:
    with programs_in(tmp_path) as programs:
        a_server_serves_all(programs, NEW, old)


def test_an_old_server_serves_new_programs(old: Side, tmp_path: Path) -> None:
    with programs_in(tmp_path) as programs:
        a_server_serves_all(programs, old, NEW)


def written_by(programs: Programs, side: Side) -> tuple[Path, Path, Path]:
    """A run folder, a policy and a receipt."""
    places = run, policy, receipt = tuple(programs.folder / name for name in ("run", "policy", "receipt.json"))
    assert soundly_ended(side.start(programs, "rl-cluster", *SHORT, str(run))) == 0
    flags = ("--checkpoint", str(run), "--episodes", "2", "--export", str(policy), "--receipt", str(receipt))
    assert soundly_ended(side.start(programs, "rl-eval", *flags)) == 0
    return places


def reads(programs: Programs, reader: Side, writer: Side) -> None:
    """What one side wrote is scored, verified, drawn and resumed by the other, or named as of a later version."""
    run, policy, receipt = written_by(programs, writer)
    has_format = reader is NEW
    for name, flags, says in [
        ("rl-eval", ("--checkpoint", str(policy), "--episodes", "1"), "CartPole-v1: mean"),
        ("rl-eval", ("--verify", str(receipt)), "verified"),
        ("ps-ctl", ("plot", str(run)), "curve.png"),
    ]:
        with row(name, flags):
            program = reader.start(programs, name, *flags)
            assert (soundly_ended(program), says in program.output) == (0, True), program.output
    scored = reader.start(programs, "rl-eval", "--checkpoint", str(run), "--episodes", "1")
    assert (soundly_ended(scored) == 0) == has_format
    assert ("CartPole-v1: mean" if has_format else "of a later version of ps-rl") in scored.output
    if not has_format:
        return
    resumed = ("--host", "127.0.0.1", "--port", "0", "--resume", str(run), "--max-steps", "100000")
    server = reader.start(programs, "ps-server", *resumed)
    wait_for(lambda: "listens on" in server.output, within_seconds=SECONDS, program=server)


def test_new_programs_read_old_files(old: Side, tmp_path: Path) -> None:
    with programs_in(tmp_path) as programs:
        reads(programs, NEW, old)


def test_old_programs_read_new_files(old: Side, tmp_path: Path) -> None:
    with programs_in(tmp_path) as programs:
        reads(programs, old, NEW)
