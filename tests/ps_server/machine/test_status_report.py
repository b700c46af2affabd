"""The status of a run, number by number."""

import pytest

from ps_common.protocol import messages
from ps_common.protocol.status import Status
from ps_server.machine.status_report import FRESH_SECONDS, MAX_WORKERS
from ps_server.state.progress import Progress
from tests.ps_server.transcripts import Transcript, received
from tests.rows import row


def status_of(server: Transcript) -> Status:
    return server.machine.status(now=server.now)


def test_however_many_ask_a_status_is_made_a_few_times_a_second(
    server: Transcript, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, status = [], server.machine.status
    monkeypatch.setattr(server.machine, "status", lambda *, now: (made.append(now), status(now=now))[1])
    codes = []
    for number in range(100):
        reply = server.ask("one", messages.StatusRequest(request=number)).message
        codes.append(reply.code if isinstance(reply, messages.Refused) else "")
    assert codes == [""] * 10 + ["too_often"] * 90
    for number in range(100):
        server.answer(messages.StatusReply, f"peer-{number}", messages.StatusRequest(request=1))
    assert len(made) == 1
    server.push("a", 1)
    server.now += FRESH_SECONDS
    assert server.answer(messages.StatusReply, "two", messages.StatusRequest(request=1)).status.updates == 1


def test_a_status_counts_what_happened(server: Transcript) -> None:
    server.push("a", 1, [3, 0, 4], steps=10)
    server.push("a", 2, [0, 0, 1], steps=30, computed_on=1)
    server.push("a", 2, [0, 0, 1], steps=30)
    server.push("b", 1, [1, 1])
    server.refusal("nobody", messages.Heartbeat(request=1))
    server.pull("b", have=3)
    received(server.pull("b"))
    server.report("a", 1, 4.0, 8.0)
    server.save_and_complete()
    server.save()
    server.machine.checkpoint_failed("disk full")
    server.after(120)
    status = status_of(server)
    assert (status.version, status.updates, status.global_steps, status.duplicates) == (3, 2, 40, 1)
    assert (status.staleness_mean, status.staleness_recent, status.gradient_norm) == (0.5, 0.5, 3.0)
    assert status.staleness_counts[:3] == (1, 1, 0)
    assert sum(status.staleness_counts) == status.updates
    assert status.refused == {"wrong_size": 1, "unknown_worker": 1}
    assert (status.not_modified, status.snapshots) == (1, 1)
    assert (status.episodes, status.mean_return_100, status.best_mean_return_100) == (2, 6.0, None)
    assert (status.checkpoint_version, status.checkpoint_failures) == (3, 1)
    assert status.minutes == 2.0


def test_the_status_has_a_row_for_each_worker(server: Transcript) -> None:
    server.hello("c", host="tower", environments=8)
    server.push("c", 1, steps=10)
    server.push("c", 2, steps=10, computed_on=1)
    server.push("c", 3, [1, 1])
    server.report("c", 1, entropy=0.7)
    server.now += 2
    server.push("a", 1, steps=7)
    by_name = {worker.worker_id: worker for worker in status_of(server).workers}
    assert list(by_name) == ["a", "b", "c"]
    c = by_name["c"]
    assert (c.number, c.host, c.environments, c.alive, c.silent_seconds) == (2, "tower", 8, True, 2.0)
    assert (c.pushes, c.discarded, c.steps, c.staleness, c.meters) == (2, 1, 20, 0.5, {"entropy": 0.7})
    assert c.refused == {"wrong_size": 1}
    assert "2" in c.refusal, "the reason says what was wrong"
    assert by_name["a"].refusal == ""
    assert (by_name["a"].pushes, by_name["a"].steps, by_name["a"].silent_seconds) == (1, 7, 0.0)


def test_a_worker_that_said_goodbye_is_told_from_one_that_fell_silent(server: Transcript) -> None:
    server.hello("c")
    server.goodbye("c")
    server.after(1000)
    by_name = {worker.worker_id: worker for worker in status_of(server).workers}
    assert {name: (worker.alive, worker.left) for name, worker in by_name.items()} == {
        "a": (False, False),
        "b": (False, False),
        "c": (False, True),
    }
    server.hello("c")
    assert not next(worker for worker in status_of(server).workers if worker.worker_id == "c").left


def test_the_histogram_of_staleness_counts_each_update_once() -> None:
    for staleness, place in [(0, 0), (1, 1), (4, 4), (5, 5), (6, 5), (7, 6), (256, 13), (257, 14), (10**9, 14)]:
        with row(staleness, place):
            progress = Progress()
            for _ in range(3):
                progress.update_applied(steps=1, staleness=staleness, gradient_norm=1.0)
            assert [count for count in progress.staleness_counts if count] == [3]
            assert progress.staleness_counts[place] == 3
            again = Progress()
            again.restore(progress.record(now=0.0))
            assert again.staleness_counts == progress.staleness_counts


def test_the_dead_come_last_and_a_crowd_is_cut(server: Transcript) -> None:
    server.after(6)
    for number in range(MAX_WORKERS + 50):
        server.hello(f"w{number}")
    status = status_of(server)
    assert status.workers_alive == MAX_WORKERS + 50
    assert [worker.worker_id for worker in status.workers] == [f"w{number}" for number in range(MAX_WORKERS)]
