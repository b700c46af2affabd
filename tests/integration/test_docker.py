"""
The files of docker/ in use: a cluster of containers is scaled, killed, cut off and taken down, and goes on training.

That needs a Docker engine and minutes, so it runs only when asked for: `make engine-test ENGINE=docker`.
"""

import json
import os
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

ROOT = Path(__file__).parents[2]
IMAGE = "ps-rl-test"
BUILD_SECONDS = 1800.0
DEADLINE_SECONDS = 180.0  # for any recovery; most take a few seconds, containers on a busy machine start slowly
FIRST_PUSH_SECONDS = 60.0  # after `up`
ENDLESS = "--max-steps 1000000000 --until-return 1000000 --checkpoint-seconds 2"

WORKERS_KEY = ("--curve-server-key", "/keys/server.key", "--curve-secret", "/keys/worker.key_secret")
ADMINS_KEY = ("--curve-server-key", "/keys/server.key", "--curve-secret", "/keys/admin.key_secret")

T = TypeVar("T")


# -- without an engine ------------------------------------------------------------------------------------------------


def dependencies(extras: str) -> list[str]:
    """The packages that the image installs, as its Dockerfile asks for them."""
    return _run(sys.executable, "docker/dependencies.py", extras, cwd=ROOT).splitlines()


def test_an_image_gets_the_extras_that_are_asked_for() -> None:
    alone = dependencies("")
    assert "torch>=2.6" in alone
    assert not [one for one in alone if one.startswith(("vizdoom", "MinAtar", "gymnasium[mujoco]"))]
    assert set(dependencies("doom")) - set(alone) == {"vizdoom>=1.3"}
    assert set(dependencies("doom, minatar")) - set(alone) == {"vizdoom>=1.3", "MinAtar>=1.0.15"}
    assert dependencies("all") == dependencies("box2d,doom,minatar,mujoco,s3"), "an extra that is made of others"


# -- with one ---------------------------------------------------------------------------------------------------------


