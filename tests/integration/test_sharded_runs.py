"""Runs in shards, from end to end: as one server's bit for bit, played by rl-eval, taken over, locked, in a store."""

import json
import time

import pytest
import torch

from ps_common.protocol import messages
from ps_common.run_folder.checkpoint_file import read_checkpoint
from ps_common.run_folder.places import joined, newest_set, read_newest
from ps_common.run_folder.trained import trained_in
from ps_common.sockets.request import ask_run
from ps_ctl.folder_commands import make_keys
from rl_eval.cli import evaluate
from rl_eval.trained import trained_at
from tests.integration.integer_worker import keys_of, told
from tests.integration.processes import Programs, free_ports, status_of, wait_for
from tests.integration.shard_servers import Shards
from tests.integration.test_object_store import s3
from tests.integration.test_shards import count_with

pytestmark = pytest.mark.timeout(400)  # programs that import torch
__all__ = ["s3"]  # a fixture

# Adam's slots and target weights; and a norm that most gradients exceed, so that clipping by ranges would differ.
RUN = ["--preset", "cartpole-n-step-q", "--gradient-clip", "0.05", "--target-interval", "500"]
RUN += ["--consistency", "sync", "--seed", "7", "--max-steps", "2000"]


def test_shards_in_rounds_equal_one_server_bit_for_bit_and_are_played(programs: Programs) -> None:
    """The workers are real: they clip by the norm of the whole gradient."""
    flags = [*RUN, "--quorum", "1"]
    alone, endpoint = programs.start_server(*flags, run_dir=programs.folder / "alone")
    shards = Shards(programs, 2, *flags, name="shards")
    servers = (endpoint, shards.addresses[1])
    workers = [programs.start("rl-worker", "--server", server, "--name", "w") for server in servers]
    for program in (alone, *shards.servers, *workers):
        assert program.wait(240) == 0, program.output
    whole, record = read_checkpoint(max((programs.folder / "alone" / "checkpoints").glob("checkpoint-*.safetensors")))
    parts = read_newest(newest_set(shards.folder), lambda error: pytest.fail(str(error)))
    _, vectors = joined(parts)
    assert len(whole) > 2, "there are slots of the optimizer and target weights beside the weights"
    assert vectors.keys() == whole.keys()
    assert [name for name in whole if not torch.equal(vectors[name], whole[name])] == []
    for _, its_record in parts:
        assert its_record.progress.global_steps == record.progress.global_steps
        assert its_record.version == record.version
    scores = programs.folder / "scores.json"
    evaluate(["--checkpoint", str(shards.folder), "--episodes", "2", "--json", str(scores)])
    assert "2 shards" in trained_in(shards.folder).origin
    assert len(json.loads(scores.read_text())["scores"]) == 2


def test_the_standby_of_a_locked_shard_takes_over_alone(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other shard goes on meanwhile; the sum of all pushes is exact at both. Nobody waits for the dead server."""
    number = 2  # of the shard that dies
    keys = programs.folder / "keys"
    make_keys(keys)
    lock = ["--curve-secret", str(keys / "server.key_secret"), "--authorized-keys", str(keys / "authorized")]
    monkeypatch.setenv("KEYS", str(keys))
    successor = f"127.0.0.1:{free_ports(1)[0]}"
    shards = Shards(programs, 2, *lock, standbys={number: successor})
    standby, _ = programs.start_server(
        "--standby-of",
        shards.addresses[number - 1],
        *lock,
        run_dir=programs.folder / "standby",
        port=int(successor[10:]),
    )
    mine, admin = keys_of(keys, "worker"), keys_of(keys, "admin")
    primary, other = shards.servers[number - 1], 2 - number  # the index of the other shard
    updates = 3000  # the worker comes last and has enough to do, so that it is not done when the server dies
    worker = count_with(programs, shards.addresses[other], "w", updates)
    wait_for(lambda: "follows as the standby" in primary.output, program=worker)
    primary.kill()
    expected = torch.tensor(wait_for(lambda: told(worker.output), within_seconds=120, program=worker)).float()
    assert "promoted at" in standby.output
    servers = [successor if at == number else address for at, address in enumerate(shards.addresses, 1)]
    wait_for(lambda: [status_of(server, mine).version for server in servers] == [1 + updates] * 2, program=standby)
    assert status_of(successor, mine).shard.number == number
    assert torch.equal(shards.weights(servers, mine), -expected)
    began, patience = time.monotonic(), 60.0
    for request in (
        messages.CheckpointRequest(request=1),
        messages.Adjust(request=1, settings={"checkpoint_seconds": 9}),
    ):
        ask_run(shards.addresses[other], request, timeout_seconds=patience, keys=admin)
    assert torch.equal(trained_at(shards.addresses[other], mine).weights, -expected)
    assert time.monotonic() - began < patience / 2
    wait_for(lambda: [status_of(server, mine).checkpoint_seconds for server in servers] == [9.0, 9.0])
    assert shards.servers[other].process.poll() is None
