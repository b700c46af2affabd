"""The manifests for Kubernetes against the schemas of its current version, strictly."""

import os
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from deploy.kubernetes.kustomize import kustomize
from tests.rows import row

HERE = Path(__file__).parents[2] / "deploy" / "kubernetes"


def documents(text: str) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(text) if document]


def validate(document: dict[str, Any]) -> None:
    kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


def pods_in(manifests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The specs of the pods that they make."""
    return [one["spec"]["template"]["spec"] for one in manifests if "template" in one.get("spec", {})]


FILES = [path for path in sorted(HERE.rglob("*.yaml")) if path.name != "kustomization.yaml"]


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
    for parts in [(), ("standby",), ("keys",), ("standby", "spot"), ("shards", "keys")]:
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
    assert pods.keys() == {"ps-rl-server", "ps-rl-worker"}
    for name, pod in pods.items():
        for container in pod["containers"]:
            environment = {variable["name"]: variable.get("value") for variable in container.get("env", ())}
            assert environment["KEYS"] == "/keys", (name, container["name"])
            assert "/keys" in [mount["mountPath"] for mount in container["volumeMounts"]]
            if name != "ps-rl-server":
                assert environment["SERVERS"] == "ps-rl-server-0.ps-rl-server:5555,ps-rl-server-1.ps-rl-server:5555"