class Cluster:
    """A compose project, seen as a user sees it: `docker compose …`, and `ps-ctl status` inside the server."""

    def __init__(self, project: str, *, locked: bool = False, standby: bool = False, **variables: str) -> None:
        self._project = project
        self._profile = ("--profile=standby",) if standby else ()
        self._files = ("compose.yaml", "publish.yaml", *(["locked.yaml"] if locked else []))
        self._key = WORKERS_KEY if locked else ()
        self._variables = {"IMAGE": IMAGE, "PORT": "0", **variables}  # port 0: a free one

    def compose(self, *arguments: str, timeout_seconds: float = 120.0) -> str:
        files = (f"--file={ROOT / 'docker' / name}" for name in self._files)
        command = ("docker", "compose", "--project-name", self._project, *files, *self._profile, *arguments)
        return _run(*command, env=os.environ | self._variables, timeout_seconds=timeout_seconds)

    def up(self, *, workers: int) -> None:
        self.compose("up", "--detach", "--no-build", "--scale", f"worker={workers}")

    def down(self, *, volumes: bool = False) -> None:
        self.compose("down", *(["--volumes"] if volumes else []))

    def tell(self) -> None:
        """Print what its containers have to say, for whoever has to find out what went wrong."""
        print("\n" + self.compose("ps", "--all") + self.compose("logs", "--no-color", "--timestamps", "--tail", "50"))

    def containers(self, service: str) -> list[str]:
        return self.compose("ps", "--all", "--quiet", service).split()

    def status(self, service: str = "server") -> dict[str, Any]:
        """Raises CalledProcessError while no server answers."""
        answer: dict[str, Any] = json.loads(self.control("status", "--json", *self._key, service=service))
        return answer

    def control(self, command: str, *flags: str, service: str = "server", server: str = "127.0.0.1:5555") -> str:
        """The output of ps-ctl in a container of that service. Raises CalledProcessError."""
        return self.compose("exec", "-T", service, "ps-ctl", command, "--server", server, *flags)

    def status_when(self, condition: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
        return _when(self.status, condition, what)

    def trains(self, *, workers: int) -> dict[str, Any]:
        """The status once so many workers are alive and each of them has pushed since; and T has grown."""
        began = time.monotonic()
        before = self.status_when(lambda status: status["workers_alive"] == workers, f"{workers} workers alive")
        joined = time.monotonic()
        steps = {worker["worker_id"]: worker["steps"] for worker in before["workers"]}

        def has_grown(status: dict[str, Any]) -> bool:
            alive = [worker for worker in status["workers"] if worker["alive"]]
            return (
                len(alive) == workers
                and all(worker["steps"] > steps.get(worker["worker_id"], 0) for worker in alive)
                and status["global_steps"] > before["global_steps"]
            )

        after = self.status_when(has_grown, f"{workers} workers alive, and all of them push")
        pushed = time.monotonic()
        say(f"{workers} workers alive after {joined - began:.1f} s, all push after {pushed - began:.1f} s")
        return after

    @contextmanager
    def cut_off(self, container: str, *options: str) -> Iterator[None]:
        """No network for this container; afterwards it is connected again, where it gets another address."""
        network = f"{self._project}_default"
        before = _address(container)
        _docker("network", "disconnect", network, container)
        # Somebody else takes the address that became free.
        other = _docker(
            "run", "--rm", "--detach", "--init", "--no-healthcheck", "--network", network, IMAGE, "sleep", "inf"
        )
        try:
            yield
            _docker("network", "connect", *options, network, container)
            after = _address(container)
            say(f"the address was {before} and is {after}")
            assert after != before
        finally:
            _docker("stop", other)

    def kill_inside(self, container: str) -> None:
        """As the kernel does when memory runs out. (`docker kill` is a person's order: nothing is restarted then.)"""
        killed = subprocess.run(
            ["docker", "exec", container, "sh", "-c", "kill -9 -1"], capture_output=True, timeout=60
        )
        assert killed.returncode in (0, 137), killed.stderr


@pytest.fixture(scope="module")
def image() -> None:
    """The image, built as the compose file says; skips where that cannot be."""
    if os.environ.get("PS_RL_DOCKER") != "1":
        pytest.skip("takes a Docker engine and minutes; asked for with `make engine-test ENGINE=docker`")
    for command in (("docker", "info"), ("docker", "compose", "version")):
        try:
            _run(*command)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"`{' '.join(command)}` does not work here: {getattr(error, 'stderr', None) or error}")
    began = time.monotonic()
    Cluster("ps-rl-test").compose("build", "server", timeout_seconds=BUILD_SECONDS)
    say(f"built in {time.monotonic() - began:.1f} s")


@pytest.fixture(scope="module")
def cluster(image: None) -> Iterator[Cluster]:
    """CartPole without an end; every test leaves it with two workers."""
    cluster = Cluster("ps-rl-test", PRESET="cartpole", FLAGS=ENDLESS)
    cluster.down(volumes=True)
    try:
        began = time.monotonic()
        cluster.up(workers=1)
        say(f"up in {time.monotonic() - began:.1f} s")
        cluster.status_when(lambda status: status["updates"] > 0, "the first push")
        took = time.monotonic() - began
        say(f"first push after {took:.1f} s")
        assert took < FIRST_PUSH_SECONDS, "with the image at hand"
        yield cluster
    finally:
        cluster.tell()
        cluster.down(volumes=True)


pytestmark = pytest.mark.timeout(BUILD_SECONDS + 600)


def test_a_run_that_is_over_leaves_no_container_running(image: None) -> None:
    cluster = Cluster("ps-rl-test-short", PRESET="cartpole", FLAGS="--max-steps 5000")
    cluster.down(volumes=True)
    try:
        cluster.up(workers=2)
        containers = [*cluster.containers("server"), *cluster.containers("worker")]
        _when(lambda: [_exit_code(one) for one in containers], lambda codes: codes == [0, 0, 0], "all have ended well")
    finally:
        cluster.tell()
        cluster.down(volumes=True)


