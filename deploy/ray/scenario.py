"""A run on a Ray cluster of up to three nodes: scaled, killed, its nodes gone and back, and every push counted."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.trials.hosts import inside
from deploy.ray.cluster import ENVIRONMENT, Cluster, cluster_in
from deploy.steps import DEADLINE_SECONDS, FIRST_PUSH_SECONDS, CountedRun, Run, kill_and_wait, pids_of, step
from tests.integration.processes import Programs, programs_in, wait_for

# No target and a long budget: the scenario ends the run.
FLAGS = ("--preset", "cartpole-a3c", "--checkpoint-seconds", "2", "--until-return", "None", "--max-steps", "1000000000")


def on_ray(cluster: Cluster, run: Run, *flags: str) -> None:
    """Call the program until it has done its work."""
    command = [sys.executable, "-m", "rl_cluster.on_ray", "--address", cluster.address, "--run-dir", str(run.folder)]
    done = subprocess.run(
        [*cluster.head.prefix, *command, "--detach", *flags],
        env=os.environ | ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def kill_actor(name: str) -> None:
    """Kill an actor's process: Ray starts it again."""
    before = pids_of(f"ray::{name}")
    assert before, f"no process of {name}"
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: set(pids_of(f"ray::{name}")) - set(before), within_seconds=DEADLINE_SECONDS)


def cartpole(cluster: Cluster, run: Run) -> None:
    """A real run, with keys: scaled, killed, moved, ended."""
    with step("first push after the submit of a server and two workers"):
        on_ray(cluster, run, "--workers", "2", *FLAGS)
        run.wait_for_push(within_seconds=FIRST_PUSH_SECONDS)
    with step("two workers more: four push"):
        on_ray(cluster, run, "--workers", "4")
        run.wait_for_workers(4)
    with step("two workers less: they leave in order, two push"):
        on_ray(cluster, run, "--workers", "2")
        events = (run.folder / "events.jsonl").read_text()
        assert "ray-2 left" in events, events
        assert "ray-3 left" in events, events
        run.wait_for_workers(2)
    with step("worker killed, and started again by its actor"):
        kill_and_wait("rl_worker", "--name ray-1")
        run.wait_until_back("ray-1", was=run.wait_for_status())
    with step("worker's actor killed, and started again by Ray"):
        kill_actor("WorkerActor")
        run.wait_for_workers(2)
    with step("the server's node loses its power: server and workers go on elsewhere"):
        before = run.endpoint()
        cluster.power_off(node := cluster.name_of(before))
        wait_for(lambda: run.endpoint() != before, within_seconds=DEADLINE_SECONDS)
        run.wait_for_workers(2)
    with step("a node joins: workers that had no place push"):
        on_ray(cluster, run, "--workers", "3")
        cluster.add(node)
        run.wait_for_workers(3)
    with step("the run is ended: no program is left"):
        on_ray(cluster, run, "--stop")
        wait_for(lambda: not pids_of("rl_worker", "--name ray-"), within_seconds=DEADLINE_SECONDS)
        assert not pids_of("ps_server", str(run.folder))


def counted(cluster: Cluster, run: CountedRun, programs: Programs) -> None:
    """A server on Ray, and workers of another host that count: any worker may join a run on Ray."""
    with step("counted: a server on Ray, and two workers outside"):
        on_ray(cluster, run, "--workers", "0", "--no-keys", "--checkpoint-seconds", "2")
        for number in range(2):
            programs.start("benchmarks.trials.swarm", *run.counting_worker(number))
        run.wait_for_workers(2)
    with step("counted: server killed, and started again by its actor"):
        kill_and_wait("ps_server", str(run.folder))
        run.wait_for_workers(2)
    with step("counted: server's actor killed, and started again by Ray"):
        before = run.endpoint()
        kill_actor("ServerActor")
        wait_for(lambda: run.endpoint() not in ("", before), within_seconds=DEADLINE_SECONDS)
        run.wait_for_workers(2)
    with step("counted: network of the server's node cut for some seconds"):
        node = cluster.name_of(run.endpoint())
        cluster.cut(node)
        wait_for(lambda: run.status() is None)
        cluster.heal(node)
        run.wait_for_workers(2)
    with step("counted: the server's node loses its power, and the server goes on elsewhere"):
        before = run.endpoint()
        cluster.power_off(cluster.name_of(before))
        wait_for(lambda: run.endpoint() != before, within_seconds=DEADLINE_SECONDS)
        run.wait_for_workers(2)
    with step("counted: every acknowledged push is in the weights, once"):
        print(f"        {run.check()}")
        on_ray(cluster, run, "--stop")


def main() -> int:
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ps-rl-ray.") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        try:
            with step("a head and two nodes"):
                cluster = stack.enter_context(cluster_in(folder, most_nodes=2))
                cluster.add("n1")
                cluster.add("n2")
            stack.enter_context(inside(cluster.head))
            cartpole(cluster, Run(folder / "cartpole"))
            counted(cluster, CountedRun(folder / "counted"), stack.enter_context(programs_in(folder)))
        except BaseException:
            for log in sorted(folder.glob("*/**/*.log")):
                print(f"--- {log.relative_to(folder)}", *log.read_text().splitlines()[-25:], sep="\n")
            raise
    print(f"Ray: {(time.monotonic() - started) / 60:.1f} min")
    return 0


if __name__ == "__main__":
    sys.exit(main())
