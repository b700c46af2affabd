"""Real shards: one is killed and resumed alone, and the run goes on with another number of them."""

import pytest
import torch

from common.run_folder.shard_folders import joined, newest_set, read_newest
from tests.integration.integer_worker import told
from tests.integration.processes import Program, Programs, free_ports, status_of, wait_for, weights_of
from tests.integration.shard_servers import Shards

PARAMETERS = 5000
UPDATES = 250


def count_with(programs: Programs, server: str, name: str, updates: int = UPDATES) -> Program:
    """A worker that pushes integers; it stays when it has pushed all of them."""
    numbers = [str(updates), str(len(name)), str(PARAMETERS)]
    return programs.start("tests.integration.integer_worker", server, name, *numbers)


@pytest.mark.timeout(400)
def test_a_killed_shard_comes_back_alone_and_one_server_goes_on_with_the_run_of_two(programs: Programs) -> None:
    """The sums are exact each time. The worker is given the address of shard 2, and learns the other."""
    shards = Shards(programs, 2)
    worker = count_with(programs, shards.addresses[1], "w")
    wait_for(lambda: status_of(shards.addresses[0]).version > UPDATES / 4)
    shards.servers[0].kill()
    shards.resume(1)
    expected = torch.tensor(wait_for(lambda: told(worker.output), within_seconds=120, program=worker)).float()
    wait_for(lambda: all(status_of(address).version == 1 + UPDATES for address in shards.addresses))
    assert torch.equal(shards.weights(), -expected)
    shards.stop()
    worker.kill()
    folders = newest_set(shards.folder)
    assert [folder.name for folder in folders] == ["shard-1-of-2", "shard-2-of-2"]
    _, vectors = joined(read_newest(folders, lambda error: pytest.fail(str(error))))
    assert torch.equal(vectors["weights"], -expected)
    _, alone = programs.start_server("--resume", str(shards.folder))
    assert torch.equal(weights_of(alone, PARAMETERS), -expected)
    assert status_of(alone).global_steps == UPDATES
    assert status_of(alone).parameters == PARAMETERS


def test_a_server_of_other_settings_among_the_shards_is_named(programs: Programs) -> None:
    ports = free_ports(2)
    addresses = [f"127.0.0.1:{port}" for port in ports]
    for number, rate in ((1, "0.1"), (2, "0.2")):
        flags = ["--preset", "cartpole", "--value-weight", rate]
        where = ["--host", "127.0.0.1", "--port", str(ports[number - 1]), "--run-dir", str(programs.folder / "run")]
        programs.start("ps-server", *where, "--shard", f"{number}/2", "--shards", *addresses, *flags)
    worker = programs.start("rl-worker", "--server", addresses[0], "--name", "w")
    assert worker.wait() != 0
    said = (
        f"the server at {addresses[1]}, which --shards names as shard 2/2, has --value-weight 0.2, and shard 1 has 0.1"
    )
    assert said in worker.output
