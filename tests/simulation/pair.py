"""
A simulated cluster with a standby: a second machine, a second disk, and workers that know two addresses.

Each link can be cut by itself. A paused primary, as after SIGSTOP, does nothing, and finds what has arrived meanwhile
when it goes on.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from ps_common.protocol.messages import Promote, ToWorker
from ps_common.protocol.wire import read_to_server, read_to_worker, to_frames
from ps_server.machine.flow_control import Limits
from ps_server.machine.parameter_server import ParameterServer
from ps_server.standby.standby import Standby
from ps_server.state.effects import Exit, LogLine, SaveCheckpoint, Send, SendToServer
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.violations import violations_at

PEER = b"standby"


class SimulatedPair(SimulatedCluster):
    """`server` is the primary; `successor` what the standby has become."""

    def __init__(self, **options: Any) -> None:
        super().__init__(addresses=2, **options)
        self.is_paused = False
        self.link_is_cut = False  # between the two servers
        self.standby_is_reachable = True  # by workers
        self.link_bytes_per_second: float | None = None  # to the standby, in order; None: no limit
        self.longest_standstill_seconds = 0.0  # of the weights, while `watch` is true
        self.watch = False
        self._moved: tuple[int, float] = (0, 0.0)  # the version, and when it was first seen
        self._wire: deque[tuple[float, list[bytes]]] = deque()  # what is on the slow link, and when it has arrived
        self.sees_no_primary: set[str] = set()  # workers whose link to it is cut
        self.notes: list[str] = []  # of the standby
        self._inbox: list[Callable[[], None]] = []  # of the paused primary
        self._standby_writes_until: float | None = None
        self.standby = Standby(
            primary="p:1",
            process="the standby",
            draw=0,
            takeover_seconds=1.0,
            limits=Limits(lease_seconds=2.0, checkpoint_seconds=5.0),
            now=self.now,
        )
        self.standby.address = "s:1"

    @property
    def successor(self) -> ParameterServer:
        assert self.standby.server is not None, "the standby has not taken over"
        return self.standby.server

    def follow(self) -> None:
        """Until the standby has the state, and the word of the primary."""
        self.run_until(lambda: self.standby.holds_every_durable_push(now=self.now))

    def pause(self) -> None:
        self.is_paused, self.server_up = True, False

    def go_on(self) -> None:
        self.is_paused, self.server_up, self._next_tick = False, True, self.now
        inbox, self._inbox = self._inbox, []
        for deliver in inbox:
            deliver()

    def promote_by_admin(self, reason: str) -> None:
        """As `ps-ctl promote --reason`."""
        self._heard.add(b"ps-ctl")
        promote = Promote(request=1, reason=reason)
        self._do_standby(self.standby.receive(b"ps-ctl", promote, now=self.now))

    def promote(self) -> None:
        """The successor is what a test looks at from now on; the primary is gone for good."""
        self.kill_server()
        self.server = self.successor

    def step(self) -> None:
        super().step()
        self._look_at_version()
        while self._wire and self._wire[0][0] <= self.now:
            self._hear_at_standby(self._wire.popleft()[1])
        self._finish_writing_at_standby()
        if self._ticks:
            self._do_standby(self.standby.tick(now=self.now))
        assert (found := violations_at(self.standby)) == "", found

    # -- how it works -------------------------------------------------------------------------------------------------

    def _to_server(self, peer: bytes, frames: list[bytes]) -> None:
        """A worker's connections lead to the primary and to the standby in turn."""
        if peer == PEER or int(peer.rpartition(b"/")[2]) % 2 == 1:
            if peer.partition(b"/")[0].decode() in self.sees_no_primary:
                return
            if self.is_paused:
                self._inbox.append(lambda: self._to_server(peer, frames))
            else:
                super()._to_server(peer, frames)
        elif self.standby_is_reachable:
            self._heard.add(peer)
            message, vector = read_to_server(frames)
            self._do_standby(self.standby.receive(peer, message, vector, now=self.now))

    def follow_shard_1(self, first_shard: SimulatedCluster) -> None:
        super().follow_shard_1(first_shard)
        first_shard.others[self._other_peer + PEER] = self._hear_shard_1_at_standby

    def _from_shard(self, peer: bytes, frames: list[bytes]) -> None:
        """Other shards send to both, as one serves."""
        SimulatedCluster._to_server(self, peer, frames)
        self._heard.add(peer)
        self._do_standby(self.standby.receive(peer, *read_to_server(frames), now=self.now))

    def _hear_shard_1_at_standby(self, reply: ToWorker) -> None:
        if self.standby.server is not None:
            self._do_standby(self.standby.server.receive_from_first_shard(reply, now=self.now))

    def _to_worker(self, peer: bytes, frames: list[bytes]) -> None:
        if peer != PEER:
            super()._to_worker(peer, frames)
        elif self.link_bytes_per_second is None:
            self._hear_at_standby(frames)
        else:
            free = max(self.now, self._wire[-1][0] if self._wire else 0.0)
            self._wire.append((free + sum(map(len, frames)) / self.link_bytes_per_second, frames))

    def _hear_at_standby(self, frames: list[bytes]) -> None:
        if not self.link_is_cut:
            self._do_standby(self.standby.receive_from_primary(*read_to_worker(frames), now=self.now))

    def _look_at_version(self) -> None:
        version, since = self._moved
        if not self.watch or self.server.version != version:
            self._moved = (self.server.version, self.now)
        elif self.watch:
            self.longest_standstill_seconds = max(self.longest_standstill_seconds, self.now - since)

    def _do_standby(self, effects: list[Any]) -> None:
        for effect in effects:
            match effect:
                case SendToServer(flag="--shards"):
                    self._ask_shard_1(effect, self._other_peer + PEER)
                case SendToServer() if not self.link_is_cut:
                    frames = [bytes(frame) for frame in to_frames(effect.message)]
                    self.network.carry(partial(self._to_server, PEER, frames), link="standby>", now=self.now)
                case Send():
                    self._send(effect)
                case SaveCheckpoint():
                    self._standby_writes_until = self.now + self._checkpoint_takes_seconds
                    self._finish_writing_at_standby()
                case LogLine(text=text):
                    self.notes.append(text)
                case Exit():
                    self.exited = True

    def _finish_writing_at_standby(self) -> None:
        if self._standby_writes_until is not None and self.now >= self._standby_writes_until:
            self._standby_writes_until = None
            self._do_standby(self.successor.checkpoint_saved("simulated"))