def test_the_image_has_every_file_of_the_packages_and_every_program(image: None) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    find = project["tool"]["setuptools"]["packages"]["find"]
    packages = [
        folder
        for where in find["where"]
        for name in find["include"]
        for folder in (ROOT / where).glob(name)
        if (folder / "__init__.py").is_file()
    ]
    list_files = (
        "import importlib, pathlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    folder = pathlib.Path(importlib.import_module(name).__file__).parent\n"
        "    print(*(path.relative_to(folder.parent) for path in folder.rglob('*') if path.is_file()), sep='\\n')\n"
    )
    said = _docker(
        "run", "--rm", "--no-healthcheck", IMAGE, "python", "-P", "-c", list_files, *(one.name for one in packages)
    )
    here = {str(path.relative_to(folder.parent)) for folder in packages for path in folder.rglob("*") if path.is_file()}
    assert without_bytecode(set(said.split())) == without_bytecode(here)
    for program in project["project"]["scripts"]:
        assert program in _docker("run", "--rm", "--no-healthcheck", IMAGE, program, "--help")


def without_bytecode(paths: set[str]) -> set[str]:
    return {path for path in paths if "__pycache__" not in path}


def test_workers_come_and_go(cluster: Cluster) -> None:
    cluster.trains(workers=1)
    cluster.up(workers=4)
    four = cluster.trains(workers=4)
    assert len({worker["host"] for worker in four["workers"]}) == 4
    cluster.up(workers=2)
    cluster.trains(workers=2)


def test_the_programs_run_as_nobody_special_and_on_one_thread(cluster: Cluster) -> None:
    assert cluster.compose("exec", "-T", "server", "id", "-u").strip() == "1000"
    (worker, *_) = cluster.containers("worker")
    # Processor time of each thread, in ticks: two of the fields after the name in parentheses.
    stats = _docker("exec", worker, "sh", "-c", "cat /proc/[0-9]*/task/*/stat").splitlines()
    spent = sorted(sum(map(int, line.rpartition(")")[2].split()[11:13])) for line in stats)
    say(f"ticks of the worker's threads: {spent}")
    assert sum(spent[:-1]) < 0.5 * spent[-1], "the other threads only carry messages"


def test_a_killed_server_is_restarted_and_goes_on_with_the_run(cluster: Cluster) -> None:
    before = cluster.status_when(lambda status: status["checkpoint_version"] > 0, "a checkpoint")
    cluster.kill_inside(*cluster.containers("server"))
    after = cluster.status_when(lambda status: status["epoch"] != before["epoch"], "a new epoch")
    assert after["version"] >= before["checkpoint_version"]
    cluster.trains(workers=2)


def test_a_server_that_a_person_killed_comes_back_with_up(cluster: Cluster) -> None:
    before = cluster.status_when(lambda status: status["checkpoint_version"] > 0, "a checkpoint")
    _docker("kill", *cluster.containers("server"))
    cluster.up(workers=2)
    after = cluster.trains(workers=2)
    assert after["epoch"] != before["epoch"]
    assert after["version"] >= before["checkpoint_version"]


def test_a_worker_that_was_cut_off_comes_back_on_a_new_address(cluster: Cluster) -> None:
    (worker, *_) = cluster.containers("worker")
    with cluster.cut_off(worker):
        cluster.trains(workers=1)
    cluster.trains(workers=2)


def test_a_server_that_was_cut_off_is_found_on_its_new_address(cluster: Cluster) -> None:
    before = cluster.status()
    (server,) = cluster.containers("server")
    with cluster.cut_off(server, "--alias", "server"):
        cluster.status_when(lambda status: status["workers_alive"] == 0, "no worker heard")
    assert cluster.trains(workers=2)["epoch"] == before["epoch"]


def test_a_worker_on_another_machine_joins_by_the_published_port(cluster: Cluster) -> None:
    port = cluster.compose("port", "server", "5555").rpartition(":")[2].strip()
    options = ("--rm", "--detach", "--init", "--no-healthcheck", "--network", "host")
    worker = _docker("run", *options, IMAGE, "rl-worker", "--server", f"127.0.0.1:{port}")
    try:
        cluster.trains(workers=3)
    finally:
        _docker("stop", worker)
    cluster.trains(workers=2)


