"""The Python client: tensors by name, in and out, and what is refused with which words."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from ps_client.shell.shard_connections import postponed_interrupt
from ps_common.errors import SchemaMismatch, SettingsError
from ps_common.protocol import messages
from ps_common.protocol.messages import ToServer
from ps_common.settings.run_spec import OPTIMIZER_SETTINGS
from ps_rl import ParameterServerClient, RunEnded
from tests.ps_client.loopback_server import LoopbackServer, Polite, Reply, serving
from tests.rows import row

ZEROS = {"w": torch.zeros(2), "b": np.zeros(())}


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    """A server whose run has three weights: 1, 2, 3."""
    with serving() as one:
        yield one


def test_weights_and_gradients_travel_by_name(server: LoopbackServer) -> None:
    with ParameterServerClient(server.address) as client:
        first = client.seed(ZEROS)
        assert first["w"].tolist() == [1, 2]
        assert first["b"].shape == ()
        assert float(first["b"]) == 3
        newer = client.push_pull({"b": 1.0, "w": np.array([10, 20])}, steps=7)
        assert (newer["w"].tolist(), float(newer["b"])) == ([-9, -18], 2)
        assert first["w"].tolist() == [1, 2]  # is the caller's
        assert client.version == 2
        client.push_pull({"w": None, "b": torch.tensor(1.0, requires_grad=True)})
        assert client.pull()["w"].tolist() == [-9, -18]
    pushes = server.received_of(messages.Push)
    assert [(push.steps, push.computed_on) for push in pushes] == [(7, 1), (1, 2)]
    assert server.received_of(messages.Goodbye)


@pytest.mark.parametrize(
    ("gradients", "sentence"),
    [
        ({"w": [1.0, 2.0]}, "tensor 'b' is missing; None stands for zeros"),
        ({"w": [1.0, 2.0], "b": 0.0, "v": 0.0}, "this run has no tensor 'v', only w, b"),
        ({"w": [1.0, 2.0, 3.0], "b": 0.0}, r"tensor 'w' has shape \[3\], not \[2\]"),
        ({"w": "many", "b": 0.0}, "tensor 'w' holds no numbers"),
    ],
)
def test_gradients_that_do_not_fit_are_named(
    server: LoopbackServer, gradients: dict[str, object], sentence: str
) -> None:
    with ParameterServerClient(server.address) as client:
        client.seed(ZEROS)
        with pytest.raises(SchemaMismatch, match=sentence):
            client.push_pull(gradients)
    assert not server.received_of(messages.Push)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"learning_rat": 1.0}, "learning_rat is not a setting of this run; did you mean learning_rate"),
        ({"learning_rate": -1.0}, r"ParameterServerClient: .* >= 0.* for schedule.learning_rate \(--learning-rate\)"),
        ({"optimizer": "adagrad"}, f"there are {', '.join(OPTIMIZER_SETTINGS)}"),
        ({"momentum": 0.9}, "momentum is not a setting of this run"),
        ({"name": "two words"}, "for example two-words"),
        ({"resend_mib": -1}, "resend_mib -1: must be"),
        ({"curve_secret": "worker.key_secret"}, "is of no use without --curve-server-key"),
    ],
)
def test_arguments_that_make_no_sense_are_refused_before_anything_is_sent(
    server: LoopbackServer, arguments: dict[str, object], sentence: str
) -> None:
    with pytest.raises(SettingsError, match=sentence):
        ParameterServerClient(server.address, **arguments)  # type: ignore[arg-type]
    assert not server.received


def test_hello_proposes_a_run_without_a_game_and_says_what_was_asked_for(server: LoopbackServer) -> None:
    with ParameterServerClient(server.address, optimizer="adam", beta1=0.8, learning_rate=1, name="a"):
        pass
    (hello, *_) = server.received_of(messages.Hello)
    assert hello.worker_id == "a"
    assert hello.overrides == {"optimizer.name": "adam", "optimizer.beta1": 0.8, "schedule.learning_rate": 1.0}
    assert hello.proposed_run["environment"]["id"] == "none"
    assert hello.proposed_run["optimizer"]["beta1"] == 0.8


def test_steps_and_meters_that_no_server_takes_are_refused_and_the_client_goes_on(server: LoopbackServer) -> None:
    with ParameterServerClient(server.address) as client:
        client.seed(ZEROS)
        for steps in (32.0, "7", None, -1, 10**9 + 1):
            with pytest.raises(SettingsError, match="steps"):
                client.push(ZEROS, steps=steps)  # type: ignore[arg-type]
        client.push(ZEROS, steps=np.int64(7))  # type: ignore[arg-type]
        client.push(ZEROS, steps=torch.tensor(8))  # type: ignore[arg-type]
        for meters in ({"two words": 1.0}, dict.fromkeys(map(str, range(32)), 1.0)):
            with pytest.raises(SettingsError, match="report"):
                client.report(**meters)
        client.report(loss=0.5)
    assert [push.steps for push in server.received_of(messages.Push)] == [7, 8]
    assert [report.meters for report in server.received_of(messages.Report)] == [{"loss": 0.5}]


def test_a_gradient_before_any_weights_is_refused_with_what_to_do(server: LoopbackServer) -> None:
    with (
        ParameterServerClient(server.address) as client,
        pytest.raises(SettingsError, match="no weights when this client joined: call seed"),
    ):
        client.push_pull(ZEROS)


def test_a_run_that_ends_ends_the_loop_and_closes_quietly() -> None:
    class Ending(Polite):
        def reply(self, message: ToServer, vector: bytes) -> Reply:
            if isinstance(message, messages.Push):
                return messages.Stop(reason="max_steps 10 reached")
            return super().reply(message, vector)

    with serving(Ending()) as server, ParameterServerClient(server.address) as client:
        client.seed(ZEROS)
        with pytest.raises(RunEnded, match="max_steps 10 reached"):
            client.push_pull(ZEROS)


def test_ctrl_c_comes_between_messages_and_not_inside() -> None:
    done = []

    def whole() -> None:
        with postponed_interrupt():
            os.kill(os.getpid(), signal.SIGINT)
            threading.Event().wait(0.01)  # a place where it would be raised
            done.append("the rest of the block")

    with pytest.raises(KeyboardInterrupt):
        whole()
    assert done
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_importing_the_package_loads_nothing_heavy() -> None:
    heavy = "{'torch', 'numpy', 'zmq', 'msgspec', 'gymnasium', 'matplotlib', 'ps_common'}"
    check = f"import rl_worker, sys; sys.exit(bool({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


def test_an_array_is_the_same_gradient_in_each_layout_byte_order_and_type(server: LoopbackServer) -> None:
    """What is pushed comes back as the difference of the weights, whatever memory it lay in."""
    values = np.array([3, 1])
    types = ["?", "i1", "u1", "<i2", ">i2", "<u2", ">u4", "<i8", ">u8", "<f2", ">f2", "<f4", ">f4", "<f8", ">f8", "g"]
    read_only = values.astype(np.float32)
    read_only.flags.writeable = False
    layouts: list[Any] = [read_only, values[::-1].copy()[::-1], np.repeat(values, 3)[::3], values[None].T[:, 0]]
    layouts += [layout.astype(kind) for layout in list(layouts) for kind in types]
    layouts += [layout.astype(kind)[::-1][::-1] for layout in list(layouts) for kind in (">f4", ">i8")]
    tensors = [torch.tensor([3, 1], dtype=kind) for kind in (torch.bfloat16, torch.float16, torch.int64, torch.bool)]
    tensors += [torch.tensor([3.0, 1.0]).to_sparse(), torch.view_as_real(torch.tensor([3 + 3j, 1 + 1j]))[:, 1]]
    with ParameterServerClient(server.address) as client:
        client.seed(ZEROS)
        for given in [*layouts, *tensors, [3, 1], [np.float16(3), np.uint8(1)], (3.0, 1.0)]:
            with row(given):
                before = client.pull()["w"]
                after = client.push_pull({"w": given, "b": None})["w"]
                as_numbers = given.to_dense().double() if torch.is_tensor(given) else np.asarray(given, np.float64)
                assert (before - after).tolist() == as_numbers.tolist()


def test_what_is_no_real_number_is_refused_and_never_cut(server: LoopbackServer) -> None:
    complex_ones = [np.array([1 + 2j, 3]), np.array([1, 2], ">c8"), torch.tensor([1j, 2]), [1j, 2.0], np.complex64(1)]
    others = [np.array(["1", "2"]), np.array([1, None]), np.array([1, 2], "M8[s]"), "many", object()]
    with ParameterServerClient(server.address) as client:
        client.seed(ZEROS)
        for given in [*complex_ones, *others]:
            with row(given), pytest.raises(SchemaMismatch, match=r"tensor 'w' holds (complex|no) numbers"):
                client.push({"w": given, "b": None})
            with row(given), pytest.raises(SchemaMismatch, match="tensor 'w' holds"):
                client.seed({"w": given})
    assert not server.received_of(messages.Push)


FORKS = """
import os, sys, threading
from ps_rl import ParameterServerClient, SettingsError

