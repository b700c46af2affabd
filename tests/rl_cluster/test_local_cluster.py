"""The server of a cluster as it starts: it says where it listens, that the run is over, or why it failed."""

from pathlib import Path
from typing import Any

import pytest

from ps_common.errors import PsRlError
from ps_common.program.reasons import Reason
from ps_common.protocol.messages import StatusReply
from rl_cluster import local_cluster
from rl_cluster.local_cluster import LocalCluster, endpoint_of
from tests.ps_server.records.test_metrics import a_status
from tests.rl_cluster.test_supervision import ScriptedChild


class LeavingServer(ScriptedChild):
    """Leaves while it is waited for. Its own files are removed by then."""

    def __init__(self, *, is_over: bool) -> None:
        super().__init__(age_seconds=1.0)
        self.is_over = is_over

    reason: Reason | None = None

    def wait(self, *, within_seconds: float) -> bool:
        return True

    def cause_of_death(self) -> str:
        return "ps-server: the port is taken"


def test_a_server_that_ends_its_run_at_once_has_not_failed() -> None:
    """The limit of the run was reached before it was resumed."""
    server = LeavingServer(is_over=True)
    assert endpoint_of(server) is None  # type: ignore[arg-type]


def test_a_cluster_whose_server_follows_another_one_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class FollowingServer(ScriptedChild):
        log = tmp_path / "server.log"
        is_over = False
        exit_status = None

        def __init__(self, *_: object) -> None:
            super().__init__(age_seconds=1.0)

        def wait(self, *, within_seconds: float) -> bool:
            return False

        def ask_to_leave(self) -> None: ...

        def read_rest(self, *, within_seconds: float) -> None: ...

    reply = StatusReply(request=1, status=a_status(phase="standby"), run={}, schema=())
    monkeypatch.setattr(local_cluster, "Child", FollowingServer)
    monkeypatch.setattr(local_cluster, "endpoint_of", lambda *_, **__: "127.0.0.1:5")
    monkeypatch.setattr(local_cluster, "status_of", lambda *_, **__: reply)
    flags: dict[str, Any] = {"workers": 0, "server_flags": [], "worker_flags": [], "stall_seconds": 1.0}
    cluster = LocalCluster(tmp_path, host="127.0.0.1", port=5, **flags)
    with pytest.raises(PsRlError, match=r"end that one \(ps-ctl stop .*server\.log names it\) or take another --port"):
        cluster.poll()