def test_the_page_shows_the_run_and_serves_its_metrics(cluster: Cluster) -> None:
    cluster.compose("--profile=monitoring", "up", "--detach", "--no-build", "web")
    request = "urllib.request.Request('http://127.0.0.1:8265/metrics', headers={'Authorization': 'Bearer ' + token})"
    script = (
        f"import urllib.request; token = open('/token/token').read(); print(urllib.request.urlopen({request}).read())"
    )
    ask = ("--profile=monitoring", "exec", "-T", "web", "python", "-c", script)
    try:
        _when(lambda: cluster.compose(*ask), lambda said: "ps_rl_workers{" in said, "metrics of the run")
        assert "page: http://0.0.0.0:8265/ (its token is in /token/token)" in cluster.compose(
            "--profile=monitoring", "logs", "web"
        )
    finally:
        cluster.compose("--profile=monitoring", "rm", "--stop", "--force", "web")


def test_down_takes_seconds_and_up_goes_on_where_it_was(cluster: Cluster) -> None:
    before = cluster.status()
    began = time.monotonic()
    cluster.compose("stop")
    took = time.monotonic() - began
    codes = {_exit_code(container) for service in ("server", "worker") for container in cluster.containers(service)}
    assert codes == {0}, "a signal is heard, not waited out"
    cluster.down()
    say(f"stopped in {took:.1f} s, down in {time.monotonic() - began:.1f} s")
    assert took < 15
    cluster.up(workers=2)
    assert cluster.trains(workers=2)["global_steps"] > before["global_steps"]


# -- with a standby ---------------------------------------------------------------------------------------------------


def test_a_pair_of_servers_heals_itself(image: None) -> None:
    cluster = Cluster("ps-rl-test-pair", locked=True, standby=True, PRESET="cartpole", FLAGS=ENDLESS)
    pair = ("server", "standby")

    def look() -> dict[str, dict[str, Any]]:
        return {service: cluster.status(service) for service in pair}

    def is_whole(seen: dict[str, dict[str, Any]]) -> bool:
        """One serves two workers, and the other follows it. (Who, depends on whether Docker was faster.)"""
        serving = [status for status in seen.values() if status["phase"] == "serving"]
        follower = serving[0]["standby"] or {} if len(serving) == 1 else {}
        return follower.get("phase") == "in sync" and serving[0]["workers_alive"] == 2

    def when_whole(above: int = 0) -> tuple[str, dict[str, Any]]:
        """The server that has the run in an epoch above that one, and its status."""

        def is_new(seen: dict[str, dict[str, Any]]) -> bool:
            return is_whole(seen) and max(status["epoch"] for status in seen.values()) > above

        seen = _when(look, is_new, "one of the two serves, the other follows")
        return next((name, status) for name, status in seen.items() if status["phase"] == "serving")

    cluster.down(volumes=True)
    try:
        cluster.up(workers=2)
        primary, before = when_whole()
        for _ in range(3):
            began = time.monotonic()
            cluster.kill_inside(*cluster.containers(primary))
            died, (primary, after) = primary, when_whole(above=before["epoch"])
            say(f"{died} killed; {primary} serves, and is followed, after {time.monotonic() - began:.1f} s")
            assert (after["run_id"], after["global_steps"] >= before["global_steps"]) == (before["run_id"], True)
            before = after
    finally:
        cluster.tell()
        cluster.down(volumes=True)


# -- with keys --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def locked(image: None) -> Iterator[Cluster]:
    """CartPole without an end, behind keys that the first `up` makes; every test leaves it with two workers."""
    cluster = Cluster("ps-rl-test-locked", locked=True, PRESET="cartpole", FLAGS=ENDLESS)
    cluster.down(volumes=True)
    try:
        cluster.up(workers=2)
        yield cluster
    finally:
        cluster.tell()
        cluster.down(volumes=True)


def test_a_locked_cluster_trains_with_the_keys_that_it_made(locked: Cluster) -> None:
    locked.trains(workers=2)


def test_who_has_no_key_is_not_answered(locked: Cluster) -> None:
    for service, server in (("server", "127.0.0.1:5555"), ("worker", "server:5555")):
        with pytest.raises(subprocess.CalledProcessError) as failed:
            locked.control("status", service=service, server=server)
        assert "no reply" in failed.value.stderr


