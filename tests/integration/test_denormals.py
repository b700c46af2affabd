"""Real programs: neither the server nor a worker computes with denormal numbers."""

from pathlib import Path

import torch

from ps_common.run_folder.checkpoint_file import read_checkpoint
from ps_rl import ParameterServerClient
from tests.integration.processes import Programs, wait_for

HOOK = """
import torch

class PrintsADenormal:
    def on_episode(self, game):
        print("bits", (torch.full((1,), 1e-42) * 1).view(torch.int32).item(), flush=True)
"""


def test_the_means_of_a_server_become_zero_where_there_is_no_gradient(programs: Programs, tmp_path: Path) -> None:
    server, endpoint = programs.start_server()
    with ParameterServerClient(endpoint, optimizer="adam", learning_rate=1e-3) as client:
        client.seed({"weight": torch.zeros(2)})
        client.push({"weight": torch.tensor([1.0, 1.0])})
        for _ in range(1100):
            client.push({"weight": torch.tensor([0.0, 1.0])})
    server.signal(15)
    server.wait()
    newest = max((tmp_path / "run" / "checkpoints").glob("checkpoint-*.safetensors"))
    unused, used = read_checkpoint(newest)[0]["optimizer.mean"]
    assert unused.view(torch.int32) == 0
    assert used > 0.9


def test_a_worker_flushes_them(programs: Programs, tmp_path: Path) -> None:
    (tmp_path / "denormal_hook.py").write_text(HOOK)
    _, endpoint = programs.start_server("--preset", "cartpole-a3c", "--max-steps", "100000")
    flags = ("--server", endpoint, "--hook", "denormal_hook:PrintsADenormal")
    worker = programs.start("rl-worker", *flags, folder=tmp_path)
    wait_for(lambda: "bits" in worker.output, program=worker)
    assert "bits 0\n" in worker.output
