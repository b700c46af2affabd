"""
A vector environment of simulators that connect over TCP, a game each. README.md beside it has the protocol.

    node examples/remote_simulator/cartpole.js 127.0.0.1 5600 20
    rl-cluster --environment examples.remote_simulator:serve --workers 2 --envs 8 --max-minutes 2

Simulators without a game wait as spares. A game whose simulator dies is truncated, and a spare takes its place. Whoever
answers with something else than the protocol has, or not at all, is dropped with a sentence.
"""

import logging
import selectors
import socket
import time
from typing import Any

import msgspec
import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

log = logging.getLogger("remote-simulator")

MOST = 1e6  # of a reward or a number of an observation, either way
SPARE_SECONDS = 1.0  # a spare is let go after it, so that it may find a game of another worker at the same port
LOOK_SECONDS = 0.1  # between two looks at who is silent


def serve(num_envs: int, *, numbers: int = 4, actions: int = 2, host: str = "127.0.0.1", port: int = 5600) -> Any:
    """Games whose observations are so many numbers; the defaults are CartPole's. Copy it to have other spaces."""
    return RemoteGames(num_envs, Box(-MOST, MOST, (numbers,), np.float32), Discrete(actions), host=host, port=port)


class Answer(msgspec.Struct, forbid_unknown_fields=True):
    """A line of a simulator."""

    observation: list[float]  # flat
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False


class Simulator:
    """One that is connected. It owes a line from each question until its answer."""

    def __init__(self, link: socket.socket, name: str) -> None:
        self.link, self.name = link, name
        self.received = b""  # of a line that is not complete
        self.answer: Answer | None = None
        self.seen: Any = None  # the observation of its last answer
        self.since = 0.0  # when it was asked, or has answered
        self.is_gone = False


