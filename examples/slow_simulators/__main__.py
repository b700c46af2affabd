"""Slow simulators on two hosts learn one policy; one is killed, one is added: `python -m examples.slow_simulators`."""

import argparse
import atexit
import json
import re
import subprocess
import sys
import time
from pathlib import Path

from examples.slow_simulators.hosts import Host, two_hosts
from ps_rl import MetricsRow, Run, evaluate, make_env

HERE = "examples.slow_simulators"
TASK = ["--preset", "pendulum-sac", "--environment", f"{HERE}:Slow", "--until-return", "None", "--max-steps", "500000"]


class Cluster:
    """The processes of a run, by name, with a log each. The server is on the first host."""

    def __init__(self, hosts: list[Host], folder: Path) -> None:
        self.hosts, self.folder = hosts, folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        where = ["--host", hosts[0].address, "--port", "0", "--run-dir", str(folder / "run")]
        self.start("server", self.command(hosts[0], "ps-server", *TASK, *where))
        while not (folder / "run" / "endpoint").exists():
            time.sleep(0.1)
        self.run = Run.open(folder / "run")

    def command(self, host: Host, program: str, *flags: str) -> list[str]:
        return [*host.prefix, str(Path(sys.executable).with_name(program)), *flags]

    def start(self, name: str, command: list[str]) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(command, stdout=log, stderr=log)
        atexit.register(self.processes[name].kill)

    def start_simulator(self, number: int) -> None:
        """A worker with one simulator. Its host keeps its replay memory for the next one of this number."""
        host, name = self.hosts[number % 2], f"simulator-{number}"
        flags = ["--server", self.run.endpoint, "--name", name, "--import", HERE]
        flags += ["--replay-folder", str(self.folder / f"replay-{host.address}")]
        self.start(name, self.command(host, "rl-worker", *flags))

    def steps(self) -> dict[str, int]:
        """Steps in acknowledged pushes of each worker since it was started last; and of all, as "run"."""
        asked = self.command(self.hosts[0], "ps-ctl", "status", "--server", self.run.endpoint, "--json")
        status = json.loads(subprocess.run(asked, check=True, stdout=subprocess.PIPE).stdout)
        return {one["worker_id"]: one["steps"] for one in status["workers"]} | {"run": status["global_steps"]}

    def measure(self, what: str, seconds: float, *, workers: int) -> None:
        """Print how quick and good so many workers are, once they live and learn (from step 500 on), for a while."""
        rows: list[MetricsRow] = []
        while not rows or rows[-1].time < rows[0].time + seconds:
            time.sleep(0.1)
            row = self.run.status
            if row and (rows or (row.workers_alive == workers and row.global_steps > 500)):
                rows.append(row)
        speed = (rows[-1].global_steps - rows[0].global_steps) / (rows[-1].time - rows[0].time)
        score = f"mean return {rows[-1].mean_return_100:.0f}" if rows[-1].episodes else "no game is over yet"
        print(f"{what:<23} {workers} workers, {speed:4.0f} steps/s, {score}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("runs/slow-simulators"), help="a new one")
    parser.add_argument("--simulators", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=15, help="of each of four parts")
    given = parser.parse_args()
    given.folder.mkdir(parents=True)
    with two_hosts() as hosts:
        cluster, count = Cluster(hosts, given.folder), given.simulators
        for number in range(count):
            cluster.start_simulator(number)
        cluster.measure("at first", given.seconds, workers=count)
        cluster.processes["simulator-1"].kill()
        cluster.measure("simulator-1 was killed", given.seconds, workers=count - 1)
        killed = cluster.steps()["simulator-1"]
        cluster.start_simulator(count)
        cluster.measure(f"simulator-{count} was added", given.seconds, workers=count)
        cluster.start_simulator(1)
        cluster.measure("simulator-1 is back", given.seconds, workers=count + 1)
        while not (memory := re.search(r"continues with (\d+) rows", (given.folder / "simulator-1.log").read_text())):
            time.sleep(0.1)
        print(f"simulator-1 was killed after {killed} acknowledged steps, and came back with {memory[1]} in its memory")
        total = (steps := cluster.steps()).pop("run")
        print(f"acknowledged steps: {killed} before the kill, {sum(steps.values())} of living workers; run: {total}")
        cluster.processes["server"].terminate()
        cluster.processes["server"].wait()
    policy = cluster.run.policy("last", imports=[HERE])
    quick = make_env(policy, count=10, imports=[HERE], environment_kwargs={"step_seconds": 0.0})
    print(f"20 games with the last weights: mean return {evaluate(policy, quick, episodes=20).mean:.0f}")


if __name__ == "__main__":
    main()
