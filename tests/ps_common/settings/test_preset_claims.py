"""README and docs/PRESETS.md describe presets as their files do."""

import json
import re
from pathlib import Path

import pytest

from ps_common.settings.run_files import presets
from rl_agent.algorithms.action_values import EVALUATION_EPSILON
from tests.rows import row

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/PRESETS.md").read_text()


def row_of(preset: str, section: str) -> list[str]:
    """The cells of the first row of a section's table that begins with the preset's name."""
    lines = PAGE.split(f"## {section}\n")[1].split("\n## ")[0].splitlines()
    return next([cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith(f"|`{preset}`"))


def test_the_page_of_presets_has_a_row_of_measurements_for_each() -> None:
    for preset in presets():
        with row(preset):
            cells = row_of(preset, "Measured")
            assert len(cells) == 8
            assert all(cells)


def test_beside_each_target_stands_the_score_of_new_games() -> None:
    """Of a policy in zoo/ it is that of its card, which its receipt proves; of others games and seed are named."""
    for preset in presets():
        with row(preset):
            cell = row_of(preset, "Measured")[2]
            if not (ROOT / "zoo" / preset).is_dir():
                assert cell == "–" or re.match(r"[−\d.,]+ \([−\d.,]+ to [−\d.,]+, \d+ games, seed \d\)", cell)
                continue
            card = (ROOT / "zoo" / preset / "README.md").read_text().split("**", 1)[1]
            mean, low, high = re.findall(r"\d+\.\d\d", card)[:3]
            receipt = json.loads((ROOT / "zoo" / preset / "receipt.json").read_text())
            scores = [game["score"] for game in receipt["games"]]
            assert float(mean) == pytest.approx(sum(scores) / len(scores), abs=0.005)
            assert cell == f"{mean} ({low} to {high}, {len(scores)} games, [zoo](../zoo/{preset}))"


@pytest.mark.parametrize("preset", ["space-invaders-n-step-q", "space-invaders-one-step-q"])
def test_action_values_are_compared_with_a_held_action_under_the_same_epsilon(preset: str) -> None:
    baseline = row_of(preset, "Measured")[-1]
    assert baseline.startswith(f"holding RIGHTFIRE with ε {EVALUATION_EPSILON:g} 264 ± 22 ")
    assert row_of(preset.replace("one-step", "n-step"), "Baselines")[2].startswith(
        f"with ε {EVALUATION_EPSILON:g}, as action values play: RIGHTFIRE 264 ± 22"
    )
