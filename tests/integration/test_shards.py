"""Real shards: one is killed and resumed alone, and the run goes on with another number of them."""

import pytest
import torch

from ps_common.run_folder.places import joined, newest_set, read_newest
from ps_ctl.cli import control
from tests.integration.integer_worker import told
from tests.integration.processes import Program, Programs, status_of, wait_for, weights_of
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
    control(["reshard", str(shards.folder), "--shards", "1"])
    _, alone = programs.start_server("--resume", str(shards.folder))
    assert torch.equal(weights_of(alone, PARAMETERS), -expected)
    wait_for(lambda: status_of(alone).global_steps == UPDATES)
    assert status_of(alone).parameters == PARAMETERS


@pytest.mark.nightly
@pytest.mark.timeout(400)
def test_a_live_run_is_adjusted_at_any_shard_then_joined_and_resumed(
    programs: Programs, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is adjusted, and the T at which, is that of shard 1 everywhere; another flag of shard 2 has no effect."""
    shards = Shards(programs, 2, "--preset", "cartpole-a3c", "--anneal-steps", "1000000", others=["--max-steps", "7"])
    first, second = shards.addresses
    workers = [programs.start("rl-worker", "--server", first, "--name", "w0")]
    wait_for(lambda: status_of(first).global_steps > 0, within_seconds=120, program=workers[0])
    assert "--max-steps 7 contradicts this run" in shards.servers[1].output
    control(["set", "learning_rate=1e-4", "--server", second])
    assert "schedule.learning_rate: " in capsys.readouterr().out
    wait_for(lambda: status_of(second).settings_version == 1)
    wait_for(lambda: status_of(second).adjustments == status_of(first).adjustments)
    workers.append(programs.start("rl-worker", "--server", first, "--name", "w1"))
    wait_for(lambda: status_of(second).workers_alive == 2, within_seconds=120, program=workers[1])
    shards.stop()
    shards.resume(1)
    shards.resume(2)
    workers.append(programs.start("rl-worker", "--server", second, "--name", "w2"))
    wait_for(lambda: status_of(second).workers_alive == 3, within_seconds=120, program=workers[2])
    wait_for(lambda: {status_of(address).settings_version for address in shards.addresses} == {1})
    wait_for(lambda: status_of(second).adjustments == status_of(first).adjustments)
    control(["stop", "--server", second])
    for program in (*shards.servers, *workers):
        assert program.wait() == 0, program.output
    folders = newest_set(shards.folder)
    settings = [record.run for _, record in read_newest(folders, lambda error: pytest.fail(str(error)))]
    assert settings[0] == settings[1]
