"""`ps-ctl`: its requests, its output and its errors. The server is a function."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ps_common.errors import PsRlError
from ps_common.protocol import messages
from ps_common.protocol.messages import ToServer, ToWorker
from ps_common.protocol.status import WorkerStatus
from ps_common.sockets.curve import ClientKeys
from ps_ctl import cli as control
from tests.ps_server.records.test_metrics import a_status
from tests.rows import row

SERVER = "10.0.0.1:5555"
WORKER = WorkerStatus(
    worker_id="a-machine-in-the-cellar-" + 75 * "x" + "0",  # as long as a name may be
    number=3,
    host="tower",
    environments=8,
    alive=True,
    silent_seconds=0.25,
    pushes=120,
    discarded=2,
    refused={"not_finite": 2, "outside_window": 1},
    steps=2400,
    staleness=1.5,
    meters={"steps_per_second": 812.4},
    release="0.3.0",
)
STATUS = a_status(
    preset="pong",
    release="0.3.1",
    version=341,
    parameters=150_000,
    global_steps=98765,
    steps_per_second=1234.5,
    minutes=12.34,
    learning_rate=0.0005,
    episodes=77,
    mean_return_100=-3.25,
    workers_alive=1,
    workers=(WORKER,),
)
STATUS_REPLY = messages.StatusReply(request=1, status=STATUS, run={}, schema=())
SAVED = messages.CheckpointSaved(request=1, path="runs/x/checkpoints/c.safetensors", version=12)


class Asked:
    """Stands for the server: keeps the requests, and gives one reply."""

    def __init__(self, answer: ToWorker | PsRlError) -> None:
        self.answer = answer
        self.questions: list[tuple[str, ToServer]] = []
        self.patience: list[float] = []

    def __call__(
        self, server: str, message: ToServer, *, timeout_seconds: float, keys: ClientKeys | None
    ) -> tuple[ToWorker, list[bytes]]:
        assert keys is None
        self.questions.append((server, message))
        self.patience.append(timeout_seconds)
        if isinstance(self.answer, PsRlError):
            raise self.answer
        return self.answer, []


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Callable[[ToWorker | PsRlError], Asked]:
    def answering(answer: ToWorker | PsRlError) -> Asked:
        asked = Asked(answer)
        monkeypatch.setattr(control, "ask_run", asked)
        return asked

    return answering


Answering = Callable[[ToWorker | PsRlError], Asked]
Printed = pytest.CaptureFixture[str]

# -- what is asked ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "question", "answer"),
    [
        ("status", messages.StatusRequest(request=1), STATUS_REPLY),
        ("checkpoint", messages.CheckpointRequest(request=1), SAVED),
        ("stop", messages.StopRequest(request=1), messages.Stopping(request=1)),
        ("promote", messages.Promote(request=1), messages.Promoted(request=1, epoch=2, version=3, lost="nothing")),
    ],
)
def test_a_command_is_one_question(server: Answering, command: str, question: ToServer, answer: ToWorker) -> None:
    asked = server(answer)
    assert control.control([command, "--server", SERVER]) == 0
    assert asked.questions == [(SERVER, question)]


def test_workers_that_do_not_leave_a_drained_run_in_time_are_named(server: Answering) -> None:
    asked = server(STATUS_REPLY)
    with pytest.raises(PsRlError, match=rf"^{WORKER.worker_id} did not leave within 0\.01 s\. No others are admitted"):
        control.control(["drain", "--server", SERVER, "--timeout", "0.01"])
    kinds = {type(question) for _, question in asked.questions}
    assert kinds == {messages.Adjust, messages.StatusRequest}, "and nothing is saved"


# -- what is printed --------------------------------------------------------------------------------------------------


def test_the_status_as_json_is_the_whole_status(server: Answering, capsys: Printed) -> None:
    server(STATUS_REPLY)
    control.control(["status", "--server", SERVER, "--json"])
    (line,) = capsys.readouterr().out.splitlines()
    status = json.loads(line)
    assert status.keys() == set(STATUS.__struct_fields__)
    assert (status["version"], status["mean_return_100"], status["refused"]) == (341, -3.25, {"not_finite": 2})
    assert status["workers"][0]["meters"] == {"steps_per_second": 812.4}


def test_the_status_as_text_names_the_run_its_numbers_and_its_workers(server: Answering, capsys: Printed) -> None:
    server(STATUS_REPLY)
    control.control(["status", "--server", SERVER])
    printed = capsys.readouterr().out
    figures = ("ps-rl 0.3.1", "version 341", "12.3 minutes", "T 98765", "1234 steps/s", "-3.25")
    for expected in ("pong is serving", *figures, "not_finite"):
        assert expected in printed
    (row,) = [line for line in printed.splitlines() if WORKER.worker_id in line]
    assert row.split() == [WORKER.worker_id, "3", "8", "yes", "0.2", "120", "3", "2400", "1.50", "812", "0.3.0"]


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        (
            ["set", "learning_rate=1e-4", "until_return=none"],
            {"schedule.learning_rate": 1e-4, "budget.until_return": None},
        ),
        (["pause"], {"paused": True}),
        (["resume"], {"paused": False, "drained": False}),
    ],
)
def test_what_is_typed_becomes_one_adjustment(server: Answering, words: list[str], settings: dict[str, Any]) -> None:
    asked = server(messages.Adjusted(request=1, adjustments=()))
    control.control([*words, "--server", SERVER])
    ((_, question),) = asked.questions
    assert isinstance(question, messages.Adjust)
    assert question.settings == settings
    assert question.by.startswith("ps-ctl at ")


def an_event(number: int, kind: messages.EventKind = "note", **fields: Any) -> messages.Event:
    return messages.Event(number=number, kind=kind, text=f"event {number}", global_steps=12, minutes=1.5, **fields)


@pytest.fixture
def hears(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Stands for a subscription: these messages, and then the test fails."""

    def hearing(*heard: Any) -> None:
        def subscription(server: str, *, keys: ClientKeys | None) -> Iterator[Any]:
            assert (server, keys) == (SERVER, None)
            yield from heard
            raise AssertionError("it listens on")

        monkeypatch.setattr(control, "subscription", subscription)

    return hearing


