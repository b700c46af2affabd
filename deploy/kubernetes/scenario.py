"""The fleet in use on a cluster: scaled, killed, cut off, drained; pushes counted. scenario.sh says what it takes."""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from deploy.kubernetes.cluster import NAMESPACE, Cluster
from deploy.kubernetes.overlays import COUNTED, COUNTING, FLAGS, FLEET, SHARDED, VOLUME
from deploy.kubernetes.server_pair import PATIENCE_SECONDS, SERVERS, Fleet
from deploy.steps import FIRST_PUSH_SECONDS, alive_in, step
from ps_ctl.folder_commands import make_keys
from tests.integration.processes import wait_for

HERE = Path(__file__).parent
WORKER = "ps-rl-worker"
PART = "app.kubernetes.io/part-of=ps-rl"
# Prints the newest weights of the server beside it; eight, as the counting workers have it.
WEIGHTS = """
from ps_common.protocol import codecs, messages
from ps_common.sockets.request import ask
reply, vector = ask("127.0.0.1:5555", messages.Pull(request=1), timeout_seconds=30)
print(*codecs.CODECS[reply.codec].decode(vector, 8).tolist())
"""
ROOT = HERE.parents[1]
COUNTING_PROGRAM = (ROOT / "benchmarks" / "trials" / "swarm.py", ROOT / "tests" / "integration" / "integer_worker.py")


def prepare(cluster: Cluster, folder: Path) -> None:
    """A new namespace with keys, and the volumes where they are asked for."""
    clear(cluster)
    cluster.kubectl("create", "namespace", NAMESPACE)
    keys = folder / "keys"
    make_keys(keys)
    authorized = ("authorized/worker.key", "authorized/admins/admin.key")
    files = {
        "ps-rl-worker-keys": ("server.key", "worker.key_secret"),
        "ps-rl-server-keys": ("server.key", "server.key_secret", "worker.key_secret", *authorized),
    }
    for secret, names in files.items():
        cluster.kubectl("create", "secret", "generic", secret, *(f"--from-file={keys / name}" for name in names))
    cluster.kubectl("create", "secret", "generic", "ps-rl-page", "--from-literal=token=token-of-the-scenario")
    if volumes := os.environ.get("VOLUMES"):
        for number in range(5):
            cluster.kubectl("delete", "persistentvolume", f"{NAMESPACE}-{number}", "--ignore-not-found")
            cluster.on_node("rm", "-rf", f"{volumes}/{number}")
            cluster.on_node("install", "-d", "-o", "1000", "-g", "1000", f"{volumes}/{number}")
            cluster.apply(VOLUME.format(namespace=NAMESPACE, number=number, folder=volumes))


def overlay(cluster: Cluster, folder: Path, text: str, *files: Path) -> str:
    """The manifests of a kustomization of the scenario's own, with these files beside it."""
    image, _, tag = os.environ["IMAGE"].rpartition(":")
    folder.mkdir()
    for file in files:
        shutil.copy(file, folder)
    here = os.path.relpath(HERE, folder)
    values = {"namespace": NAMESPACE, "here": here, "image": image, "tag": tag, "flags": FLAGS}
    (folder / "kustomization.yaml").write_text(text.format(**values))
    return cluster.rendered(folder)


def clear(cluster: Cluster) -> None:
    cluster.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait")


def in_use(cluster: Cluster, fleet: Fleet, folder: Path) -> None:
    """A run of all parts: scaled, workers killed, its node drained, ended."""
    manifest = overlay(cluster, folder / "fleet", FLEET)
    with step("first push after the apply of two servers and two workers"):
        cluster.apply(manifest)
        fleet.wait_for_push(within_seconds=FIRST_PUSH_SECONDS)
    with step("both workers push, a standby follows, every probe is content"):
        fleet.wait_for_workers(2)
        fleet.wait_for_pair()
        cluster.kubectl("rollout", "status", "statefulset/ps-rl-server", "--timeout=120s")
    with step("metrics of the run on the page"):
        wait_for(lambda: "ps_rl_workers{" in metrics(cluster), within_seconds=PATIENCE_SECONDS)
    with step("scaled to four workers; all push"):
        cluster.kubectl("scale", "deployment/ps-rl-worker", "--replicas=4")
        fleet.wait_for_workers(4)
    with step("scaled to two workers; two leave in order, two push"):
        before = alive_in(fleet.wait_for_status())
        cluster.kubectl("scale", "deployment/ps-rl-worker", "--replicas=2")
        fleet.wait_for_workers(2)
        gone = before - alive_in(fleet.wait_for_status())
        log = cluster.kubectl("logs", fleet.primary(), "-c", "server", "--tail=200")
        assert all(f"{worker} left" in log for worker in gone), log
    with step("worker pod killed: replaced"):
        pod = cluster.pods(WORKER)[0]
        (name,) = (worker for worker in alive_in(fleet.wait_for_status()) if worker.startswith(pod))
        cluster.delete_at_once(pod)
        fleet.wait_until_gone(name)
        fleet.wait_for_workers(2)
    drain(cluster, fleet)
    with step("network policies: accepted; whether the cluster enforces them is not tested"):
        assert len(cluster.objects("networkpolicies")) == 2
    with step("the run is stopped with an admin's key, and all is deleted but the volumes"):
        stop(cluster, fleet, folder / "keys")
        delete(cluster, manifest)


