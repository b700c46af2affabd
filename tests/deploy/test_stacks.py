"""The files for Docker Compose: what every service is promised, and what `docker compose` makes of it."""

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
OURS = {"server", "standby", "worker", "web"}
FURTHER = ("docker/locked.yaml", "docker/publish.yaml", "docker/gpu.yaml")


def test_every_program_of_ours_is_confined_and_has_a_role() -> None:
    services = yaml.safe_load(COMPOSE.read_text())["services"]
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


def test_every_engine_waits_for_the_last_checkpoint_of_a_server_as_long_as_our_programs_do() -> None:
    waits = {f"{LAST_CHECKPOINT_SECONDS:g}"}
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    assert {services[name]["stop_grace_period"].removesuffix("s") for name in ("server", "standby")} == waits
    text = (ROOT / "deploy" / "kubernetes" / "base" / "server.yaml").read_text()
    assert re.findall(r"terminationGracePeriodSeconds: (\d+)", text)[0] in waits
