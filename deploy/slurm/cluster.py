"""
A Slurm of three nodes on one machine, for the scenario: each node is a network namespace with its own slurmd.

Needs root and Debian's packages slurmctld, slurmd, slurm-client, munge. Nothing outside of the given folder is used or
changed: munge has a key and a socket there. A node loses its power when all processes in its namespace are killed.
"""

import os
import secrets
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.trials.hosts import Host, Hosts, inside, ip
from tests.integration.processes import wait_for

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "ip")
NODES = ("n1", "n2", "n3")

CONF = """\
ClusterName=ps-rl
SlurmctldHost={machine}({login})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
SlurmctldPort=16817
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core,CR_LLN
SchedulerParameters=batch_sched_delay=0,sched_interval=2
ReturnToService=2
MpiDefault=none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SlurmdTimeout=10
KillWait=10
MailProg=/bin/true
SlurmdParameters=config_overrides
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
NODE = "NodeName={name} NodeHostname={machine} NodeAddr={address} Port={port} CPUs=4 RealMemory=16000 State=UNKNOWN\n"


class Cluster:
    """Running daemons. Commands run on the login host, where the controller is."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._hosts = Hosts(1 + len(NODES))
        self.login, *nodes = self._hosts.hosts
        self.nodes: dict[str, Host] = dict(zip(NODES, nodes, strict=True))
        for node in nodes:  # nothing is there, but the server tells its address by the route that it would take
            ip("-n", node.name, "route", "add", "default", "via", self.login.address)
        self._write_conf()
        try:
            self._start()
        except BaseException:
            self.end()
            raise

    def command(self, *words: str) -> str:
        """The output of a command of Slurm on the login host."""
        done = subprocess.run(
            [*self.login.prefix, *words],
            env=os.environ | {"SLURM_CONF": str(self.folder / "slurm.conf")},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
        return done.stdout.strip()

    def start_node(self, name: str) -> None:
        """Also one that has lost its power."""
        self._daemons[name] = self._daemon("slurmd", "-D", "-N", name, host=self.nodes[name])

    def power_off(self, name: str) -> None:
        """Kill everything on a node, at once."""
        for pid in subprocess.check_output(["ip", "netns", "pids", self.nodes[name].name], text=True).split():
            os.kill(int(pid), signal.SIGKILL)
        self._daemons.pop(name).wait()

    def cut(self, name: str) -> None:
        self._hosts.cut(self.nodes[name])

    def heal(self, name: str) -> None:
        self._hosts.heal(self.nodes[name])

    def states(self) -> dict[str, str]:
        """The state of each node, as sinfo names it."""
        return dict(line.split() for line in self.command("sinfo", "-h", "-N", "-o", "%N %T").splitlines())

    def end(self) -> None:
        for name in NODES:
            if name in self._daemons:
                self.power_off(name)
        for daemon in self._daemons.values():
            daemon.terminate()
            daemon.wait(30)
        self._hosts.remove()

    def _write_conf(self) -> None:
        machine = socket.gethostname()
        (self.folder / "state").mkdir()
        conf = CONF.format(machine=machine, login=self.login.address, folder=self.folder)
        for number, (name, host) in enumerate(self.nodes.items()):
            (self.folder / f"spool.{name}").mkdir()
            conf += NODE.format(name=name, machine=machine, address=host.address, port=17001 + number)
        (self.folder / "slurm.conf").write_text(conf)
        key = self.folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(128))

    def _start(self) -> None:
        munge = [f"--{what}={self.folder}/munge.{end}" for what, end in MUNGE_FILES.items()]
        self._daemons["munged"] = self._daemon("munged", "--foreground", "--force", *munge, host=self.login)
        wait_for((self.folder / "munge.socket").exists)
        self._daemons["slurmctld"] = self._daemon("slurmctld", "-D", "-c", "-i", host=self.login)
        for name in NODES:
            self.start_node(name)

        def all_idle() -> bool:
            try:
                return set(self.states().values()) == {"idle"}
            except AssertionError:  # the controller is starting
                return False

        wait_for(all_idle)

    def _daemon(self, program: str, *flags: str, host: Host) -> "subprocess.Popen[bytes]":
        with (self.folder / f"{program}.out").open("ab") as output, inside(host):
            return subprocess.Popen(
                [program, *flags],
                stdout=output,
                stderr=output,
                env=os.environ | {"SLURM_CONF": str(self.folder / "slurm.conf")},
                start_new_session=True,
            )


MUNGE_FILES = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}


@contextmanager
def cluster_in(folder: Path) -> Iterator[Cluster]:
    """Ends with the block, and leaves no process."""
    cluster = Cluster(folder)
    try:
        yield cluster
    finally:
        cluster.end()
