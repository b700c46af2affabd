"""A server machine and its standby in one thread; the bytes of the wire pass between them."""

import math
from collections.abc import Sequence
from typing import Any

from ps_common.protocol import messages
from ps_common.protocol.messages import ToServer
from ps_common.protocol.wire import Buffer, read_to_server, read_to_worker, to_frames
from ps_server.machine.flow_control import Limits
from ps_server.machine.parameter_server import ParameterServer
from ps_server.standby.standby import Standby
from ps_server.state.effects import Effect, Send, SendToServer
from tests.ps_server.transcripts import CHECKPOINT_SECONDS, EPOCH, LEASE_SECONDS, Transcript, later

PRIMARY, STANDBY = "primary:5555", "standby:5555"
PEER = "the standby's connection"
TICK_SECONDS = 0.25
TAKEOVER_SECONDS = 1.0


class WithStandby(Transcript):
    """Every message reaches the standby at once, unless the cable is cut. `told` holds the effects of the standby."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.told: list[Effect] = []
        self.is_cut = False
        self.standby = self.new_standby()

    def new_standby(
        self, server: ParameterServer | None = None, *, process: str = "first", has_arbiter: bool = False
    ) -> Standby:
        standby = Standby(
            primary=PRIMARY,
            process=process,
            has_arbiter=has_arbiter,
            draw=3,
            takeover_seconds=TAKEOVER_SECONDS,
            limits=Limits(lease_seconds=LEASE_SECONDS, checkpoint_seconds=CHECKPOINT_SECONDS),
            now=self.now,
            server=server,
        )
        standby.address = STANDBY
        return standby

    @classmethod
    def following(cls, *, workers: Sequence[str] = ("a", "b"), **sections: Any) -> "WithStandby":
        """A seeded run, and a standby in sync."""
        server = cls.seeded(workers=workers, **sections)
        assert isinstance(server, WithStandby)
        server.pass_time(1.0)
        assert server.machine.replication.followed < math.inf
        assert server.machine.checkpoints.is_writing, "the address of the standby is to be on disk"
        server.machine.checkpoint_saved("with the standby's address")
        return server

    def say(self, peer: str, message: ToServer, buffers: Sequence[Buffer] = ()) -> list[Effect]:
        effects = super().say(peer, message, buffers)
        self.to_standby(effects)
        return effects

    def to_standby(self, effects: Sequence[Effect]) -> None:
        """Deliver the messages for the standby."""
        for effect in effects:
            if isinstance(effect, Send) and effect.to == PEER.encode() and not self.is_cut:
                frames = [bytes(frame) for frame in to_frames(effect.message, effect.vector)]
                self.from_standby(self.standby.receive_from_primary(*read_to_worker(frames), now=self.now))

    def from_standby(self, effects: Sequence[Effect]) -> None:
        """Carry out effects of the standby: its messages reach the primary."""
        self.told += effects
        for effect in effects:
            if isinstance(effect, SendToServer) and not self.is_cut:
                message, _ = read_to_server([bytes(frame) for frame in to_frames(effect.message)])
                kept = self.effects
                self.to_standby(self.machine.receive(PEER.encode(), message, now=self.now))
                self.effects = kept

    def pass_time(self, seconds: float) -> None:
        """Let time pass in small steps, with a tick of both after each."""
        for _ in range(round(seconds / TICK_SECONDS)):
            self.to_standby(self.after(TICK_SECONDS))
            self.from_standby(self.standby.tick(now=self.now))

    def silence(self, seconds: float) -> None:
        """The primary is gone, or cut off; the standby lives on."""
        self.is_cut = True
        for _ in range(round(seconds / TICK_SECONDS)):
            self.now += TICK_SECONDS
            self.from_standby(self.standby.tick(now=self.now))

    def witness(self, worker: str, **fields: Any) -> messages.Hello:
        """The HELLO of a worker that the primary has served until it fell silent to the standby."""
        silent = self.now - self.standby.following.heard
        known = later(EPOCH) | {"served_seconds": silent, "silent_seconds": silent}
        return self.hello_of(worker, **known | fields)

    def ask_standby(self, message: ToServer, buffers: Sequence[Buffer] = (), *, peer: str = "a") -> list[Effect]:
        """A message of a worker to the standby."""
        effects = self.standby.receive(peer.encode(), message, buffers, now=self.now)
        self.told += effects
        return effects