class RemoteGames(VectorEnv[Any, Any, Any]):
    """So many games; `port` 0 is any free one. Several workers of a host may listen on one port."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012  (as in Gymnasium)

    def __init__(
        self, num_envs: int, observations: Box, actions: Any, *, host: str, port: int, answer_seconds: float = 2.0
    ) -> None:
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = observations, actions
        self.observation_space, self.action_space = batch_space(observations, num_envs), batch_space(actions, num_envs)
        self.address = (host, port)
        self._space = observations
        self._answer_seconds = answer_seconds  # a simulator that is silent for longer is dropped
        self._most_bytes = 200 + 32 * int(np.prod(observations.shape))  # of a line
        self._games: list[Simulator | None] = [None] * num_envs
        self._spares: list[Simulator] = []
        self._door: socket.socket | None = None
        self._selector = selectors.DefaultSelector()
        self._next_look = 0.0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Waits until each game has a simulator. Game k is seeded with seed + k."""
        super().reset(seed=seed)
        self.listen()
        self._fill()
        for row, game in enumerate(self._games):
            assert game is not None
            self._ask(game, {"reset": self._seed() if seed is None else seed + row})
        self._fill()
        return self._observations(), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """All games together: the slowest answer is the time of a step."""
        last, games = self._observations(), [game for game in self._games if game is not None]
        for game, action in zip(games, actions, strict=True):
            self._ask(game, {"action": action.tolist()})
        while any(game.answer is None and not game.is_gone for game in games):
            self._hear()
        rewards, (terminated, truncated) = np.zeros(self.num_envs), np.zeros((2, self.num_envs), np.bool_)
        for row, game in enumerate(games):
            if game.answer is None:
                truncated[row] = True
                continue
            last[row], rewards[row] = game.seen, game.answer.reward
            terminated[row], truncated[row] = game.answer.terminated, game.answer.truncated
            if terminated[row] or truncated[row]:
                self._ask(game, {"reset": self._seed()})
        self._fill()
        return self._observations(), rewards, terminated, truncated, {"final_obs": last}

    def listen(self) -> None:
        """Simulators can connect from now on."""
        if self._door is not None:
            return
        self._door = socket.socket()
        self._door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._door.bind(self.address)
        self._door.listen(256)
        self._door.setblocking(False)
        self.address = self._door.getsockname()
        self._selector.register(self._door, selectors.EVENT_READ)

    def close_extras(self, **_: Any) -> None:
        for simulator in [*self._spares, *self._games]:
            if simulator is not None:
                simulator.link.close()
        if self._door is not None:
            self._door.close()
        self._selector.close()

    def _seed(self) -> int:
        return int(self.np_random.integers(2**31))

    def _observations(self) -> NDArray[Any]:
        return np.stack([game.seen for game in self._games if game is not None])

    def _fill(self) -> None:
        """Wait until each game has a simulator with an observation; spares take the places of those that are gone."""
        say_at = time.monotonic() + 1.0
        while True:
            for row, game in enumerate(self._games):
                if game is None or game.is_gone:
                    self._games[row] = next((spare for spare in self._spares if spare.answer), None)
                    self._spares = [spare for spare in self._spares if spare is not self._games[row]]
            missing = sum(game is None or game.answer is None for game in self._games)
            if not missing:
                return
            self._hear()
            if time.monotonic() > say_at:
                say_at = float("inf")
                log.warning("%d of %d games wait for a simulator at %s:%d", missing, self.num_envs, *self.address)

    def _ask(self, simulator: Simulator, question: dict[str, Any]) -> None:
        simulator.answer, simulator.since = None, time.monotonic()
        try:
            simulator.link.send(msgspec.json.encode(question) + b"\n")
        except OSError as error:
            self._drop(simulator, f"cannot be asked: {error}")

    def _hear(self) -> None:
        """Take what has come, for at most LOOK_SECONDS; then drop who is silent."""
        for key, _ in self._selector.select(LOOK_SECONDS):
            if key.data is None:
                self._welcome()
            elif not key.data.is_gone:
                self._read(key.data)
        if (now := time.monotonic()) < self._next_look:
            return
        self._next_look = now + LOOK_SECONDS
        for simulator in [*self._spares, *filter(None, self._games)]:
            if simulator.answer is None and not simulator.is_gone and now - simulator.since > self._answer_seconds:
                self._drop(simulator, f"no answer for {self._answer_seconds:g} s")
        for spare in [spare for spare in self._spares if spare.answer and now - spare.since > SPARE_SECONDS]:
            self._drop(spare, "")

    def _welcome(self) -> None:
        """A simulator has connected; of too many, the latest are let go."""
        assert self._door is not None
        try:
            link, (host, port, *_) = self._door.accept()
        except OSError as error:
            return log.debug("a connection was closed before it was accepted: %s", error)
        link.setblocking(False)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        simulator = Simulator(link, f"{host}:{port}")
        self._selector.register(link, selectors.EVENT_READ, simulator)
        self._spares.append(simulator)
        if len(self._spares) > self.num_envs + 16:
            return self._drop(simulator, "")
        return self._ask(simulator, {"reset": self._seed()})

    def _read(self, simulator: Simulator) -> None:
        try:
            simulator.received += (chunk := simulator.link.recv(1 << 16))
        except OSError as error:
            return self._drop(simulator, str(error))
        line, newline, rest = simulator.received.partition(b"\n")
        if not chunk:
            return self._drop(simulator, "has gone")
        if len(simulator.received) > self._most_bytes:
            return self._drop(simulator, f"a line of more than {self._most_bytes} bytes")
        if not newline:
            return None
        if rest or simulator.answer is not None:
            return self._drop(simulator, "a line that nothing has asked for")
        try:
            simulator.answer, simulator.seen = self._checked(line)
        except (msgspec.DecodeError, ValueError) as error:
            return self._drop(simulator, str(error))
        simulator.received, simulator.since = b"", time.monotonic()
        return None

    def _checked(self, line: bytes) -> tuple[Answer, NDArray[Any]]:
        """The answer of a line, and its observation as an array of the space. Raises ValueError or DecodeError."""
        answer, space = msgspec.json.decode(line, type=Answer), self._space
        numbers = np.array(answer.observation)
        if len(numbers) != np.prod(space.shape):
            raise ValueError(f"{len(numbers)} numbers in the observation, where {np.prod(space.shape)} belong")
        numbers = numbers.reshape(space.shape)
        if not ((space.low <= numbers) & (numbers <= space.high)).all():
            raise ValueError(f"an observation beyond its space, {space}")
        if not abs(answer.reward) <= MOST:
            raise ValueError(f"the reward {answer.reward:g}, beyond ±{MOST:g}")
        return answer, numbers.astype(space.dtype)

    def _drop(self, simulator: Simulator, why: str) -> None:
        """Close its connection; without a reason it is a spare that may connect again."""
        simulator.is_gone, simulator.answer = True, None
        self._selector.unregister(simulator.link)
        self._spares = [spare for spare in self._spares if spare is not simulator]
        if why:
            log.warning("simulator %s is dropped: %s", simulator.name, why)
            try:
                simulator.link.send(msgspec.json.encode({"error": why}) + b"\n")
            except OSError:
                log.debug("simulator %s has gone", simulator.name)
        simulator.link.close()
