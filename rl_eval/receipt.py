"""
The receipt of evaluated games: what is needed to play them again, action by action, without the weights.

A replay must reach each score after as many actions. Checksums name the parts that were edited since; they are no
protection against forgery, but a forger has to find actions that reach the scores. They are those of the parts as they
stand in the file, so that a receipt verifies whatever settings later versions add.
"""

from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import xxhash

from ps_common.errors import CheckpointError, ReceiptError
from ps_common.protocol.names import as_text, printable
from ps_common.protocol.record import check_format
from ps_common.release import release
from ps_common.run_folder.output_files import write_output
from ps_common.run_folder.trained import Trained
from ps_common.settings.regular_file import content_of
from ps_common.settings.run_settings import run_for_peers, shown_run, without_gone
from ps_common.settings.run_spec import Environment, RunSpec
from rl_agent.environments.interface import Environments
from rl_agent.environments.make import closing, make_environments
from rl_agent.environments.spaces import Actions, ActionSpace, BoxActions, DiscreteActions, MultiDiscreteActions
from rl_eval.games import MOST_ENVIRONMENTS, Action, Baseline, Game, Result, shares
from rl_eval.policy_folder import RECEIPT
from rl_eval.settings import MOST_EPISODES, MOST_SEED

KIND, FORMAT = "receipt", 1
MOST_BYTES = 2**28
PACKAGES = ("gymnasium", "ale-py", "torch", "numpy", "vizdoom", "MinAtar", "mujoco")


class _Formatted(msgspec.Struct):
    format: str


