"""The stack in use on a swarm of two nodes: scaled, killed, split by a cut cable. scenario.sh makes the nodes."""

import os
import subprocess
import tempfile
from pathlib import Path

from deploy.status_inside import StatusInside
from deploy.steps import FIRST_PUSH_SECONDS, Run, alive_in, step
from ps_common.protocol.status import Status
from ps_ctl.folder_commands import make_keys
from tests.integration.processes import wait_for

ROOT = Path(__file__).parents[2]
STACK = "ps-rl"
NODES = (os.environ["NODE1"], os.environ["NODE2"])  # their engines' addresses; the server is on the first
LABELS = ("server", "standby")
CABLE = (os.environ["NAMESPACE"] + "1", "cable")  # namespace and device
PATIENCE_SECONDS = 180.0
COMMAND_SECONDS = 120.0
# No target and a long budget: the scenario ends the run.
FLAGS = "--checkpoint-seconds 2 --until-return None --max-steps 1000000000"

ADMINS_KEY = "admin.key_secret"
STOP = (
    "cat >/tmp/admin; ps-ctl stop --server 127.0.0.1:5555 --curve-server-key /keys/server.key --curve-secret /tmp/admin"
)


def docker(node: str, *arguments: str, stdin: str | None = None, **variables: str) -> str:
    """Standard output. Raises CalledProcessError with what it said."""
    command = ["docker", *arguments]
    environment = os.environ | {"DOCKER_HOST": node} | variables
    ended = subprocess.run(
        command, env=environment, cwd=ROOT, input=stdin, capture_output=True, text=True, timeout=COMMAND_SECONDS,
        check=False,
    )  # fmt: skip
    if ended.returncode != 0:
        error = subprocess.CalledProcessError(ended.returncode, command, ended.stdout, ended.stderr)
        error.add_note(ended.stderr[-2000:])
        raise error
    return ended.stdout.strip()


def containers(node: str, service: str) -> list[str]:
    """Those that run on a node."""
    return docker(node, "ps", "--quiet", f"--filter=label=com.docker.swarm.service.name={STACK}_{service}").split()


class Stack(Run):
    """The run, whose status is asked inside of its servers' containers."""

    def __init__(self) -> None:
        super().__init__(Path())
        self._inside: dict[int, StatusInside] = {}  # by the number of the node

    def status(self) -> Status | None:
        """Of the server that has the run; of the two of a split, the one on the first node."""
        statuses = (self.status_on(number) for number in (0, 1))
        return next((status for status in statuses if status is not None and status.phase == "serving"), None)

    def status_on(self, number: int) -> Status | None:
        """None while the server of that node does not reply."""
        if number not in self._inside:
            servers = containers(NODES[number], LABELS[number])
            if len(servers) != 1:
                return None
            environment = os.environ | {"DOCKER_HOST": NODES[number]}
            self._inside[number] = StatusInside(("docker", "exec", "-i", *servers), environment)
        try:
            return self._inside[number].ask()
        except EOFError:
            self._inside.pop(number).end()
            return None

    def end(self) -> None:
        """End the programs that ask."""
        while self._inside:
            self._inside.popitem()[1].end()

    def serving(self) -> list[str]:
        statuses = {label: self.status_on(number) for number, label in enumerate(LABELS)}
        return [label for label, status in statuses.items() if status is not None and status.phase == "serving"]

    def wait_for_pair(self) -> int:
        """The number of the node that serves, once the other one's server has the whole state."""

        def is_followed() -> bool:
            status = self.status()
            return status is not None and status.standby is not None and status.standby.phase == "in sync"

        wait_for(lambda: is_followed() and len(self.serving()) == 1, within_seconds=PATIENCE_SECONDS)
        (label,) = self.serving()
        return LABELS.index(label)


def make_swarm() -> None:
    """Of both nodes, with the labels that the stack asks for."""
    docker(NODES[0], "swarm", "init", "--advertise-addr", "10.213.0.1")
    token = docker(NODES[0], "swarm", "join-token", "--quiet", "worker")
    docker(NODES[1], "swarm", "join", "--advertise-addr", "10.213.0.2", "--token", token, "10.213.0.1:2377")
    for number, engine in enumerate(NODES):
        node = docker(engine, "info", "--format", "{{.Swarm.NodeID}}")
        docker(NODES[0], "node", "update", "--label-add", f"ps-rl={LABELS[number]}", node)


def kill_inside(node: str, container: str) -> None:
    """SIGKILL to all of its processes, as when its memory runs out."""
    subprocess.run(
        ["docker", "exec", container, "sh", "-c", "kill -9 -1"],
        env=os.environ | {"DOCKER_HOST": node}, capture_output=True, check=False, timeout=COMMAND_SECONDS,
    )  # fmt: skip


