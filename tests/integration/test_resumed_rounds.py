"""In rounds, with a seed: a server that was killed and resumed ends with the very bits of one that was not."""

import signal
from pathlib import Path

import pytest
import torch
from torch import Tensor

from ps_common.run_folder.checkpoint_file import Record, read_checkpoint
from tests.integration.processes import Program, Programs, status_of, wait_for

ROUNDS = [
    "--preset",
    "cartpole-n-step-q",
    "--seed",
    "7",
    "--consistency",
    "sync",
    "--quorum",
    "2",
    "--until-return",
    "1000",
]
OFTEN = ["--checkpoint-seconds", "1"]


def last_checkpoint(run: Path) -> tuple[dict[str, Tensor], Record]:
    return read_checkpoint(max((run / "checkpoints").glob("checkpoint-*.safetensors")))


def start_workers(programs: Programs, endpoint: str) -> list[Program]:
    return [programs.start("rl-worker", "--server", endpoint, "--name", f"w{number}") for number in range(2)]


@pytest.mark.timeout(400)  # nine programs that import torch
def test_a_resumed_server_ends_with_the_bits_of_one_that_was_never_killed(programs: Programs, tmp_path: Path) -> None:
    run = tmp_path / "interrupted"
    server, endpoint = programs.start_server(*ROUNDS, "--max-steps", "1000000000", *OFTEN, run_dir=run)
    workers = start_workers(programs, endpoint)
    again = ["--resume", str(run), *OFTEN]
    for goal, number in ((600, signal.SIGKILL), (1000, signal.SIGTERM), (1400, signal.SIGKILL)):
        wait_for(lambda goal=goal: status_of(endpoint).global_steps >= goal, program=server)  # type: ignore[misc]
        server.signal(number)
        server.process.wait(30)
        # A budget from the start could be spent between the look at the steps and the kill.
        limit = last_checkpoint(run)[1].progress.global_steps + 600
        ends = ["--max-steps", str(limit)] if goal == 1400 else []
        server, _ = programs.start_server(*again, *ends, port=int(endpoint.rpartition(":")[2]), run_dir=run)
    assert [program.wait(120) for program in (server, *workers)] == [0, 0, 0], server.output
    vectors, record = last_checkpoint(run)

    server, endpoint = programs.start_server(*ROUNDS, "--max-steps", str(limit), run_dir=tmp_path / "calm")
    assert [program.wait(120) for program in (server, *start_workers(programs, endpoint))] == [0, 0, 0], server.output
    calm, calm_record = last_checkpoint(tmp_path / "calm")

    assert record.lineage.epoch >= 3 * 2**24, "the server was resumed three times"
    assert vectors.keys() == calm.keys()
    assert len(vectors) > 2, "there are slots of the optimizer and target weights beside the weights"
    assert [name for name in calm if not torch.equal(vectors[name], calm[name])] == []
    assert (record.version, record.target_version) == (calm_record.version, calm_record.target_version)
    assert record.progress.global_steps == calm_record.progress.global_steps
    assert record.progress.updates == calm_record.progress.updates