def delete(cluster: Cluster, manifest: str) -> None:
    cluster.kubectl("delete", "--filename", "-", "--wait", stdin=manifest)
    wait_for(lambda: not cluster.objects("pods"), within_seconds=PATIENCE_SECONDS)
    assert len(cluster.objects("persistentvolumeclaims")) == 2


def counted(cluster: Cluster, fleet: Fleet, folder: Path) -> None:
    """A run of workers that count their pushes: its servers are killed, and links cut."""
    manifest = overlay(cluster, folder / "counted", COUNTED, *COUNTING_PROGRAM)
    with step("counted: two servers and two workers"):
        cluster.apply(manifest)
        cluster.apply("".join(COUNTING.format(image=os.environ["IMAGE"], number=number) for number in (0, 1)))
        fleet.wait_for_workers(2)
    with step("counted: primary killed; one of the two has the run, and is followed by the other"):
        primary, _ = fleet.wait_for_pair()
        cluster.kill(primary, "ps-server")
        fleet.wait_for_workers(2)
        primary, standby = fleet.wait_for_pair()
    with step("counted: pod of the primary deleted, the run handed over, and followed again"):
        cluster.kubectl("delete", "pod", primary)
        fleet.wait_for_workers(2)
        assert fleet.wait_for_pair() == (standby, primary)
    with step("counted: both servers killed at once, resumed from their volumes"):
        for server in SERVERS:
            cluster.kill(server, "ps-server")
        fleet.wait_for_workers(2)
        fleet.wait_for_pair()
    if cluster.node_can_be_touched:
        with step("counted: link of a worker cut until its lease has ended; it joins again"):
            link = cluster.link_of("counting-1")
            cluster.set_link(link, "down")
            try:
                fleet.wait_until_gone("worker-1")
            finally:
                cluster.set_link(link, "up")
            fleet.wait_for_workers(2)
    else:
        print("skipped           counted: link of a worker cut; NODE is not given", flush=True)
    with step("counted: every push"):
        print(f"                  {count(cluster, fleet)}", flush=True)
    cluster.kubectl("delete", "pod", "--selector=counting", "--grace-period=0", "--force")
    delete(cluster, manifest)


def sharded(cluster: Cluster, fleet: Fleet, folder: Path) -> None:
    """A run of four servers, one of which is killed."""
    servers = [f"ps-rl-server-{number}" for number in range(4)]
    manifest = overlay(cluster, folder / "sharded", SHARDED)

    def all_serve_more_than(updates: int) -> bool:
        statuses = [fleet.status_of(server) for server in servers]
        return all(status and status.phase == "serving" and status.updates > updates for status in statuses)

    with step("sharded: both workers push to all four servers"):
        cluster.apply(manifest)
        fleet.wait_for_workers(2)
        wait_for(lambda: all_serve_more_than(0), within_seconds=PATIENCE_SECONDS)
    with step("sharded: a server killed, resumed alone; both workers push to all"):
        before = fleet.wait_for_status_of(servers[2])
        cluster.kill(servers[2], "ps-server")
        wait_for(lambda: all_serve_more_than(before.updates + 20), within_seconds=PATIENCE_SECONDS)
        assert fleet.wait_for_status_of(servers[2]).epoch > before.epoch
        fleet.wait_for_workers(2)
    cluster.kubectl("delete", "--filename", "-", "--wait", stdin=manifest)


