"""In rounds, with a seed: a server that was killed and resumed ends with the very bits of one that was not."""

import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from ps_common.run_folder.checkpoint_file import read_checkpoint
from tests.integration.processes import Programs, status_of, wait_for

PRESET = "cartpole-n-step-q"  # with target weights, and slots of Adam
STEPS = 2000
ROUNDS = ["--consistency", "sync", "--quorum", "2", "--seed", "7", "--max-steps", str(STEPS), "--until-return", "1000"]


def end_of(
    programs: Programs, run: Path, preset: str, *, interrupted: bool
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The last checkpoint of a run of two workers, who live through what happens to their server."""
    often = ["--checkpoint-seconds", "1"]
    server, endpoint = programs.start_server("--preset", preset, *ROUNDS, *often, run_dir=run)
    workers = [programs.start("rl-worker", "--server", endpoint, "--name", f"w{number}") for number in range(2)]
    again = ["--resume", str(run), *often]
    for number, share in ((signal.SIGKILL, 0.3), (signal.SIGTERM, 0.5), (signal.SIGKILL, 0.7)) if interrupted else ():
        goal = share * STEPS
        wait_for(lambda goal=goal: status_of(endpoint).global_steps >= goal, program=server)  # type: ignore[misc]
        server.signal(number)
        server.process.wait(30)
        server, _ = programs.start_server(*again, port=int(endpoint.rpartition(":")[2]), run_dir=run)
    assert [program.wait(120) for program in (server, *workers)] == [0, 0, 0], server.output
    return read_checkpoint(max((run / "checkpoints").glob("checkpoint-*.safetensors")))


@pytest.mark.timeout(400)  # nine programs that import torch
def test_a_resumed_server_ends_with_the_bits_of_one_that_was_never_killed(programs: Programs, tmp_path: Path) -> None:
    calm, calm_record = end_of(programs, tmp_path / "calm", PRESET, interrupted=False)
    vectors, record = end_of(programs, tmp_path / "interrupted", PRESET, interrupted=True)
    assert record.lineage.epoch >= 3 * 2**24, "the server was resumed twice"
    assert vectors.keys() == calm.keys()
    assert len(vectors) > 2, "there are slots of the optimizer and target weights beside the weights"
    assert [name for name in calm if not torch.equal(vectors[name], calm[name])] == []
    assert (record.version, record.target_version) == (calm_record.version, calm_record.target_version)
    assert record.progress.global_steps == calm_record.progress.global_steps
    assert record.progress.updates == calm_record.progress.updates
