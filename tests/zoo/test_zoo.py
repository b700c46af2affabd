"""The policies of zoo/, each copied into a new folder and played there: they score what their cards say."""

import json
import math
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.learning.zoo import MOST_BYTES, PRESETS, ZOO, Flags, add, main
from ps_common.errors import PsRlError
from ps_common.settings.run_files import SETTINGS, load_config, load_preset
from rl_eval.cli import evaluate
from tests.extras import skip_without_package
from tests.rl_eval.test_cli import checkpoint

POLICIES = sorted(path.parent for path in ZOO.glob("*/README.md"))
SEED = 77  # not the card's
FEW, MANY = 2, 100  # games
FEW_DEVIATIONS, MANY_DEVIATIONS = 5.0, 3.3  # between two means: by chance beyond them in 1e-6 and 1e-3 of all cases
LEAST_DEVIATION = 0.02  # of the score: thirty equal games do not show that no game will be another


@dataclass(frozen=True)
class Card:
    """The score that a model card states."""

    mean: float
    deviation: float
    games: int


def card_of(policy: Path) -> Card:
    text = (policy / "README.md").read_text()
    mean = re.search(r"\*\*(-?[\d.]+)\*\*", text)
    deviation = re.search(r"standard deviation ([\d.]+)", text)
    games = re.search(r"(\d+) full games, sampled", text)
    assert mean is not None, text
    assert deviation is not None, text
    assert games is not None, text
    return Card(float(mean[1]), float(deviation[1]), int(games[1]))


def played(policy: Path, folder: Path, *, games: int) -> float:
    """The mean of so many games of a copy of the policy."""
    skip_without_package(load_config(policy / "settings.toml"))
    copy = shutil.copytree(policy, folder / "copy")
    result = folder / "result.json"
    evaluate(["--checkpoint", str(copy), "--episodes", str(games), "--seed", str(SEED), "--json", str(result)])
    return float(json.loads(result.read_text())["mean"])


def tolerance(card: Card, *, games: int, deviations: float) -> float:
    deviation = max(card.deviation, LEAST_DEVIATION * abs(card.mean))
    return deviations * deviation * math.sqrt(1 / games + 1 / card.games)


def test_the_zoo_has_policies_and_its_page_names_each() -> None:
    page = (ZOO / "README.md").read_text()
    assert POLICIES
    for policy in POLICIES:
        assert f"| [`{policy.name}`]({policy.name}) | {card_of(policy).mean:.2f} |" in page
        assert sum(file.stat().st_size for file in policy.iterdir()) <= MOST_BYTES


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_a_few_games_of_a_policy_fit_its_card(policy: Path, tmp_path: Path) -> None:
    card = card_of(policy)
    difference = abs(played(policy, tmp_path, games=FEW) - card.mean)
    assert difference <= tolerance(card, games=FEW, deviations=FEW_DEVIATIONS)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_a_hundred_games_of_a_policy_fit_its_card(policy: Path, tmp_path: Path) -> None:
    card = card_of(policy)
    mean = played(policy, tmp_path, games=MANY)
    print(f"{policy.name}: {mean:.2f} of {MANY} games, {card.mean:.2f} on its card")
    assert abs(mean - card.mean) <= tolerance(card, games=MANY, deviations=MANY_DEVIATIONS)


@pytest.mark.nightly
@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_the_receipt_of_a_policy_verifies(policy: Path) -> None:
    assert evaluate(["--verify", str(policy / "receipt.json")]) == 0


def test_another_policy_would_not_fit_the_card(tmp_path: Path) -> None:
    """An untrained one, in place of one that keeps the pole upright."""
    stranger = tmp_path / "stranger.safetensors"
    checkpoint(stranger)
    evaluate(["--checkpoint", str(stranger), "--episodes", "2", "--export", str(tmp_path / "policy")])
    card = card_of(ZOO / "cartpole-a3c")
    difference = abs(played(tmp_path / "policy", tmp_path, games=FEW) - card.mean)
    assert difference > tolerance(card, games=FEW, deviations=FEW_DEVIATIONS)


def test_a_policy_too_large_for_the_zoo_is_refused_and_the_old_one_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (old := tmp_path / "zoo/cartpole").mkdir(parents=True)
    run = checkpoint(tmp_path / "checkpoint.safetensors")
    monkeypatch.setattr("benchmarks.learning.zoo.MOST_BYTES", 1000)
    with pytest.raises(PsRlError, match=r"^zoo: the policy of cartpole has .* bytes, and at most 1,000 are allowed"):
        add("cartpole", run, tmp_path, tmp_path / "zoo")
    assert old.exists()


@pytest.mark.parametrize("presets", [PRESETS, ("pong",)], ids=["all", "another"])
def test_a_run_gives_a_policy_to_its_own_preset_alone(
    presets: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.learning.zoo.add", lambda *_: pytest.fail("a policy is replaced"))
    (tmp_path / SETTINGS).write_text(load_preset("cartpole").to_toml())
    with pytest.raises(PsRlError, match=r"^--run-dir .*: has a policy of cartpole alone; add --presets cartpole"):
        main(Flags(presets=presets, run_dir=tmp_path))
