"""
The metric `ps_rl_workers_wanted` as Kubernetes' external metrics API, which a HorizontalPodAutoscaler reads.

It is the number of workers that reach STEPS_PER_SECOND at the present speed of a worker: nodes that are slow or gone
are made up for, and a run that is paused or over wants none. While no server answers there is no metric, and the
autoscaler leaves everything as it is.

The API server has authenticated and authorised whoever asks, and asks over TLS. The answer is a number, so questions
from inside the cluster are not checked again. SERVERS=HOST:PORT,HOST:PORT are the run's servers, KEYS is a folder with
a worker's keys.
"""

import json
import math
import os
import ssl
import sys
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ps_common.errors import PsRlError
from ps_common.protocol.status import Status
from ps_common.sockets.curve import ClientKeys, read_pair, read_public
from ps_common.sockets.request import status_of

GROUP = "external.metrics.k8s.io/v1beta1"
METRIC = "ps_rl_workers_wanted"
ANSWER_SECONDS = 3.0
SERVING = ("empty", "serving", "draining")  # phases of a server that has the run; its standby has another


def workers_wanted(status: Status, steps_per_second: float) -> int:
    """Of a run with this status."""
    if status.paused or status.ending or status.phase == "draining":
        return 0
    if status.workers_alive == 0:
        return 1
    if status.steps_per_second <= 0:
        return status.workers_alive  # they have just begun: it is not known what one of them can do
    return math.ceil(steps_per_second * status.workers_alive / status.steps_per_second)


def status_of_run(servers: Sequence[str], keys: ClientKeys | None) -> Status | None:
    """The answer of the one of the servers that has the run; None without one."""
    for server in servers:
        try:
            status = status_of(server, timeout_seconds=ANSWER_SECONDS, keys=keys).status
        except PsRlError as error:
            print(f"{server}: {error}", file=sys.stderr, flush=True)
            continue
        if status.phase in SERVING:
            return status
    return None


class MetricsServer(ThreadingHTTPServer):
    """Serves the API over TLS at `address`."""

    def __init__(
        self,
        address: tuple[str, int],
        certificate: Path,
        *,
        servers: Sequence[str],
        keys: ClientKeys | None,
        steps_per_second: float,
    ) -> None:
        """`certificate`: a PEM file of certificate and key."""
        super().__init__(address, _Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        # The handshake is the handler thread's, or a client that says nothing would keep all others waiting.
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self._servers = servers
        self._keys = keys
        self._steps_per_second = steps_per_second

    def answer(self, path: str) -> tuple[int, dict[str, Any]]:
        """HTTP status and body."""
        parts = path.strip("/").split("/")
        if path == "/healthz":
            return 200, {}
        if path == f"/apis/{GROUP}":
            resource = {"name": METRIC, "singularName": "", "namespaced": True, "kind": "ExternalMetricValueList"}
            resources = [{**resource, "verbs": ["get"]}]
            return 200, {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": GROUP, "resources": resources}
        if not path.startswith(f"/apis/{GROUP}/namespaces/") or parts[5:] != [METRIC]:
            return 404, _failure(404, "NotFound", f"there is {METRIC} alone")
        status = status_of_run(self._servers, self._keys)
        if status is None:
            return 503, _failure(503, "ServiceUnavailable", "no server of the run answers")
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        value = str(workers_wanted(status, self._steps_per_second))
        items = [{"metricName": METRIC, "metricLabels": {}, "timestamp": now, "value": value}]
        return 200, {"kind": "ExternalMetricValueList", "apiVersion": GROUP, "metadata": {}, "items": items}


class _Handler(BaseHTTPRequestHandler):
    server: MetricsServer
    timeout = 30.0

    def do_GET(self) -> None:
        code, body = self.server.answer(urlsplit(self.path).path)
        text = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """No line a request: the autoscaler asks every 15 seconds."""


def _failure(code: int, reason: str, message: str) -> dict[str, Any]:
    meta = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return {**meta, "code": code, "reason": reason, "message": message}


def main() -> None:
    keys = None
    if folder := os.environ.get("KEYS"):
        own = read_pair("KEYS", Path(folder) / "worker.key_secret")
        keys = ClientKeys(read_public("KEYS", Path(folder) / "server.key"), own)
    MetricsServer(
        ("", 6443),
        Path(sys.argv[1]),
        servers=os.environ["SERVERS"].split(","),
        keys=keys,
        steps_per_second=float(os.environ["STEPS_PER_SECOND"]),
    ).serve_forever()


if __name__ == "__main__":
    main()
