"""A gang of two processes at a real server: one worker, whose processes are killed."""

import signal
from functools import partial
from pathlib import Path

import psutil

from ps_common.run_folder.endpoint_file import read_endpoint
from ps_common.run_folder.paths import ENDPOINT
from tests.integration.processes import Programs, children_with, status_of, wait_for

ENVIRONMENTS = 8  # of each process, in the preset


def is_gone(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_a_gang_is_one_worker_and_starts_anew_when_one_of_its_processes_is_killed(
    programs: Programs, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    flags = ["--preset", "cartpole", "--max-steps", "100000000", "--until-return", "1000", "--workers", "2", "--gang"]
    cluster = programs.start("rl-cluster", *flags, "--no-web", "--run-dir", str(run))
    wait_for(lambda: read_endpoint(run / ENDPOINT), program=cluster)
    endpoint = read_endpoint(run / ENDPOINT)
    assert endpoint is not None

    def are_both_learning(pushes_before: int = 0) -> bool:
        workers = [worker for worker in status_of(endpoint).workers if worker.alive]
        return [worker.pushes > pushes_before and "gang/1" in worker.meters for worker in workers] == [True]

    wait_for(are_both_learning, program=cluster)
    (worker,) = status_of(endpoint).workers
    assert worker.environments == 2 * ENVIRONMENTS

    members = partial(children_with, "rl_worker.gang_member", cluster.process.pid)
    (member,) = members()
    member.kill()
    said = "worker-0+1 ended, and its gang with it: killed by SIGKILL"
    wait_for(lambda: said in cluster.output, program=cluster)
    wait_for(lambda: len(members()) == 1 and members()[0].pid != member.pid, program=cluster)
    wait_for(are_both_learning, program=cluster)

    (speaker,), (member,) = children_with("rl_worker", cluster.process.pid), members()
    speaker.kill()
    wait_for(lambda: is_gone(member), program=cluster)
    wait_for(lambda: len(members()) == 1, program=cluster)
    wait_for(are_both_learning, program=cluster)

    too_large = programs.start("rl-worker", "--server", endpoint, "--gang", "128", "--envs", "33")
    assert too_large.wait() == 2
    assert "--gang 128: its processes would have 4224 environments" in too_large.output

    (member,) = members()
    cluster.signal(signal.SIGINT)
    assert cluster.wait(30) == 0, cluster.output
    assert "a server and a gang of 2 train CartPole-v1" in cluster.output
    assert is_gone(member)
