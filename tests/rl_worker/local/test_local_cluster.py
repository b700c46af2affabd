"""The server of a cluster as it starts: it says where it listens, that the run is over, or why it failed."""

from pathlib import Path

import pytest

from common.errors import PsRlError
from rl_worker.local.local_cluster import endpoint_of, last_written
from tests.rl_worker.local.test_supervision import ScriptedChild


class LeavingServer(ScriptedChild):
    """Leaves while it is waited for. Its own files are removed by then."""

    def __init__(self, *, is_over: bool) -> None:
        super().__init__(age_seconds=1.0)
        self.is_over = is_over

    def wait(self, *, within_seconds: float) -> bool:
        return True

    def cause_of_death(self) -> str:
        return "ps-server: the port is taken"


def test_a_server_that_ends_its_run_at_once_has_not_failed(tmp_path: Path) -> None:
    """The limit of the run was reached before it was resumed."""
    server = LeavingServer(is_over=True)
    assert endpoint_of(server, tmp_path / "endpoint", written_before=0) is None  # type: ignore[arg-type]


def test_a_server_that_leaves_with_an_error_has_failed_with_its_last_words(tmp_path: Path) -> None:
    path = tmp_path / "endpoint"
    path.write_text("127.0.0.1:5555\n")  # of a server before it
    with pytest.raises(PsRlError, match="the server failed: ps-server: the port is taken"):
        endpoint_of(LeavingServer(is_over=False), path, written_before=last_written(path))  # type: ignore[arg-type]
