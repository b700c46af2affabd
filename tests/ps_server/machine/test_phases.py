"""Which request is legal when."""

from typing import get_args

from ps_common.protocol.messages import ToServer
from ps_server.machine.dispatch import REQUESTS


def test_every_message_to_the_server_is_accepted_in_some_phase() -> None:
    assert REQUESTS.keys() == {*get_args(ToServer)}
    assert all(row.phases for row in REQUESTS.values())
