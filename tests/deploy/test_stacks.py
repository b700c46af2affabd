"""The files for Docker Compose and Swarm: what every service is promised, and what `docker compose` makes of it."""

import itertools
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from ps_common.program.stop_signals import LAST_CHECKPOINT_SECONDS
from tests.rows import row

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "docker" / "compose.yaml"
STACK = ROOT / "deploy" / "swarm" / "stack.yaml"
OURS = {"server", "standby", "worker", "web"}
FURTHER = ("docker/locked.yaml", "docker/publish.yaml", "docker/gpu.yaml")


@pytest.mark.parametrize("path", [COMPOSE, STACK], ids=lambda path: path.parent.name)
def test_every_program_of_ours_is_confined_and_has_a_role(path: Path) -> None:
    services = yaml.safe_load(path.read_text())["services"]
    assert services.keys() >= OURS
    for name in OURS:
        service = services[name]
        assert (service["read_only"], service["cap_drop"], service["init"]) == (True, ["ALL"], True), name
        assert service["command"].startswith("role.sh "), name
    assert services["server"]["environment"]["PEER"] == "standby:5555"
    assert services["server"]["environment"]["BEGINS"] == "yes"
    assert services["standby"]["environment"]["PEER"] == "server:5555"
    assert "BEGINS" not in services["standby"]["environment"]
    assert services["worker"]["environment"]["SERVERS"] == "server:5555,standby:5555"


def test_the_stack_gives_workers_no_key_but_their_own_and_servers_the_layout_of_keygen() -> None:
    stack = yaml.safe_load(STACK.read_text())
    for name in OURS:
        service = stack["services"][name]
        assert service["environment"]["KEYS"] == "/keys"
        assert service["deploy"]["endpoint_mode"] == "dnsrr"
        assert service["deploy"]["restart_policy"]["condition"] == "on-failure"
        targets = {secret["target"] for secret in service["secrets"]}
        expected = {"/keys/server.key", "/keys/worker.key_secret"}
        if name in ("server", "standby"):
            authorized = {"/keys/authorized/worker.key", "/keys/authorized/admins/admin.key"}
            expected |= authorized | {"/keys/server.key_secret"}
        assert targets == expected, name
    assert not [name for name in stack["secrets"] if "admin" in name and "secret" in name]


def configured(*files: str, profile: str = "*") -> dict[str, Any]:
    """The services that `docker compose` makes of files, with one profile or with all."""
    if (
        shutil.which("docker") is None
        or subprocess.run(["docker", "compose", "version"], capture_output=True).returncode
    ):
        pytest.skip("there is no docker compose")
    flags = [flag for file in files for flag in ("-f", file)]
    command = ["docker", "compose", *flags, "--profile", profile, "config", "--format", "json"]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found: dict[str, Any] = json.loads(answer)["services"]
    return found


def test_compose_takes_every_combination_of_its_files() -> None:
    for further in [some for count in range(4) for some in itertools.combinations(FURTHER, count)]:
        with row(further):
            services = configured("docker/compose.yaml", *further)
            assert services.keys() >= {*OURS, "prometheus", "grafana"}
            for name in OURS:
                assert ("KEYS" in services[name]["environment"]) == ("docker/locked.yaml" in further), name
            (command,) = [services["worker"]["command"]]
            assert ("cuda" in command) == ("docker/gpu.yaml" in further)


def test_the_stack_takes_its_monitoring() -> None:
    alone = configured("deploy/swarm/stack.yaml")
    monitored = configured("deploy/swarm/stack.yaml", "deploy/swarm/monitoring.yaml")
    assert monitored.keys() == {*alone, "prometheus", "grafana"}


def test_names_of_the_stack_are_resolved_before_a_server_listens() -> None:
    """Until a task of a swarm is healthy, a look-up of its name waits for the name server."""
    services = yaml.safe_load(STACK.read_text())["services"]
    assert all(services[name]["healthcheck"] == {"disable": True} for name in OURS)


def test_every_engine_waits_for_the_last_checkpoint_of_a_server_as_long_as_our_programs_do() -> None:
    waits = {f"{LAST_CHECKPOINT_SECONDS:g}"}
    for file in ("docker/compose.yaml", "deploy/swarm/stack.yaml"):
        services = yaml.safe_load((ROOT / file).read_text())["services"]
        assert {services[name]["stop_grace_period"].removesuffix("s") for name in ("server", "standby")} == waits
    text = (ROOT / "deploy" / "kubernetes" / "base" / "server.yaml").read_text()
    assert re.findall(r"terminationGracePeriodSeconds: (\d+)", text)[0] in waits