class Receipt(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Evaluated games, and everything that decided them."""

    format: str
    checkpoint: str  # the checkpoint or server
    checkpoint_sha256: str  # of the checkpoint file; of the weights of a live server
    environment: Environment  # the settings: frame skip, sticky actions, the subset of actions, …
    card: dict[str, Any]  # the settings in effect, in words
    greedy: bool  # the most probable actions; otherwise they were sampled
    epsilon: float | None  # share of random actions of a method that learns action values
    seed: Annotated[int, msgspec.Meta(ge=0, le=MOST_SEED)]  # environment k is seeded with seed + k
    episodes: Annotated[int, msgspec.Meta(ge=1, le=MOST_EPISODES)]
    environments: Annotated[int, msgspec.Meta(ge=1, le=MOST_ENVIRONMENTS)]  # each plays a fixed share of the games
    versions: dict[str, str]
    games: list[Game]  # in the order of their ends
    baselines: list[Baseline]  # random play and held actions, if they were measured; no replay checks them
    checksums: dict[str, str] = {}  # of each part, by its name


def receipt_of(
    games: list[Game], result: Result, trained: Trained, environments: Environments, *, seed: int
) -> Receipt:
    """The receipt of all games, with this result, that were played in these environments."""
    return Receipt(
        format=f"ps-rl {KIND} {FORMAT}",
        checkpoint=printable(trained.origin),
        checkpoint_sha256=trained.sha256,
        environment=shown_run(trained.run).environment,
        card=_card(environments),
        greedy=result.greedy,
        epsilon=result.epsilon,
        seed=seed,
        episodes=len(games),
        environments=environments.count,
        versions=_versions(),
        games=games,
        baselines=result.baselines,
    )


def write_receipt(path: Path, receipt: Receipt) -> None:
    """The receipt with its checksums. Raises SettingsError."""
    content = msgspec.json.decode(msgspec.json.encode(receipt))
    content["environment"] = run_for_peers(RunSpec(environment=receipt.environment))["environment"]
    content["checksums"] = checksums(content)
    write_output("--receipt", path, msgspec.json.encode(content) + b"\n")


def read_receipt(path: Path) -> Receipt:
    """Raises ReceiptError."""
    try:
        content = content_of(path, most_bytes=MOST_BYTES)
        check_format(msgspec.json.decode(content, type=_Formatted).format, KIND, newest=FORMAT, oldest=FORMAT)
        receipt = _decoded(content)
    except IsADirectoryError as error:
        raise ReceiptError(f"--verify {path}: is a folder; name the receipt in it: {path / RECEIPT}") from error
    except OSError as error:
        raise ReceiptError(f"--verify {path}: cannot be read: {error.strerror}") from error
    except CheckpointError as error:
        raise ReceiptError(f"--verify {path}: {error}") from error
    except (ValueError, RecursionError) as error:
        raise ReceiptError(f"--verify {path}: {as_text(f'is not a receipt of rl-eval: {error}')}") from error
    return receipt


def _decoded(content: bytes) -> Receipt:
    """Raises ValueError, of msgspec too."""
    plain = msgspec.json.decode(content, type=dict[str, Any])
    return msgspec.convert(plain | {"environment": without_gone("environment", plain.get("environment"))}, Receipt)


def edited_parts(path: Path) -> list[str]:
    """The parts of a receipt, which can be read, that are not as they were written."""
    content = msgspec.json.decode(content_of(path, most_bytes=MOST_BYTES))
    written = content.get("checksums", {})
    return [name for name, checksum in checksums(content).items() if written.get(name) != checksum]


def verify(receipt: Receipt, path: Path) -> None:
    """Replay every game. Raises ReceiptError, which says what differs."""
    differences = [_missing_games(receipt) or _first_difference(receipt)]
    if edited := edited_parts(path):
        differences.append(f"it was edited after it was written: {', '.join(edited)}")
    differences = [sentence for sentence in differences if sentence]
    if differences:
        raise ReceiptError(f"{path}: does not verify: {'; '.join([*differences, *_other_versions(receipt)])}")


def _missing_games(receipt: Receipt) -> str:
    """A sentence if some environment has more or fewer games than its share; otherwise ""."""
    for environment, share in enumerate(shares(receipt.episodes, receipt.environments).tolist()):
        games = sum(game.environment == environment for game in receipt.games)
        if games != share:
            return f"environment {environment} has {games} games, and its share of {receipt.episodes} is {share}"
    others = len(receipt.games) - receipt.episodes
    return f"{others} games are of environments that it does not have" if others else ""


def _first_difference(receipt: Receipt) -> str:
    """A sentence on the first difference between the receipt and its replay; "" if there is none."""
    numbered = list(enumerate(receipt.games, start=1))
    for environment in range(receipt.environments):
        with closing(make_environments(receipt.environment, count=1)) as environments:
            if sentence := _other_card(receipt.card, _card(environments)):
                return sentence
            replay = Replay(environments, seed=receipt.seed + environment)
            for number, game in numbered:
                if game.environment == environment and (sentence := _difference(game, replay)):
                    return f"game {number} of {len(numbered)}: {sentence}"
    return ""


def _difference(game: Game, replay: "Replay") -> str:
    """Play the game again; a sentence if it differs from what is written, otherwise ""."""
    if refusal := replay.refusal(game.actions):
        return refusal
    played = list(replay.steps(game.actions))
    score, ended = played[-1] if played else (0.0, False)
    steps = len(played)
    if not ended:
        return f"it has not ended after its {steps} actions in the replay, with a score of {score:g}"
    if steps < len(game.actions):
        return f"it has {len(game.actions)} actions, and ends after {steps} in the replay, with a score of {score:g}"
    if score != game.score:
        return f"its score is {game.score:g}, and {score:g} in the replay"
    return ""


def _other_card(written: dict[str, Any], here: dict[str, Any]) -> str:
    """A sentence if an entry that both have differs; releases have entries of their own."""
    different = [name for name in written if name in here and written[name] != here[name]]
    return "; ".join(f"environment card: {name} is {written[name]}, and {here[name]} here" for name in different)


def _other_versions(receipt: Receipt) -> Iterator[str]:
    """Sentences that may explain a difference."""
    here = _versions()
    for name in {**receipt.versions, **here}:
        if (written := receipt.versions.get(name)) != here.get(name):
            yield f"it was written with {name} {written}, this is {here.get(name)}"


def _card(environments: Environments) -> dict[str, Any]:
    card: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(environments.description, enc_hook=str))
    return card


def _versions() -> dict[str, str]:
    """The release of ps-rl, and the versions of the packages that decide a game, as far as they are installed."""
    versions = {"ps-rl": release()}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions


def checksums(content: dict[str, Any]) -> dict[str, str]:
    """A checksum of each part of a receipt's JSON, by its name; each game is a part."""
    parts = {name: part for name, part in content.items() if name not in ("games", "checksums")}
    parts |= {f"game {number}": game for number, game in enumerate(content["games"], start=1)}
    return {name: xxhash.xxh3_64_hexdigest(msgspec.json.encode(part)) for name, part in parts.items()}


class Replay:
    """Games of one environment, played again by their actions, in their order."""

    def __init__(self, environments: Environments, *, seed: int) -> None:
        """`seed` is that of the one environment."""
        assert environments.count == 1, "environments are replayed one by one"
        self.environments = environments
        environments.reset(seed)

    def steps(self, actions: Sequence[Action]) -> Iterator[tuple[float, bool]]:
        """Take the actions of one game; the score after each, and whether the game has ended, which is the last."""
        score, ended = 0.0, False
        for action in actions:
            stepped = self.environments.step(self._array(action))
            score += float(stepped.rewards[0])
            ended = bool(stepped.terminated[0] or stepped.truncated[0])
            yield score, ended
            if ended:
                return

    def refusal(self, actions: Sequence[Action]) -> str:
        """A sentence that names the first action that the environment does not have; otherwise ""."""
        space = self.environments.actions
        for number, action in enumerate(actions, start=1):
            if not _is_in(space, action):
                return f"its action {number} is {action}, which this environment does not have"
        return ""

    def _array(self, action: Action) -> Actions:
        return np.array([action], np.float32 if isinstance(self.environments.actions, BoxActions) else np.int64)


def _is_in(space: ActionSpace, action: Action) -> bool:
    match space:
        case DiscreteActions():
            return isinstance(action, int) and 0 <= action < space.count
        case MultiDiscreteActions():
            if not isinstance(action, list) or len(action) != len(space.counts):
                return False
            pairs = zip(action, space.counts, strict=True)
            return all(isinstance(choice, int) and 0 <= choice < count for choice, count in pairs)
        case BoxActions():
            return isinstance(action, list) and len(action) == len(space.low)