def scenario(stack: Stack, keys: Path) -> None:
    with step("a swarm of two nodes"):
        make_swarm()
    with step("first push after the deploy of a server, a standby and two workers"):
        values = {"PRESET": "cartpole-a3c", "FLAGS": FLAGS, "KEYS": str(keys), "WORKERS": "2"}
        docker(
            NODES[0], "stack", "deploy", "--resolve-image", "never", "-c", "deploy/swarm/stack.yaml", STACK, **values
        )
        stack.wait_for_push(within_seconds=FIRST_PUSH_SECONDS)
    with step("both workers push, the standby follows"):
        stack.wait_for_workers(2)
        stack.wait_for_pair()
    with step("status, page and results by the commands of the page"):
        server = containers(NODES[0], "server")[0]
        assert "cartpole-a3c" in docker(NODES[0], "exec", server, "role.sh", "status")
        page = lambda: docker(NODES[0], "service", "logs", f"{STACK}_web")  # noqa: E731
        wait_for(lambda: ":8265/ (its token is in /token/token)" in page(), within_seconds=PATIENCE_SECONDS)
        docker(NODES[0], "cp", f"{server}:/runs", str(keys.parent))
        assert list(keys.parent.glob("runs/cartpole-a3c/checkpoints/*"))
    with step("four workers push, on both nodes"):
        scale(4)
        stack.wait_for_workers(4)
        assert all(containers(node, "worker") for node in NODES)
    with step("worker killed: replaced"):
        victim = containers(NODES[1], "worker")[0]
        kill_inside(NODES[1], victim)
        wait_for(lambda: victim not in containers(NODES[1], "worker"), within_seconds=PATIENCE_SECONDS)
        stack.wait_for_workers(4)
    for label in LABELS:
        with step(f"{label} killed: one of the two has the run, the other follows, four workers push"):
            node = NODES[LABELS.index(label)]
            (container,) = containers(node, label)
            kill_inside(node, container)
            wait_for(
                lambda was=container, at=node, of=label: was not in containers(at, of), within_seconds=PATIENCE_SECONDS
            )
            stack.wait_for_workers(4)
            stack.wait_for_pair()
    split(stack)
    with step("two workers push"):
        scale(2)
        stack.wait_for_workers(2)
    end(stack, keys)


def end(stack: Stack, keys: Path) -> None:
    """The end of the run, and of the stack."""
    with step("the run is stopped with an admin's key: servers and workers end, and stay ended"):
        number = stack.wait_for_pair()
        (server,) = containers(NODES[number], LABELS[number])
        said = docker(NODES[number], "exec", "-i", server, "sh", "-ec", STOP, stdin=(keys / ADMINS_KEY).read_text())
        assert "the run is ending" in said, said
        listed = ("service", "ps", "--quiet", "--filter=desired-state=running")
        tasks = lambda: docker(NODES[0], *listed, *(f"{STACK}_{service}" for service in (*LABELS, "worker")))  # noqa: E731
        wait_for(lambda: not tasks(), within_seconds=PATIENCE_SECONDS)
    with step("all is removed"):
        docker(NODES[0], "stack", "rm", STACK)
        wait_for(lambda: not any(docker(node, "ps", "--quiet") for node in NODES), within_seconds=PATIENCE_SECONDS)


def scale(workers: int) -> None:
    docker(NODES[0], "service", "scale", "--detach", f"{STACK}_worker={workers}")


def split(stack: Stack) -> None:
    """The cable is cut: the swarm starts the other node's tasks anew, and there they go on: two runs of one."""
    with step("cable cut: both sides have a server, and workers that push"):
        was = stack.wait_for_status()
        set_cable("down")
        wait_for(lambda: stack.serving() == list(LABELS), within_seconds=PATIENCE_SECONDS)
        new = lambda: alive_in(stack.wait_for_status()) - alive_in(was)  # noqa: E731
        wait_for(new, within_seconds=PATIENCE_SECONDS)
    with step("cable mended: one server has the run, the other follows it, four workers push"):
        set_cable("up")
        stack.wait_for_workers(4)
        stack.wait_for_pair()


def set_cable(state: str) -> None:
    subprocess.run(["ip", "-n", CABLE[0], "link", "set", CABLE[1], state], check=True)


def main() -> None:
    stack = Stack()
    with tempfile.TemporaryDirectory() as folder:
        make_keys(keys := Path(folder) / "keys")
        try:
            scenario(stack, keys)
        except BaseException:
            for number, node in enumerate(NODES):
                print(f"--- node {number + 1}", docker(node, "ps", "--all"), flush=True)
            for service in (*LABELS, "worker"):
                print(f"--- {service}", docker(NODES[0], "service", "ps", "--no-trunc", f"{STACK}_{service}"))
                print(
                    docker(NODES[0], "service", "logs", "--timestamps", "--tail", "40", f"{STACK}_{service}"),
                    flush=True,
                )
            raise
        finally:
            stack.end()
            for node in reversed(NODES):
                docker(node, "swarm", "leave", "--force")
            for node in NODES:
                wait_for(lambda node=node: not docker(node, "ps", "--quiet"), within_seconds=PATIENCE_SECONDS)
                docker(node, "volume", "prune", "--force")


if __name__ == "__main__":
    main()
