"""Remote simulators: CartPole in C and in JavaScript is learned; a simulator that fails costs its own game alone."""

import json
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from examples import remote_simulator
from examples.remote_simulator.games import RemoteGames
from ps_common.settings.run_spec import Environment
from rl_agent.environments.custom_environment import VectorEnvironments
from rl_eval.games import play
from tests.integration.processes import DEADLINE_SECONDS
from tests.rl_agent.algorithms.test_learning import learned
from tests.rows import row

FOLDER = Path(remote_simulator.__file__).parent
A3C = {"name": "a3c", "unroll_length": 32, "loss": "mean", "gae_lambda": 0.95, "surrogate": "clip"} | {
    "epochs": 4,
    "minibatches": 2,
}
ANSWER_SECONDS = 0.5

Simulators = Callable[[int, int], list[list[str]]]  # the commands that start so many games, for a port


@pytest.fixture(params=["c", "js"])
def simulators(request: pytest.FixtureRequest, tmp_path: Path) -> Simulators:
    """CartPole in this language."""
    if request.param == "js":
        if (node := shutil.which("node")) is None:
            pytest.skip("node is not installed")
        return lambda games, port: [[node, str(FOLDER / "cartpole.js"), "127.0.0.1", str(port), str(games)]]
    if (compiler := shutil.which("cc")) is None:
        pytest.skip("there is no C compiler, cc")
    program, strict = str(tmp_path / "cartpole"), ["-std=c11", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([compiler, "-O2", *strict, "-o", program, str(FOLDER / "cartpole.c"), "-lm"], check=True)
    return lambda games, port: [[program, "127.0.0.1", str(port)]] * games


@contextmanager
def running(commands: list[list[str]]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Programs that are ended at the end of the block."""
    started = [subprocess.Popen(command) for command in commands]
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()


@pytest.fixture
def games() -> Iterator[RemoteGames]:
    """Two games of one number and two actions."""
    spaces = Box(-100, 100, (1,), np.float32), Discrete(2)
    made = RemoteGames(2, *spaces, host="127.0.0.1", port=0, answer_seconds=ANSWER_SECONDS)
    made.listen()
    yield made
    made.close()


class Counts:
    """A simulator that shows the number of a game's steps, and says `line` in place of its answer to step `at`."""

    def __init__(self, games: RemoteGames, *, at: int = -1, line: bytes | None = b"") -> None:
        self.at, self.line, self.error = at, line, ""
        self.link = socket.create_connection(games.address)
        self.thread = threading.Thread(target=self._play)
        self.thread.start()

    def _play(self) -> None:
        steps = 0
        with self.link, self.link.makefile("rb") as lines:
            for question in map(json.loads, lines):
                if "error" in question:
                    self.error = question["error"]
                    return
                steps = 0 if "reset" in question else steps + 1
                answer = json.dumps({"observation": [steps % 100], "reward": steps}).encode() + b"\n"
                if steps == self.at:
                    if self.line == b"":
                        return
                    answer = self.line or b""
                self.link.sendall(answer)


BROKEN: list[tuple[str, bytes | None, str]] = [
    ("dies", b"", ""),
    ("is silent", None, "no answer"),
    ("stops in the middle of a line", b'{"observation": [', "no answer"),
    ("sends too many numbers", b'{"observation": [1, 2]}\n', "2 numbers"),
    ("sends none", b'{"observation": []}\n', "0 numbers"),
    ("sends NaN", b'{"observation": [NaN]}\n', "malformed"),
    ("sends more than a number holds", b'{"observation": [1e999]}\n', "out of range"),
    ("leaves its space", b'{"observation": [101]}\n', "beyond its space"),
    ("has an absurd reward", b'{"observation": [1], "reward": 1e30}\n', "reward"),
    ("sends text for a number", b'{"observation": ["1"]}\n', "float"),
    ("sends another field", b'{"observation": [1], "x": 1}\n', "unknown field"),
    ("sends nested lists", b'{"observation": ' + b"[" * 90 + b"\n", "float"),
    ("sends two lines", b'{"observation": [1]}\n{"observation": [1]}\n', "asked for"),
    ("speaks no JSON", b"GET / HTTP/1.1\r\n", "malformed"),
    ("never ends a line", b"x" * 5000, "more than"),
]


def test_a_simulator_that_fails_in_a_game_truncates_it_and_harms_no_other(games: RemoteGames) -> None:
    for what, line, sentence in BROKEN:
        with row(what):
            good, bad = Counts(games), Counts(games, at=3, line=line)
            games.reset(seed=1)
            spare = Counts(games)
            seen, lost = [], []
            for _ in range(5):
                observations, rewards, terminated, truncated, info = games.step(np.array([0, 1]))
                assert not terminated.any()
                seen.append((observations[:, 0].tolist(), rewards.tolist()))
                lost += [(int(at), info["final_obs"][at].tolist()) for at in np.flatnonzero(truncated)]
            ((place, last),) = lost
            assert last == [2], "the last that it has said"
            assert [shown[1 - place] for shown, _ in seen] == [1, 2, 3, 4, 5]
            assert [reward[1 - place] for _, reward in seen] == [1, 2, 3, 4, 5]
            assert [shown[place] for shown, _ in seen] == [1, 2, 0, 1, 2]
            bad.thread.join(DEADLINE_SECONDS)
            assert sentence in bad.error
            for one in (good, spare):
                one.link.shutdown(socket.SHUT_RDWR)
                one.thread.join(DEADLINE_SECONDS)


def test_cartpole_is_learned_in_each_language(simulators: Simulators) -> None:
    """To a mean of 60 of 16 games after 25,000 steps, where random play has 22."""
    made = remote_simulator.serve(8, port=0)
    made.listen()
    settings = Environment(id="examples.remote_simulator:serve")
    environments = VectorEnvironments(settings, 8, False, made)
    with running(simulators(10, made.address[1])):
        agent = learned(environments, steps=25_000, learning_rate=0.003, algorithm=A3C)
        score = float(np.mean([game.score for game in play(agent, environments, episodes=16, greedy=True, seed=1)]))
        environments.close()
    assert score > 60


def test_the_clients_are_short() -> None:
    for name in ("cartpole.c", "cartpole.js"):
        assert len((FOLDER / name).read_text().splitlines()) <= 150, name
