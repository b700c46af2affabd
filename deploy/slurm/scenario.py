"""The sbatch script on three nodes: scaled, killed, requeued, cut off, out of time, and every push counted."""

import contextlib
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.trials.hosts import inside
from deploy.slurm.cluster import Cluster, cluster_in
from deploy.steps import DEADLINE_SECONDS, FIRST_PUSH_SECONDS, CountedRun, Run, kill_and_wait, step
from tests.integration.processes import wait_for

ROOT = Path(__file__).parents[2]
SCRIPT = "deploy/slurm/ps-rl.sbatch"
# No target and a long budget: the scenario ends the run.
FLAGS = ("--preset", "cartpole-a3c", "--checkpoint-seconds", "2", "--until-return", "None", "--max-steps", "1000000000")


class Jobs:
    """The jobs of one run."""

    def __init__(self, cluster: Cluster, run: Run) -> None:
        self._cluster = cluster
        self._run = run

    def submit(self, array: str, *flags: str, options: tuple[str, ...] = ()) -> str:
        """The id of a new job array."""
        log = f"--output={self._cluster.folder}/job-%A_%a.log"
        job = (SCRIPT, str(self._run.folder), *flags)
        submitted = self._cluster.command(
            "sbatch", "--parsable", f"--chdir={ROOT}", f"--array={array}", log, *options, *job
        )
        return submitted.partition(";")[0]

    def nodes(self) -> dict[str, str]:
        """The node of each running task, by JOB_TASK."""
        lines = self._cluster.command("squeue", "-h", "-r", "-t", "RUNNING", "-o", "%i %N").splitlines()
        return dict(line.split() for line in lines)

    def wait_until_elsewhere(self, task: str, node: str) -> None:
        """Wait until the task runs, and not on this node."""
        wait_for(lambda: self.nodes().get(task, node) != node, within_seconds=DEADLINE_SECONDS)

    def wait_until_over(self) -> None:
        wait_for(lambda: not self._cluster.command("squeue", "-h"), within_seconds=DEADLINE_SECONDS)


def cartpole(cluster: Cluster, run: Run) -> None:
    """A real run, with keys: scaled, killed, out of time, ended."""
    jobs = Jobs(cluster, run)
    with step("first push after the submit of a server and two workers"):
        first = jobs.submit("0-2", *FLAGS)
        run.wait_for_push(within_seconds=FIRST_PUSH_SECONDS)
    with step("three more workers: five push"):
        second = jobs.submit("3-5")
        run.wait_for_workers(5)
    with step("two workers less: they leave in order, three push"):
        cluster.command("scancel", f"{second}_4", f"{second}_5")
        for task in ("4", "5"):
            wait_for_event(run, f"slurm-{second}_{task} left")
        run.wait_for_workers(3)
    with step("worker killed, and started again in its task"):
        kill_and_wait("rl-worker", name := f"slurm-{first}_1")
        run.wait_until_back(name, was=run.wait_for_status())
    with step("server killed, and started again in its task: three push"):
        kill_and_wait("ps-server", str(run.folder))
        run.wait_for_workers(3)
    with step("a worker reaches its time limit: it leaves in order, is requeued, and pushes again"):
        third = jobs.submit("6", options=("--time=1", "--signal=B:USR1@20"))
        run.wait_for_workers(4)
        wait_for_event(run, f"slurm-{third}_6 left")
        run.wait_until_back(f"slurm-{third}_6", was=run.wait_for_status())
    with step("a task of two workers: both push"):
        fourth = jobs.submit("7", "--", "--workers", "2", options=("--cpus-per-task=2",))
        for number in range(2):
            run.wait_until_back(f"slurm-{fourth}_7-{number}", was=run.wait_for_status())
    with step("the run is stopped: its jobs end"):
        keys = run.folder / "keys"
        locked = ("--curve-server-key", str(keys / "server.key"), "--curve-secret", str(keys / "admin.key_secret"))
        cluster.command(str(ROOT / ".venv/bin/ps-ctl"), "stop", "--server", run.endpoint(), *locked)
        jobs.wait_until_over()


def counted(cluster: Cluster, run: CountedRun) -> None:
    """A run whose pushes are counted: its server moves, nodes lose their power and their network."""
    jobs = Jobs(cluster, run)
    with step("counted: a server and two workers, each on a node of its own"):
        programs = f"--export=ALL,KEYS=,BIN={run.programs}"
        first = jobs.submit("0-2", "--checkpoint-seconds", "2", options=(programs, "--cpus-per-task=2"))
        server = f"{first}_0"
        run.wait_for_workers(2)
        assert len(set(jobs.nodes().values())) == 3, jobs.nodes()
    with step("counted: server killed"):
        kill_and_wait("ps-server", str(run.folder))
        run.wait_for_workers(2)
    with step("counted: server requeued by scontrol"):
        cluster.command("scontrol", "requeue", server)
        wait_for(lambda: server not in jobs.nodes())
        run.wait_for_workers(2)
    with step("counted: the server's node loses its power, and the server goes on elsewhere"):
        before, node = run.endpoint(), jobs.nodes()[server]
        cluster.power_off(node)
        jobs.wait_until_elsewhere(server, node)
        run.wait_for_workers(2)
        assert run.endpoint() != before
        cluster.start_node(node)
        wait_for(lambda: cluster.states()[node] == "idle", within_seconds=DEADLINE_SECONDS)
    where = jobs.nodes()
    worker, node = next((task, node) for task, node in where.items() if node != where[server])
    number = worker.rpartition("_")[2]
    with step("counted: network of a worker's node cut until its lease is over"):
        cluster.cut(node)
        run.wait_until_gone(f"worker-{number}")
        was = run.wait_for_status()
        cluster.heal(node)
        run.wait_until_back(f"worker-{number}", was=was)
        wait_for(lambda: "down" not in cluster.states()[node], within_seconds=DEADLINE_SECONDS)
    with step("counted: a worker's node loses its power, and the worker goes on elsewhere"):
        cluster.power_off(node)
        jobs.wait_until_elsewhere(worker, node)
        run.wait_for_workers(2)
    with step("counted: every acknowledged push is in the weights, once"):
        print(f"        {run.check()}")
        cluster.command("scancel", first)
        jobs.wait_until_over()


def wait_for_event(run: Run, text: str) -> None:
    """Wait until a line of the run's events has this text."""
    wait_for(lambda: text in (run.folder / "events.jsonl").read_text(), within_seconds=DEADLINE_SECONDS)


def main() -> int:
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ps-rl-slurm.") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        try:
            with step("a controller and three nodes"):
                cluster = stack.enter_context(cluster_in(folder))
            stack.enter_context(inside(cluster.login))
            cartpole(cluster, Run(folder / "cartpole"))
            counted(cluster, CountedRun(folder / "counted"))
        except BaseException:
            for log in sorted(folder.glob("job-*.log")):
                print(f"--- {log.name}", *log.read_text().splitlines()[-25:], sep="\n")
            raise
    print(f"Slurm: {(time.monotonic() - started) / 60:.1f} min")
    return 0


if __name__ == "__main__":
    sys.exit(main())
