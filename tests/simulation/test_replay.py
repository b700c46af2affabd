"""A recording leads the machine to the same decisions again; a decision that differs is shown."""

import logging
from pathlib import Path

import pytest

from ps_common.protocol.messages import Fence, Seed
from ps_server.machine.phases import Phase
from ps_server.shell import recording as recordings
from ps_server.shell.recording import Recording, beginning, framed
from ps_server.state.effects import ReloadCheckpoint
from tests.ps_server.transcripts import SCHEMA, SECRET, Transcript, a_lineage, a_run, encoded, later, secret_of
from tests.rows import row
from tests.simulation.cluster import Faults, SimulatedCluster, ones
from tests.simulation.pair import SimulatedPair
from tests.simulation.replay import Differs, replay, rows_of

SETTINGS = {"optimizer": {"name": "adam"}, "schedule": {"learning_rate": 0.01}}
FAULTS = Faults(drop=0.05, duplicate=0.2, longest_delay_seconds=0.3)
MOST_BYTES = 10**7


def a_cluster(rule: str = "async") -> SimulatedCluster:
    settings = SETTINGS | {"consistency": {"rule": rule} | ({"slack": 2} if rule in ("ssp", "paced") else {})}
    return SimulatedCluster(
        workers=3, updates=10**6, seed=1, faults=FAULTS, gradient=ones, settings=settings, receive_bytes=24, in_flight=2
    )


def steps(cluster: SimulatedCluster, count: int) -> None:
    for _ in range(count):
        cluster.step()


@pytest.mark.parametrize("vectors", [False, True])
def test_a_recorded_server_decides_the_same_again(tmp_path: Path, vectors: bool) -> None:
    for rule in ("async", "ssp", "paced", "sync"):
        with row(rule):
            file = tmp_path / f"{rule}.recording"
            cluster = a_cluster(rule)
            recording = Recording(file, cluster.server, most_bytes=MOST_BYTES, vectors=vectors)
            steps(cluster, 60)
            cluster.server.unreadable(b"a stranger", "no message", now=cluster.now)
            steps(cluster, 60)
            recording.close()
            again = replay(file)
            assert cluster.server.version > 2
            assert (again.version, again.check()) == (cluster.server.version, "")
            weights = cluster.weights().tolist()
            assert vectors == (again.run is not None and again.run.weights.flat.tolist() == weights)


def test_a_recording_that_begins_in_the_middle_is_replayed_too_and_keeps_to_its_size(tmp_path: Path) -> None:
    cluster = a_cluster("ssp")
    steps(cluster, 120)
    file = tmp_path / "recording"
    recording = Recording(file, cluster.server, most_bytes=160_000, vectors=False)
    for _ in range(9):
        steps(cluster, 50)
        size = sum(path.stat().st_size for path in tmp_path.iterdir())
        assert size < 160_000 + 2 * 40_000, "a file has its beginning and the last row beyond its half"
    recording.close()
    assert {path.name for path in tmp_path.iterdir()} == {"recording", "recording.before"}
    assert replay(file).version == cluster.server.version
    assert 0 < replay(tmp_path / "recording.before").version < cluster.server.version


def test_a_standby_is_replayed_through_its_takeover(tmp_path: Path) -> None:
    pair = SimulatedPair(workers=2, updates=10**6, seed=1, faults=FAULTS, gradient=ones, settings=SETTINGS)
    file = tmp_path / "recording"
    recording = Recording(file, pair.standby, most_bytes=MOST_BYTES, vectors=False)
    pair.follow()
    steps(pair, 50)
    pair.kill_server()
    pair.run_until(lambda: pair.standby.server is not None and pair.successor.membership.count_alive() == 2)
    steps(pair, 50)
    recording.close()
    lines: list[str] = []
    assert replay(file, show=lines.append).version == pair.successor.version
    assert any("w0:" in line and "w1:" in line for line in lines), "a column for each member"