def count(cluster: Cluster, fleet: Fleet) -> str:
    """The workers stop; the weights against what they have noted. Raises AssertionError."""
    pods = ("counting-0", "counting-1")
    script = "import numpy; print(*numpy.fromfile('/tmp/counters', dtype=numpy.int64))"

    def noted() -> np.ndarray:
        """Pushes begun and acknowledged: [workers, 2]."""
        return np.array([cluster.kubectl("exec", pod, "--", "python", "-c", script).split() for pod in pods], dtype=int)

    for pod in pods:
        cluster.kubectl("exec", pod, "--", "touch", "/tmp/stop")
    wait_for(lambda: (noted()[:, 0] == noted()[:, 1]).all(), within_seconds=PATIENCE_SECONDS)
    begun = noted()[:, 0]
    said = cluster.kubectl("exec", fleet.primary(), "-c", "server", "--", "python", "-c", WEIGHTS)
    applied = np.array(said.split(), dtype=float)[: len(pods)].astype(int)
    lost, doubled = (int(difference.clip(min=0).sum()) for difference in (begun - applied, applied - begun))
    said = f"{begun.sum()} pushes acknowledged, lost={lost}, doubled={doubled}"
    assert begun.sum() > 0, said
    assert not lost, said
    assert not doubled, said
    return said


def drain(cluster: Cluster, fleet: Fleet) -> None:
    """Of the only node: what is evicted has nowhere to go, so the budgets have to hold the drain up."""
    nodes = [node["metadata"]["name"] for node in cluster.objects("nodes")]
    if len(nodes) != 1:
        print("skipped           drain: the cluster has several nodes, and other people's pods", flush=True)
        return
    with step("drain of the node: held up by the budgets; a server and a worker stay"):
        fleet.wait_for_pair()
        try:
            flags = (f"--pod-selector={PART}", "--ignore-daemonsets", "--delete-emptydir-data", "--force")
            said = cluster.kubectl("drain", nodes[0], *flags, "--timeout=25s", check=False)
            assert "disruption budget" in said, said
            fleet.wait_for_workers(1)
        finally:
            cluster.kubectl("uncordon", nodes[0])
    with step("node back: two workers push, a standby follows"):
        fleet.wait_for_workers(2)
        fleet.wait_for_pair()


def metrics(cluster: Cluster) -> str:
    """Of the page of a server."""
    address = "r.Request('http://127.0.0.1:8265/metrics', headers={'Authorization': 'Bearer token-of-the-scenario'})"
    script = f"import urllib.request as r; print(r.urlopen({address}).read().decode())"
    return cluster.kubectl("exec", SERVERS[0], "-c", "page", "--", "python", "-c", script, check=False)


def stop(cluster: Cluster, fleet: Fleet, keys: Path) -> None:
    """By an admin, who puts the key where the server is."""
    control = "ps-ctl stop --server 127.0.0.1:5555 --curve-server-key /keys/server.key --curve-secret /tmp/admin"
    into = ("exec", "-i", fleet.primary(), "-c", "server", "--", "sh", "-ec", f"cat >/tmp/admin; {control}")
    said = cluster.kubectl(*into, stdin=(keys / "admin.key_secret").read_text())
    assert "the run is ending" in said, said


def main() -> None:
    cluster = Cluster.of_environment()
    fleet = Fleet(cluster)
    with tempfile.TemporaryDirectory() as folder:
        try:
            with step("namespace, keys and volumes made"):
                prepare(cluster, Path(folder))
            in_use(cluster, fleet, Path(folder))
            counted(cluster, fleet, Path(folder))
            sharded(cluster, fleet, Path(folder))
        except BaseException:
            tell(cluster)
            raise
        finally:
            fleet.end()
            cluster.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait", check=False)


def tell(cluster: Cluster) -> None:
    """The cluster's events and logs, to find out what went wrong."""
    look: Callable[..., str] = lambda *arguments: cluster.kubectl(*arguments, check=False)  # noqa: E731
    print(look("get", "all,pdb,pvc", "--output", "wide"), look("get", "events")[-4000:])
    for pod in (*SERVERS, *cluster.pods(WORKER)):
        print(f"--- {pod}", look("logs", pod, "--all-containers", "--prefix", "--tail=30"), flush=True)


if __name__ == "__main__":
    main()