SUBSCRIBED = messages.Subscribed(request=1, lease_seconds=10.0, event=2, epoch=1)


def test_events_are_printed_until_the_run_ends(hears: Callable[..., None], capsys: Printed) -> None:
    hears(SUBSCRIBED, an_event(1), an_event(2), None, an_event(5, "warning", missed=2), an_event(6, "end"))
    control.control(["events", "--server", SERVER])
    printed = capsys.readouterr().out
    assert [line.split()[-1] for line in printed.splitlines()] == ["1", "2", "missing)", "5", "6"]
    assert "(2 events before this one are missing)" in printed
    assert "1.5 min  T 12" in printed


def test_top_shows_statuses_and_events_until_the_run_ends(hears: Callable[..., None], capsys: Printed) -> None:
    hears(SUBSCRIBED, messages.StatusUpdate(status=STATUS), an_event(1, "checkpoint"), an_event(2, "end"))
    control.control(["top", "--server", SERVER])
    printed = capsys.readouterr().out
    assert "T 98,765" in printed
    assert "event 2" in printed
    assert "event 1" not in printed


# -- mistakes ---------------------------------------------------------------------------------------------------------


def test_a_command_line_that_says_nothing_is_answered_with_usage(capsys: Printed) -> None:
    for argv in [[], ["dance"], ["status"], ["status", "--server"], ["stop", "--server", SERVER, "--now"]]:
        with row(argv):
            with pytest.raises(SystemExit) as ended:
                control.control(argv)
            assert ended.value.code == 2
            said = capsys.readouterr()
            assert "ps-ctl" in said.out + said.err


# -- plot -------------------------------------------------------------------------------------------------------------


# -- export -----------------------------------------------------------------------------------------------------------