def test_what_guards_said_of_vectors_and_lost_weights_come_out_of_a_recording_without_vectors(tmp_path: Path) -> None:
    server = Transcript(a_run())
    recording = Recording(tmp_path / "recording", server.machine, most_bytes=MOST_BYTES, vectors=False)
    server.hello("a")
    assert server.refusal("a", Seed(request=7, schema=SCHEMA.specs), encoded([float("nan"), 0, 0])).code == "not_finite"
    server.seed("a")
    saved = server.save_and_complete()
    assert server.push("a", 1).verdict == "applied"
    assert server.push("a", 2, [float("nan")] * 3).code == "not_finite"
    assert server.push("a", 3, [3e38] * 3).code == "absurd_norm"
    assert server.push("a", 4).verdict == "applied"
    server.run.weights.flat.fill_(float("nan"))
    assert any(isinstance(effect, ReloadCheckpoint) for effect in server.after(0.25))
    server.machine.reloaded("here", saved.vectors, saved.record, now=server.now)
    assert server.push("a", 5).verdict == "applied"
    recording.close()
    again = replay(tmp_path / "recording")
    assert (again.version, again.run and again.run.progress.updates) == (server.machine.version, 3)


def test_a_recording_has_no_secret_and_a_proof_is_believed_again(tmp_path: Path) -> None:
    """Neither that of the run, nor those of workers, nor a proof that another server of the run could show."""
    server = Transcript(a_run())
    server.hello("a")
    server.seed("a")
    recording = Recording(tmp_path / "recording", server.machine, most_bytes=MOST_BYTES, vectors=True)
    server.hello("b")
    assert server.refusal("a", server.hello_of("a", process=2)).code == "name_taken"
    server.say("stranger", Fence(request=7, **later() | {"epoch_proof": "f" * 32}, address="s:1"))
    assert server.push("a", 1).verdict == "applied"
    server.say("b", Fence(request=8, **later(), address="s:1"))
    recording.close()
    content = (tmp_path / "recording").read_bytes() + beginning(server.machine, vectors=True)
    for secret in (SECRET, *map(secret_of, "ab"), secret_of("a", 2), a_lineage().proof, later()["epoch_proof"]):
        assert secret.encode() not in content
    again = replay(tmp_path / "recording")
    assert again.phase == server.machine.phase == Phase.FENCED
    assert (tmp_path / "recording").stat().st_mode & 0o077 == 0


def test_a_decision_that_differs_is_shown(tmp_path: Path) -> None:
    cluster = a_cluster()
    file = tmp_path / "recording"
    recording = Recording(file, cluster.server, most_bytes=MOST_BYTES, vectors=False)
    steps(cluster, 100)
    recording.close()
    first, *rows = rows_of(file)
    settled = [(at, one[3]) for at, call in enumerate(rows, 1) for one in call[4] if len(one) > 1 and one[3]]
    number, numbers = settled[len(settled) // 2]
    numbers[0] ^= 1
    file.write_bytes(b"".join(map(framed, [first, *rows])))
    with pytest.raises(Differs, match=f"call {number}, receive"):
        replay(file)


def test_the_state_of_a_server_that_cannot_be_is_replayed(tmp_path: Path) -> None:
    cluster = a_cluster()
    steps(cluster, 100)
    assert cluster.server.run is not None
    cluster.server.run.ledger.change("w0", durable=10**6)
    broken = cluster.server.check()
    (tmp_path / "broken").write_bytes(beginning(cluster.server, vectors=False, broken=broken))
    lines: list[str] = []
    replay(tmp_path / "broken", show=lines.append)
    assert lines == [f"that cannot be: {broken}"]


def test_a_disk_that_takes_nothing_ends_the_recording_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in (tmp_path / "nowhere" / "recording", tmp_path / "full"):
        with row(file):
            if file.name == "full":
                monkeypatch.setattr(recordings, "opened_to_write", lambda *_, **__: open("/dev/full", "w+b"))  # noqa: SIM115
            caplog.clear()
            cluster = a_cluster()
            recording = Recording(file, cluster.server, most_bytes=MOST_BYTES, vectors=False)
            steps(cluster, 120)
            recording.close()
            assert cluster.server.version > 10
            assert [one.levelno for one in caplog.records] == [logging.WARNING]
            assert "cannot be written, the run goes on without it" in caplog.text


def test_a_bound_that_the_state_fills_ends_the_recording(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cluster = a_cluster()
    recording = Recording(tmp_path / "recording", cluster.server, most_bytes=10_000, vectors=False)
    steps(cluster, 50)
    recording.close()
    assert cluster.server.version > 1
    assert [one.levelno for one in caplog.records] == [logging.WARNING]
    assert "--record-mib" in caplog.text


def test_nothing_but_classes_of_the_machine_is_made(tmp_path: Path) -> None:
    first = ["ps-rl recording 2", "", [0], [["subprocess:Popen", {}]], False, ""]
    (tmp_path / "recording").write_bytes(framed(first))
    with pytest.raises(AssertionError, match="no class of a machine"):
        replay(tmp_path / "recording")
