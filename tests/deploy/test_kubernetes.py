"""The manifests for Kubernetes against the schemas of its current version, strictly; and the autoscaler's metric."""

import json
import os
import ssl
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from deploy.kubernetes.autoscale.workers_wanted import GROUP, METRIC, MetricsServer, workers_wanted
from deploy.kubernetes.kustomize import kustomize
from ps_common.protocol.status import Status
from tests.integration.processes import programs_in
from tests.rows import row

HERE = Path(__file__).parents[2] / "deploy" / "kubernetes"
JOBSET = HERE / "jobset" / "jobset.yaml"
QUESTION = f"/apis/{GROUP}/namespaces/default/{METRIC}"


def documents(text: str) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(text) if document]


def validate(document: dict[str, Any]) -> None:
    kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


def pods_in(manifests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The specs of the pods that they make."""
    return [one["spec"]["template"]["spec"] for one in manifests if "template" in one.get("spec", {})]


FILES = [path for path in sorted(HERE.rglob("*.yaml")) if path.name != "kustomization.yaml" and path != JOBSET]


def test_a_manifest_is_valid_as_it_stands() -> None:
    for path in FILES:
        with row(path):
            for document in documents(path.read_text()):
                validate(document)


def rendered(folder: Path) -> list[dict[str, Any]]:
    command = kustomize()
    if command is None:
        pytest.skip("there is no kubectl that knows components of kustomize")
    said = subprocess.run([*command.split(), str(folder)], capture_output=True, text=True, check=True).stdout
    return documents(said)


def test_the_base_with_some_of_the_parts_is_valid(tmp_path_factory: pytest.TempPathFactory) -> None:
    for parts in [(), ("standby",), ("keys",), ("autoscale", "spot"), ("shards", "keys")]:
        with row(parts):
            tmp_path = tmp_path_factory.mktemp("row")
            resources, components = (
                [os.path.relpath(HERE / name, tmp_path.resolve()) for name in names] for names in (["base"], parts)
            )
            own = {"kind": "Kustomization", "resources": resources, "components": components}
            (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(own))
            manifests = rendered(tmp_path)
            for document in manifests:
                validate(document)
            check_confined(pods_in(manifests))


def check_confined(pods: list[dict[str, Any]]) -> None:
    assert pods
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"]
        assert not pod["automountServiceAccountToken"]
        for container in pod["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"]
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert {"cpu", "memory"} <= container["resources"]["requests"].keys()


def test_every_program_of_the_fleet_is_valid_has_keys_and_knows_both_servers() -> None:
    manifests = rendered(HERE / "fleet")
    for document in manifests:
        validate(document)
    pods = {
        one["metadata"]["name"]: one["spec"]["template"]["spec"]
        for one in manifests
        if "template" in one.get("spec", {})
    }
    assert pods.keys() == {"ps-rl-server", "ps-rl-worker", "ps-rl-metrics"}
    for name, pod in pods.items():
        for container in pod["containers"]:
            environment = {variable["name"]: variable.get("value") for variable in container.get("env", ())}
            assert environment["KEYS"] == "/keys", (name, container["name"])
            assert "/keys" in [mount["mountPath"] for mount in container["volumeMounts"]]
            if name != "ps-rl-server":
                assert environment["SERVERS"] == "ps-rl-server-0.ps-rl-server:5555,ps-rl-server-1.ps-rl-server:5555"


# -- the autoscaler's metric ------------------------------------------------------------------------------------------


def status(**fields: Any) -> Status:
    known: dict[str, Any] = {"phase": "serving", "epoch": 1, "refused": {}, "not_modified": 0, "checkpoint_version": 0}
    return Status(**known | {"checkpoint_failures": 0, "workers_alive": 4, "steps_per_second": 1000.0} | fields)


def test_as_many_workers_are_wanted_as_the_speed_takes() -> None:
    for fields, wanted in [
        ({}, 8),
        ({"steps_per_second": 990.0}, 9),
        ({"workers_alive": 16, "steps_per_second": 4000.0}, 8),
        ({"workers_alive": 0, "steps_per_second": 300.0}, 1),
        ({"steps_per_second": 0.0}, 4),
        ({"paused": True}, 0),
        ({"ending": "the budget is spent"}, 0),
        ({"phase": "draining"}, 0),
    ]:
        with row(fields, wanted):
            assert workers_wanted(status(**fields), 2000.0) == wanted


@contextmanager
def metrics_server(folder: Path, *servers: str) -> Iterator[str]:
    """Its address."""
    pem = folder / "certificate.pem"
    make = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=x"
    parts = ["-keyout", str(folder / "key.pem"), "-out", str(pem)]
    subprocess.run(["openssl", *make.split(), *parts], check=True, capture_output=True)
    pem.write_text(pem.read_text() + (folder / "key.pem").read_text())
    with MetricsServer(("127.0.0.1", 0), pem, servers=servers, keys=None, steps_per_second=1e9) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"https://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def answer(url: str) -> tuple[int, dict[str, Any]]:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with urllib.request.urlopen(url, context=context, timeout=30) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_the_metric_is_that_of_the_server_that_answers_and_there_is_none_without(tmp_path: Path) -> None:
    with programs_in(tmp_path) as programs:
        server, address = programs.start_server("--preset", "cartpole-a3c")
        with metrics_server(tmp_path, "nobody-here:5555", address) as api:
            code, found = answer(api + QUESTION + "?labelSelector=")
            assert (code, found["kind"], found["items"][0]["value"]) == (200, "ExternalMetricValueList", "1")
            assert answer(f"{api}/apis/{GROUP}")[1]["resources"][0]["name"] == METRIC
            assert answer(f"{api}/apis/{GROUP}/namespaces/default/other")[0] == 404
            server.kill()
            assert answer(api + QUESTION)[0] == 503
