"""Real programs that want the same run folder: one of them has it, the others say why not."""

from pathlib import Path

from tests.integration.processes import Programs, status_of, wait_for
from tests.integration.test_mistakes import says

FOREVER = ["--preset", "cartpole", "--max-steps", "100000000", "--until-return", "1000"]


def test_a_run_has_one_server_and_a_server_that_is_killed_leaves_it_to_the_next(
    programs: Programs, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    server, endpoint = programs.start_server(*FOREVER)
    programs.start("rl-worker", "--server", endpoint)
    wait_for(lambda: status_of(endpoint).checkpoint_version, program=server)
    holder = f"pid {server.process.pid} on host"
    for flags in (["--resume", str(run)], [*FOREVER, "--checkpoint-dir", str(run / "checkpoints")]):
        where = [] if "--resume" in flags else ["--run-dir", str(tmp_path / "other")]
        says(programs.start("ps-server", "--host", "127.0.0.1", "--port", "0", *flags, *where), holder, str(run))
    saved = status_of(endpoint).version
    server.kill()
    resumed, again = programs.start_server("--resume", str(run))
    assert 0 < status_of(again).version <= saved, resumed.output
