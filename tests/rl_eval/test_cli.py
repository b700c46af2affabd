"""Full games with trained weights: which games count, the figures, and which weights are accepted."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from ps_common.errors import PsRlError, SettingsError
from ps_common.protocol import messages
from ps_common.protocol.messages import ToServer
from ps_common.protocol.status import Status
from ps_common.run_folder.checkpoint_file import write_checkpoint
from ps_common.settings.run_settings import run_from_dict
from ps_common.settings.run_spec import RunSpec
from rl_agent.agent import build_agent
from rl_agent.environments.make import make_environments
from rl_agent.networks.flat_network import flatten
from rl_agent.rollouts import Decision, State
from rl_eval.cli import evaluate
from rl_eval.games import Game as PlayedGame
from rl_eval.games import play, summary
from rl_eval.settings import EvaluationSettings
from tests.ps_client.loopback_server import Polite, Reply, serving
from tests.records import a_record
from tests.rl_agent.scripted_environments import Bandit, Game, ScriptedActor, ScriptedEnvironments
from tests.rows import row
from tests.schemas import schema_of_tensors

CARTPOLE = run_from_dict(
    {"environment": {"id": "CartPole-v1", "max_episode_steps": 30}, "network": {"hidden": [8]}, "seed": 1},
    source="test",
)
STEP = 1234


def weights_of(run: RunSpec, **changes: Tensor) -> dict[str, Tensor]:
    environments = make_environments(run.environment, count=1)
    agent = build_agent(run, environments, device=torch.device("cpu"), seed=0)
    environments.close()
    return dict(agent.network.named_parameters()) | changes


def checkpoint(
    path: Path,
    run: RunSpec = CARTPOLE,
    weights: dict[str, Tensor] | None = None,
    *,
    steps: int = STEP,
    minutes: float = 2.0,
) -> Path:
    """As the server writes it."""
    weights = weights_of(run) if weights is None else weights
    path.parent.mkdir(parents=True, exist_ok=True)
    record = a_record(run=run, schema=schema_of_tensors(weights), steps=steps, minutes=minutes)
    write_checkpoint(path, {"weights": flatten(weights)}, record)
    return path


# -- which games count ------------------------------------------------------------------------------------------------


class Player(ScriptedActor):
    """Plays what is written down; remembers how it was asked, and what it remembered of the games."""

    def __init__(self) -> None:
        super().__init__()
        self.greedy: set[bool] = set()
        self.states: list[list[float]] = []

    def act(self, observations: Tensor, state: State, starts: Tensor, *, greedy: bool = False) -> Decision:
        self.greedy.add(greedy)
        decision = super().act(observations, state, starts)
        self.states.append(decision.state[0].tolist())
        return decision


def games(length: int, *, end: Any = "terminated") -> list[Game]:
    """Row after row of scores that tell which game they are of: length.0, length.1, …"""
    return [Game((1.0,) * (length - 1) + (1 + number / 16,), end) for number in range(10)]


@pytest.mark.parametrize(
    ("episodes", "scores"),
    [
        (1, [2.0]),
        (3, [2.0, 5.0, 7.0]),
        (7, [2.0, 2.0625, 2.125, 5.0, 5.0625, 7.0, 7.0625]),
    ],
)
def test_each_environment_plays_its_share_however_short_its_games(episodes: int, scores: list[float]) -> None:
    environments = ScriptedEnvironments(games(2), games(5), games(7, end="truncated"))
    player: Any = Player()
    played = [game.score for game in play(player, environments, episodes=episodes, greedy=True, seed=9)]
    assert sorted(played) == scores
    assert player.greedy == {True}
    assert environments.seeds == [9]


def test_scores_are_of_whole_games_whatever_the_learner_may_clip() -> None:
    environments = ScriptedEnvironments([Game((100.0, -3.0, 0.5), "terminated", lives_lost=(0,))])
    player: Any = Player()
    assert [game.score for game in play(player, environments, episodes=2, greedy=False, seed=0)] == [97.5, 97.5]
    assert player.greedy == {False}


def test_what_is_remembered_is_carried_through_a_game_and_no_further() -> None:
    player: Any = Player()
    list(play(player, ScriptedEnvironments(games(2), games(3, end="truncated")), episodes=4, greedy=True, seed=0))
    assert player.states == [[1, 1], [2, 2], [1, 3], [2, 1], [1, 2], [2, 3]]


# -- the numbers ------------------------------------------------------------------------------------------------------


def scored(*scores: float, copies: int = 1) -> list[PlayedGame]:
    """Games with these scores, each several times."""
    return [
        PlayedGame(environment=0, score=score, actions=[], trace=str(number))
        for number, score in enumerate(scores)
        for _ in range(copies)
    ]


def test_the_summary_by_hand() -> None:
    """
    0, 1, 2, 6, 6: mean 3, squares 9 + 4 + 1 + 9 + 9 = 32, over 4 is 8; t of 4 degrees of freedom is 2.776; steps of 1.
    """
    result = summary(scored(0.0, 1.0, 2.0, 6.0, 6.0), environment="Pong", greedy=True)
    assert (result.environment, result.episodes, result.greedy, result.distinct) == ("Pong", 5, True, 5)
    assert result.scores == [0.0, 1.0, 2.0, 6.0, 6.0]
    assert result.mean == 3.0
    assert result.std == pytest.approx(math.sqrt(8))
    assert result.low == pytest.approx(3 - 2.776 * math.sqrt(8 / 5) - 0.1, abs=2e-3)
    assert result.high == pytest.approx(3 + 2.776 * math.sqrt(8 / 5) + 0.1, abs=2e-3)


DRAWS: dict[str, Callable[[np.random.Generator, int], NDArray[np.float64]]] = {
    "normal": lambda random, games: random.normal(3.0, 10.0, games),
    "uniform": lambda random, games: random.uniform(-1, 1, games),
    "laplace": lambda random, games: random.laplace(0.0, 1.0, games),
    "two paths, one in two": lambda random, games: np.where(random.random(games) < 0.5, 100.0, 0.0),
    "two paths, one in ten": lambda random, games: (random.random(games) < 0.1).astype(np.float64),
    "two paths, one in three": lambda random, games: np.where(random.random(games) < 1 / 3, 1.0, -1.0),
    "one path in two, else one of many": lambda random, games: np.where(
        random.random(games) < 0.5, 100.0, random.integers(0, 20, games)
    ),
    "a sum of steps": lambda random, games: random.binomial(30, 0.4, games).astype(np.float64),
}


@pytest.mark.parametrize("epsilon", [None, 0.05, 0.0], ids=["sampled", "ε-greedy", "greedy"])
@pytest.mark.parametrize("distribution", DRAWS)
def test_the_interval_has_the_true_mean_in_it_as_often_as_it_says(distribution: str, epsilon: float | None) -> None:
    """Equal scores are copies of one game here, as where paths are short: honest draws all the same."""
    random, draw = np.random.default_rng(1), DRAWS[distribution]
    true_mean = float(draw(random, 1_000_000).mean())
    for count in (5, 6, 10, 30, 100):
        wrong, intervals = 0, 0
        for _ in range(200):
            games = [
                PlayedGame(environment=0, score=float(score), actions=[], trace=str(score))
                for score in draw(random, count)
            ]
            result = summary(games, environment="", greedy=False, epsilon=epsilon)
            if result.low is not None and result.high is not None:
                intervals += 1
                wrong += not result.low <= true_mean <= result.high
        with row(count, wrong, intervals):
            assert wrong <= 0.1 * 200
            assert intervals >= 0.8 * 200 or epsilon == 0 or "ten" in distribution


def test_a_copy_where_nothing_is_drawn_makes_no_interval_narrower() -> None:
    """Whichever games are copied, and however often."""
    random = np.random.default_rng(2)
    for _ in range(100):
        scores = random.normal(size=int(random.integers(5, 12))).tolist()
        games = scored(*scores)
        copied = [*games, *(games[place] for place in random.integers(len(games), size=50))]
        width = {}
        for greedy in (True, False):
            result = summary(copied, environment="", greedy=greedy)
            assert result.low is not None
            assert result.high is not None
            width[greedy] = result.high - result.low
            assert (result.low + result.high) / 2 == pytest.approx(np.mean([game.score for game in copied]))
        assert width[True] > width[False]


def test_a_game_is_a_copy_only_if_each_observation_action_and_reward_is_the_same() -> None:
    """A bandit shows one observation. The arms are told apart by actions; rewards tell two bandits apart."""

    def traces(arms: list[float], *actions: int) -> list[str]:
        taken = iter(actions)

        class Chooser(ScriptedActor):
            def act(self, observations: Tensor, state: State, starts: Tensor, *, greedy: bool = False) -> Decision:
                return Decision(torch.tensor([next(taken)]), state, {})

        games = play(Chooser(), Bandit(arms, count=1), episodes=len(actions), greedy=False, seed=0)
        return [game.trace for game in games]

    first, again, other = traces([1.0, 1.0], 0, 0, 1)
    assert first == again != other
    assert traces([1.0, 2.0], 0, 1) == [first, traces([0.0, 2.0], 1)[0]]
    assert traces([2.0, 1.0], 0) != [first], "another reward"
    seen = ScriptedEnvironments(games(2))
    assert len({game.trace for game in play(ScriptedActor(), seen, episodes=2, greedy=False, seed=0)}) == 2


# -- the program ------------------------------------------------------------------------------------------------------


def scores_of(*flags: str | Path, tmp_path: Path) -> dict[str, Any]:
    """The file that rl-eval writes for its flags."""
    path = tmp_path / "result.json"
    assert evaluate([*map(str, flags), "--json", str(path)]) == 0
    result: dict[str, Any] = json.loads(path.read_text())
    return result


def test_a_checkpoint_is_played_and_its_scores_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = checkpoint(tmp_path / "some.safetensors")
    result = scores_of("--checkpoint", path, "--episodes", "20", "--greedy", tmp_path=tmp_path)
    assert (result["environment"], result["episodes"], result["greedy"]) == ("CartPole-v1", 20, True)
    assert len(result["scores"]) == 20
    assert all(1 <= score <= 30 for score in result["scores"])
    assert result["mean"] == pytest.approx(np.mean(result["scores"]))
    said = capsys.readouterr().out
    assert said.startswith(f"CartPole-v1: mean {result['mean']:.2f} (95 % {result['low']:.2f} to {result['high']:.2f})")
    assert "of 20 full games, greedy actions" in said


def test_one_more_game_becomes_a_gif_and_a_video(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, gif, video = checkpoint(tmp_path / "some.safetensors"), tmp_path / "game.gif", tmp_path / "new" / "out.mp4"
    scores_of("--checkpoint", path, "--episodes", "1", "--gif", gif, "--video", video, tmp_path=tmp_path)
    assert gif.read_bytes().startswith(b"GIF89a")
    assert video.read_bytes()[4:8] == b"ftyp"
    said = capsys.readouterr().out
    assert f"GIF: {gif}" in said
    assert f"video: {video}" in said


@pytest.mark.parametrize(
    ("flag", "file", "words"),
    [
        ("--gif", "file/game.gif", "cannot be written: "),
        ("--video", "file/game.mp4", "cannot be written: "),
        ("--json", "file/result.json", "cannot be written: "),
        ("--json", ".", "cannot be written: Is a directory"),
        ("--gif", "game.mp4", "must name a file that ends in .gif, for example .*/game.gif"),
        ("--video", "videos", "must name a file that ends in .mp4, for example .*/videos/game.mp4"),
    ],
)
def test_what_cannot_be_written_is_said_before_a_game_is_played(
    tmp_path: Path, flag: str, file: str, words: str
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match=f"^{flag} {tmp_path}.*: {words}"):
        evaluate(["--checkpoint", "nowhere", flag, str(tmp_path / file)])


@pytest.mark.parametrize(
    ("files", "chosen"),
    [
        (["checkpoints/best.safetensors", "checkpoints/checkpoint-000000000900.safetensors"], "best.safetensors"),
        (
            [
                "checkpoints/checkpoint-000000000900.safetensors",
                "checkpoints/checkpoint-000000001100.safetensors",
                "checkpoints/checkpoint-000000001000.safetensors",
            ],
            "checkpoint-000000001100.safetensors",
        ),
        (["checkpoint-000000000900.safetensors"], "checkpoint-000000000900.safetensors"),
    ],
)
def test_of_a_run_folder_the_best_checkpoint_is_played_or_the_newest(
    files: list[str], chosen: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in files:
        checkpoint(tmp_path / "run" / name)
    with caplog.at_level("INFO"):
        evaluate(["--checkpoint", str(tmp_path / "run"), "--episodes", "1"])
    assert f"/{chosen}, step {STEP}" in caplog.text


def test_a_damaged_best_checkpoint_is_passed_over_aloud(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "run" / "checkpoints"
    damaged(folder / "best.safetensors")
    damaged(folder / "checkpoint-000000001100.safetensors")
    checkpoint(folder / "checkpoint-000000001000.safetensors")
    with caplog.at_level("INFO"):
        evaluate(["--checkpoint", str(tmp_path / "run"), "--episodes", "1"])
    assert "best.safetensors: is damaged" in caplog.text
    assert f"/checkpoint-000000001000.safetensors, step {STEP}" in caplog.text
    assert len(list(folder.iterdir())) == 3, "it is not rl-eval's to move files"


class WithStatus(Polite):
    """A server that trains CartPole."""

    def __init__(self, weights: dict[str, Tensor]) -> None:
        super().__init__()
        self._schema = schema_of_tensors(weights) if weights else None
        self.weights = flatten(weights).numpy() if weights else self.weights

    def reply(self, message: ToServer, vector: bytes) -> Reply:
        if not isinstance(message, messages.StatusRequest):
            return super().reply(message, vector)
        status = Status(
            phase="serving",
            epoch=1,
            refused={},
            not_modified=0,
            checkpoint_version=0,
            checkpoint_failures=0,
            workers_alive=0,
            workers=(),
        )
        schema = self._schema.specs if self._schema else ()
        return messages.StatusReply(request=message.request, status=status, run=CARTPOLE.to_dict(), schema=schema)


def test_a_live_server_plays_as_its_checkpoint_would(tmp_path: Path) -> None:
    flags = ("--episodes", "5", "--seed", "3")
    saved = scores_of("--checkpoint", checkpoint(tmp_path / "same.safetensors"), *flags, tmp_path=tmp_path)
    with serving(WithStatus(weights_of(CARTPOLE))) as server:
        assert scores_of("--server", server.address, *flags, tmp_path=tmp_path) == saved


# -- ε of action values -----------------------------------------------------------------------------------------------

ALWAYS_RIGHT = {"values.bias": torch.tensor([-100.0, 100.0])}
VALUES = run_from_dict(CARTPOLE.to_dict() | {"algorithm": {"name": "one_step_q"}}, source="test")


@pytest.mark.parametrize(
    ("flags", "epsilon"), [((), 0.05), (("--epsilon", "0.5"), 0.5), (("--greedy",), 0.0), (("--epsilon", "0"), 0.0)]
)
def test_action_values_are_evaluated_with_one_epsilon(
    flags: tuple[str, ...], epsilon: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run is at its first steps, where training's ε is 1: the share of actions to the left is ε / 2."""
    path = checkpoint(tmp_path / "x.safetensors", VALUES, weights_of(VALUES, **ALWAYS_RIGHT), steps=0)
    receipt = tmp_path / "receipt.json"
    all_flags = ("--checkpoint", path, "--episodes", "200", "--receipt", receipt, *flags)
    assert scores_of(*all_flags, tmp_path=tmp_path)["epsilon"] == epsilon
    content = json.loads(receipt.read_text())
    taken = np.concatenate([game["actions"] for game in content["games"]])
    assert np.mean(taken == 0) == pytest.approx(epsilon / 2, abs=0.02)
    assert content["epsilon"] == epsilon
    said = "greedy actions" if flags == ("--greedy",) else f"ε-greedy actions (ε {epsilon:g})"
    assert said in capsys.readouterr().out