def test_a_worker_has_its_own_key_alone_and_cannot_stop_the_run(locked: Cluster) -> None:
    assert locked.compose("exec", "-T", "worker", "ls", "/keys").split() == ["server.key", "worker.key_secret"]
    with pytest.raises(subprocess.CalledProcessError) as failed:
        locked.control("stop", *WORKERS_KEY, service="worker", server="server:5555")
    assert "admin" in failed.value.stderr
    locked.trains(workers=2)


def test_a_worker_on_another_machine_joins_with_a_copy_of_the_workers_keys(locked: Cluster, tmp_path: Path) -> None:
    locked.compose("cp", "worker:/keys", str(tmp_path))
    port = locked.compose("port", "server", "5555").rpartition(":")[2].strip()
    user = f"{os.getuid()}:{os.getgid()}"
    options = ("--rm", "--detach", "--init", "--no-healthcheck", "--network", "host", "--user", user)
    volume = f"--volume={tmp_path / 'keys'}:/keys:ro"
    worker = _docker("run", *options, volume, IMAGE, "rl-worker", "--server", f"127.0.0.1:{port}", *WORKERS_KEY)
    try:
        locked.trains(workers=3)
    finally:
        _docker("stop", worker)
    locked.trains(workers=2)


def test_an_admin_ends_a_locked_run(locked: Cluster) -> None:
    containers = [*locked.containers("server"), *locked.containers("worker")]
    assert "the run is ending" in locked.control("stop", *ADMINS_KEY)
    _when(lambda: {_exit_code(one) for one in containers}, lambda codes: codes == {0}, "all have ended well")


# -- with extras ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def image_with_extras(image: None) -> str:
    """Built as the compose file says, on the layers of the one without."""
    name = f"{IMAGE}-extras"
    Cluster("ps-rl-test-extras", IMAGE=name, EXTRAS="all").compose("build", "server", timeout_seconds=BUILD_SECONDS)
    return name


@pytest.mark.parametrize("preset", ["doom-basic-fast", "inverted-pendulum"])
def test_an_image_with_extras_plays_their_games(image_with_extras: str, preset: str) -> None:
    cluster = Cluster("ps-rl-test-extras", IMAGE=image_with_extras, PRESET=preset, FLAGS="--max-steps 4000")
    cluster.down(volumes=True)
    try:
        cluster.up(workers=2)
        containers = [*cluster.containers("server"), *cluster.containers("worker")]
        _when(lambda: [_exit_code(one) for one in containers], lambda codes: codes == [0, 0, 0], "all have ended well")
    finally:
        cluster.tell()
        cluster.down(volumes=True)


def say(sentence: str) -> None:
    print(f"\n    {sentence}", end="")


def _address(container: str) -> str:
    return _docker("inspect", "--format", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", container)


def _exit_code(container: str) -> str | int:
    """Of a container that has ended; its state while it has not."""
    state, code = _docker("inspect", "--format", "{{.State.Status}} {{.State.ExitCode}}", container).split()
    return int(code) if state == "exited" else state


def _when(look: Callable[[], T], condition: Callable[[T], bool], what: str) -> T:
    """What `look` returns, as soon as the condition holds for it. Looking may fail until then."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    seen: T | str = "nothing"
    while time.monotonic() < deadline:
        try:
            seen = look()
        except subprocess.CalledProcessError as error:
            seen = error.stderr.strip()
        else:
            if condition(seen):
                return seen
    raise AssertionError(f"not within {DEADLINE_SECONDS:g} s: {what}; last seen: {seen}")


def _docker(*arguments: str) -> str:
    return _run("docker", *arguments).strip()


def _run(
    *command: str, env: Mapping[str, str] | None = None, cwd: Path | None = None, timeout_seconds: float = 120.0
) -> str:
    """Its standard output. Raises CalledProcessError, with what it said."""
    done = subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, timeout=timeout_seconds)
    if done.returncode:
        error = subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
        error.add_note(done.stderr[-4000:])
        raise error
    return done.stdout
