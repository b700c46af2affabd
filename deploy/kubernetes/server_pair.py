"""The run of the scenario's servers: which of them has it, and what it says."""

import subprocess
from pathlib import Path

import msgspec

from common.protocol.status import Status
from deploy.kubernetes.cluster import Cluster
from deploy.steps import Run
from tests.integration.processes import wait_for

SERVERS = ("ps-rl-server-0", "ps-rl-server-1")
PATIENCE_SECONDS = 180.0


class Fleet(Run):
    """The run, whose status is asked inside of its servers' pods."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(Path())
        self._cluster = cluster

    def status(self) -> Status | None:
        """Of the server that has the run."""
        for server in SERVERS:
            status = self.status_of(server)
            if status is not None and status.phase == "serving":
                return status
        return None

    def status_of(self, server: str) -> Status | None:
        """None while it does not reply."""
        try:
            said = self._cluster.kubectl("exec", server, "-c", "server", "--", "role.sh", "status", "--json")
        except subprocess.CalledProcessError:
            return None
        return msgspec.json.decode(said, type=Status)

    def primary(self) -> str:
        """The server that has the run."""

        def serving() -> str:
            statuses = {server: self.status_of(server) for server in SERVERS}
            return next((name for name, status in statuses.items() if status and status.phase == "serving"), "")

        return str(wait_for(serving, within_seconds=PATIENCE_SECONDS))

    def wait_for_pair(self) -> tuple[str, str]:
        """The primary and its standby, once the standby has the whole state."""

        def is_followed() -> bool:
            status = self.status()
            return status is not None and status.standby is not None and status.standby.phase == "in sync"

        wait_for(is_followed, within_seconds=PATIENCE_SECONDS)
        primary = self.primary()
        return primary, SERVERS[1 - SERVERS.index(primary)]
