"""Which request is legal when."""

from typing import get_args

from ps_common.protocol.messages import ToServer
from ps_server.machine.phases import ACCEPTS


def test_every_message_to_the_server_is_accepted_in_some_phase() -> None:
    assert set().union(*ACCEPTS.values()) == {*get_args(ToServer)}
