"""Workers whose custom parts have another source than the run's are refused, at every server that the run ever has."""

from typing import Any

from ps_common.errors import RequestRefused
from ps_common.protocol.messages import Code
from tests.simulation.cluster import Faults, SimulatedCluster, integers

RUN = {
    "optimizer": {"name": "sgd"},
    "schedule": {"learning_rate": 1.0},
    "network": {"name": "my_pkg:Torso"},
    "environment": {"id": "my_games:make"},
}
RIGHT = {"my_pkg": Code(hash="a" * 16, place="/home/a/my_pkg.py"), "my_games": Code(hash="c" * 16, place="/x.py")}
WRONG = RIGHT | {"my_pkg": Code(hash="b" * 16, place="/home/b/my_pkg.py")}
UNNEEDED = RIGHT | {"another": Code(hash="d" * 16, place="/y.py")}
CODE = {"w0": RIGHT, "w1": UNNEEDED, "wrong": WRONG, "silent": {}, "other": {"another": WRONG["my_pkg"]}}
FAULTY = Faults(drop=0.1, duplicate=0.2, longest_delay_seconds=0.3)
OPTIONS: dict[str, Any] = {
    "workers": 2, "updates": 10**6, "gradient": integers(1), "settings": RUN, "seed": 1, "faults": FAULTY, "code": CODE
}  # fmt: skip


def is_refused(cluster: SimulatedCluster) -> None:
    cluster.workers.append(wrong := cluster.add_worker("wrong", process=cluster.lives))
    cluster.run_until(lambda: wrong.error is not None)
    assert isinstance(wrong.error, RequestRefused)
    assert wrong.error.code == "other_code"
    for words in ("my_pkg of this run is aaaa", "/home/a/my_pkg.py", "bbbb", "/home/b/my_pkg.py", "wrong on simulated"):
        assert words in str(wrong.error)
    assert wrong.made == 0
    cluster.workers.remove(wrong)


def all_go_on(cluster: SimulatedCluster, pushes: int) -> None:
    before = [worker.acknowledged for worker in cluster.workers]
    cluster.run_until(
        lambda: all(worker.acknowledged > done + pushes for worker, done in zip(cluster.workers, before, strict=True))
    )
    assert [worker.error for worker in cluster.workers] == [None] * len(cluster.workers)


def test_a_worker_with_other_source_is_refused_and_told_which_file_differs_from_which() -> None:
    cluster = SimulatedCluster(**OPTIONS)
    all_go_on(cluster, 5)
    is_refused(cluster)
    assert cluster.server.refusals.counts["other_code"] >= 1
    cluster.workers += [cluster.add_worker("silent"), cluster.add_worker("other")]  # nothing of the run differs
    all_go_on(cluster, 5)


def test_a_resumed_server_remembers_the_code_before_any_worker_is_back() -> None:
    cluster = SimulatedCluster(**OPTIONS)
    cluster.run_until(lambda: cluster.checkpoint is not None)
    cluster.kill_server()
    honest, cluster.workers = cluster.workers, []
    cluster.restore_server()
    is_refused(cluster)
    cluster.workers = honest
    all_go_on(cluster, 5)
