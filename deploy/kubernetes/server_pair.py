"""The run of the scenario's servers: which of them has it, and what it says."""

import os
from pathlib import Path

from deploy.kubernetes.cluster import Cluster
from deploy.status_inside import StatusInside
from deploy.steps import Run
from ps_common.protocol.status import Status
from tests.integration.processes import wait_for

SERVERS = ("ps-rl-server-0", "ps-rl-server-1")
PATIENCE_SECONDS = 180.0


class Fleet(Run):
    """The run, whose status is asked inside of its servers' pods."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(Path())
        self._cluster = cluster
        self._inside: dict[str, StatusInside] = {}  # by the server

    def status(self) -> Status | None:
        """Of the server that has the run."""
        for server in SERVERS:
            status = self.status_of(server)
            if status is not None and status.phase == "serving":
                return status
        return None

    def status_of(self, server: str) -> Status | None:
        """None while it does not reply."""
        if server not in self._inside:
            execute = self._cluster.command("exec", "-i", server, "-c", "server", "--")
            self._inside[server] = StatusInside(execute, os.environ)
        try:
            return self._inside[server].ask()
        except EOFError:
            self._inside.pop(server).end()
            return None

    def wait_for_status_of(self, server: str) -> Status:
        status: Status = wait_for(lambda: self.status_of(server), within_seconds=PATIENCE_SECONDS)
        return status

    def end(self) -> None:
        """End the programs that ask."""
        while self._inside:
            self._inside.popitem()[1].end()

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