# -- what goes wrong --------------------------------------------------------------------------------------------------


def damaged(path: Path) -> Path:
    checkpoint(path)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    return path


def text(path: Path) -> Path:
    path.write_text("not a checkpoint at all")
    return path


def folder(path: Path) -> Path:
    path.mkdir()
    return path


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ({}, "give one of --checkpoint PATH, --server HOST:PORT, --follow RUN_DIR and --verify RECEIPT"),
        (
            {"checkpoint": Path("x"), "server": "a:1"},
            "give one of --checkpoint PATH, --server HOST:PORT, --follow RUN_DIR and --verify RECEIPT",
        ),
        ({"server": "a"}, "--server a: must be HOST:PORT"),
        ({"server": "a:1", "episodes": 0}, "--episodes 0: must be 1 to 1000000000"),
        ({"server": "a:1", "epsilon": 1.5}, "--epsilon 1.5: must be 0 to 1"),
        ({"server": "a:1", "epsilon": 0.1, "greedy": True}, "--epsilon 0.1: --greedy has no random actions"),
        ({"verify": Path("x"), "baselines": True}, "--baselines: belongs to scored games"),
    ],
)
def test_flags_that_make_no_sense_are_said_with_the_flag(flags: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingsError, match=f"^{sentence}"):
        EvaluationSettings(**flags)


def test_a_path_where_nothing_can_be_read_is_refused_with_its_flag_and_what_to_name(tmp_path: Path) -> None:
    for flag, path, words in [
        ("--checkpoint", tmp_path / "none", "there is no such file or folder"),
        ("--verify", tmp_path / "none", "No such file"),
        ("--verify", tmp_path, f"is a folder; name the receipt in it: {tmp_path / 'receipt.json'}"),
    ]:
        with row(flag, path), pytest.raises(PsRlError) as refused:
            evaluate([flag, str(path)])
        assert str(refused.value).startswith(f"{flag} {path}: ")
        assert words in str(refused.value)