client = ParameterServerClient(sys.argv[1])
client.seed({"w": [0.0, 0.0], "b": 0.0})
if (child := os.fork()) == 0:
    refused = 0
    for call in (client.pull, lambda: client.push({"w": None, "b": None}), lambda: client.report(loss=1.0)):
        try:
            call()
        except SettingsError as error:
            refused += str(os.getppid()) in str(error)
    print("refused", refused, flush=True)
    if sys.argv[2] == "close":
        client.close()
    sys.exit(7)
print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print("parent", client.push_pull({"w": [1.0, 1.0], "b": None})["w"].tolist())
"""


@pytest.mark.parametrize("how", ["close", "exit"])
def test_a_forked_process_ends_without_its_parents_client_and_the_parent_goes_on(
    server: LoopbackServer, how: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKS, server.address, how], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines() == ["refused 3", "child 7", "parent [0.0, 1.0]"], done.stderr
    assert len(server.received_of(messages.Goodbye)) == 1, "the child has not left in its parent's name"


def test_a_client_that_cannot_read_its_run_leaves_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Newer(Polite):
        def reply(self, message: ToServer, vector: bytes) -> Reply:
            answer = super().reply(message, vector)
            if isinstance(answer, messages.Welcome):
                return msgspec.structs.replace(answer, run={**answer.run, "of_a_newer_release": 1})
            return answer

    with serving(Newer()) as server:
        with pytest.raises(SettingsError, match="of_a_newer_release"):
            ParameterServerClient(server.address)
        assert len(server.received_of(messages.Goodbye)) == 1
