"""How a server begins, for each command and each thing that is found."""

from dataclasses import replace

import pytest

from ps_common.protocol.lineage import Lineage
from ps_common.protocol.status import STANDBY_PHASE, Status
from ps_server.plan import TABLE, Asked, Begin, Beginning, Found, Held, beginning
from tests.ps_server.records.test_metrics import a_status

P, S, HERE = "127.0.0.1:5", "127.0.0.1:6", "127.0.0.1:7"
FIRST = Lineage.begun("0123456789abcdef", secret="s", draw=1)
LATER = FIRST.promoted(draw=2)
HELD = Held(FIRST, FIRST, standby=S, primary=P, was_followed=False)


class Others:
    """The replies of other servers, and whom they were asked of."""

    def __init__(self, **replies: Status) -> None:
        self.asked: list[str] = []
        self._replies = {{"p": P, "s": S, "here": HERE}[name]: reply for name, reply in replies.items()}

    def __call__(self, address: str, seconds: float) -> Status | None:
        assert seconds > 0
        self.asked.append(address)
        return self._replies.get(address)


def serves(lineage: Lineage, phase: str = "serving") -> Status:
    return a_status(phase=phase, run_id=lineage.run_id, epoch=lineage.epoch)


def begun(asked: Asked, held: Held = HELD, **replies: Status) -> Beginning:
    return beginning(asked, held, Others(**replies))


def test_every_command_has_a_row_for_all_that_it_may_find() -> None:
    assert TABLE.keys() == set(Asked)
    for asked, row in TABLE.items():
        assert row.keys() == set(Found) - ({Found.ORIGINAL} if asked is Asked.STANDBY else set())


@pytest.mark.parametrize(
    ("asked", "begin"),
    [
        (Asked.NEW, Begin.IN_USE),
        (Asked.RESUME, Begin.NEXT_LIFE),
        (Asked.TAKE_BACK, Begin.TAKEN_BACK),
        (Asked.STANDBY, Begin.NEXT_LIFE),
    ],
)
def test_a_run_that_nobody_else_has_goes_on_here(asked: Asked, begin: Begin) -> None:
    for replies in ({}, {"s": serves(FIRST)}, {"s": serves(LATER, STANDBY_PHASE), "p": serves(FIRST)}):
        decided = begun(asked, **replies)
        assert (decided.begin, decided.found, decided.lineage) == (begin, Found.NOBODY, FIRST)


@pytest.mark.parametrize(
    ("asked", "begin"),
    [
        (Asked.NEW, Begin.FOLLOW),
        (Asked.RESUME, Begin.FENCED),
        (Asked.TAKE_BACK, Begin.TAKEN_BACK),
        (Asked.STANDBY, Begin.FENCED),
    ],
)
def test_a_run_that_another_server_has_does_not(asked: Asked, begin: Begin) -> None:
    decided = begun(asked, s=serves(LATER))
    assert (decided.begin, decided.at) == (begin, S)
    assert asked is Asked.NEW or decided.lineage == FIRST.replaced(S, epoch=LATER.epoch), (
        "whoever takes it back is above"
    )


def test_a_standby_follows_the_primary_that_has_the_run_again_by_whomever_it_knows_that() -> None:
    for held, replies in [
        (HELD, {"p": serves(LATER)}),
        (replace(HELD, known=FIRST.replaced("", epoch=LATER.epoch)), {"p": serves(LATER)}),
        (replace(HELD, known=FIRST.replaced(P, epoch=LATER.epoch)), {}),
    ]:
        decided = begun(Asked.STANDBY, held, **replies)
        assert (decided.begin, decided.found, decided.at) == (Begin.FOLLOW, Found.PRIMARY, P)


def test_the_user_decides_where_a_standby_that_followed_does_not_reply() -> None:
    held = replace(HELD, was_followed=True)
    assert begun(Asked.RESUME, held).begin is begun(Asked.STANDBY, held).begin is Begin.ASK_USER
    assert begun(Asked.TAKE_BACK, held).begin is Begin.TAKEN_BACK
    assert begun(Asked.RESUME, held, s=serves(FIRST, STANDBY_PHASE)).begin is Begin.NEXT_LIFE


def test_a_copy_of_a_live_folder_is_not_resumed_and_nobody_else_is_asked() -> None:
    others = Others(here=serves(FIRST))
    assert beginning(Asked.RESUME, replace(HELD, original=HERE), others).found is Found.ORIGINAL
    assert others.asked == [HERE]


def test_another_run_at_the_address_of_the_primary_stops_a_standby_alone() -> None:
    other = Lineage.begun("fedcba9876543210", secret="s", draw=1)
    assert begun(Asked.STANDBY, p=serves(other)).found is Found.OTHER_RUN
    assert begun(Asked.RESUME, p=serves(other)).begin is Begin.NEXT_LIFE


def test_a_run_that_was_replaced_asks_nobody_again() -> None:
    others = Others(s=serves(FIRST))
    decided = beginning(Asked.RESUME, replace(HELD, known=FIRST.replaced(S, epoch=LATER.epoch)), others)
    assert (decided.begin, others.asked) == (Begin.FENCED, [])
