"""The namespace of the scenario in a cluster: what kubectl does there, and what is done to its pods on the node."""

import json
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

NAMESPACE = "ps-rl-scenario"
COMMAND_SECONDS = 300.0


class Cluster:
    """`kubectl`, `kustomize` and `node` are commands; without `node` nothing can be done on the node itself."""

    def __init__(self, kubectl: str, kustomize: str, node: str) -> None:
        self._kubectl = shlex.split(kubectl)
        self._kustomize = shlex.split(kustomize)
        self._node = shlex.split(node)

    @classmethod
    def of_environment(cls) -> "Cluster":
        return cls(os.environ["KUBECTL"], os.environ["KUSTOMIZE"], os.environ.get("NODE", ""))

    @property
    def node_can_be_touched(self) -> bool:
        return bool(self._node)

    def command(self, *arguments: str) -> list[str]:
        """kubectl with these arguments, in the namespace."""
        return [*self._kubectl, "--namespace", NAMESPACE, *arguments]

    def kubectl(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        """Standard output. Raises CalledProcessError with what it said."""
        command = self.command(*arguments)
        ended = subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False
        )
        if check and ended.returncode != 0:
            error = subprocess.CalledProcessError(ended.returncode, command, ended.stdout, ended.stderr)
            error.add_note(ended.stderr[-2000:])
            raise error
        return ended.stdout if check else ended.stdout + ended.stderr

    def objects(self, kind: str, *arguments: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = json.loads(self.kubectl("get", kind, *arguments, "--output", "json"))["items"]
        return items

    def apply(self, manifest: str) -> None:
        self.kubectl("apply", "--filename", "-", stdin=manifest)

    def rendered(self, folder: Path) -> str:
        """The manifests of a kustomization."""
        return subprocess.run(
            [*self._kustomize, str(folder)], capture_output=True, text=True, check=True, timeout=COMMAND_SECONDS
        ).stdout

    def pods(self, name: str) -> list[str]:
        """Names of the pods of a workload that are not on their way out."""
        selector = f"--selector=app.kubernetes.io/name={name}"
        pods = self.objects("pods", selector)
        return sorted(pod["metadata"]["name"] for pod in pods if "deletionTimestamp" not in pod["metadata"])

    def delete_at_once(self, *pods: str) -> None:
        """Without a grace period."""
        self.kubectl("delete", "pod", "--grace-period=0", "--force", *pods)

    def kill(self, pod: str, program: str) -> None:
        """SIGKILL to a program of a pod, on the node; without access to the node the pod is deleted at once."""
        if not self.node_can_be_touched:
            self.delete_at_once(pod)
            return
        for pid in self.pids(pod, program):
            self.on_node("kill", "-9", pid)

    def pids(self, pod: str, program: str) -> list[str]:
        """Processes of a program in a pod, as numbered on the node."""
        script = r"""
            for process in /proc/[0-9]*; do
                if tr '\0' '\n' <$process/environ 2>/dev/null | grep -qx "HOSTNAME=$0" &&
                    tr '\0' ' ' <$process/cmdline | grep -q -- "/$1 "; then echo ${process#/proc/}; fi
            done"""
        found = self.on_node("sh", "-c", script, pod, program).split()
        assert found, f"{program} does not run in {pod}"
        return found

    def link_of(self, pod: str) -> str:
        """The number of the node's end of a pod's link."""
        return self.kubectl("exec", pod, "--", "cat", "/sys/class/net/eth0/iflink").strip()

    def set_link(self, link: str, state: str) -> None:
        """`state` is up or down."""
        script = 'ip link set dev "$(ip -o link | sed -n "s/^$0: \\([^@:]*\\).*/\\1/p")" "$1"'
        self.on_node("sh", "-c", script, link, state)

    def on_node(self, *command: str) -> str:
        ended = subprocess.run(
            [*self._node, *command], capture_output=True, text=True, check=True, timeout=COMMAND_SECONDS
        )
        return ended.stdout
