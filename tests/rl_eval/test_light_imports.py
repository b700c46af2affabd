"""An exported policy is loaded where torch, numpy, safetensors and msgspec are installed, and no more."""

import subprocess
import sys
from pathlib import Path

from rl_eval.cli import evaluate
from tests.rl_eval.test_cli import CARTPOLE, checkpoint

SCRIPT = """
import re, sys
from importlib.metadata import packages_distributions, requires

allowed, wanted = set(), ["torch", "numpy", "safetensors", "msgspec"]
while wanted:
    name = wanted.pop().lower().replace("_", "-")
    if name not in allowed:
        allowed.add(name)
        needed = [one for one in requires(name) or () if "extra ==" not in one and "platform_system" not in one]
        wanted += [re.match(r"[A-Za-z0-9_.-]+", one)[0] for one in needed]
distributions = packages_distributions()
refused = []


class Bare:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        of = {one.lower().replace("_", "-") for one in distributions.get(top, ())}
        if of and not of & (allowed | {"ps-rl"}):
            refused.append(name)
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Bare())
import numpy as np
from ps_rl import load_policy

policy = load_policy(sys.argv[1])
policy.reset()
print("action", policy.act(np.zeros(4, np.float32), greedy=True))
try:
    import gymnasium
except ImportError:
    print("refused", "gymnasium" in refused)
"""


def test_a_policy_plays_without_the_packages_that_only_programs_need(tmp_path: Path) -> None:
    weights = checkpoint(tmp_path / "some.safetensors", CARTPOLE)
    evaluate(["--checkpoint", str(weights), "--episodes", "1", "--export", str(tmp_path / "policy")])
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "policy")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    first, last = done.stdout.splitlines()
    assert first in ("action 0", "action 1")
    assert last == "refused True", "the test refuses what it is to refuse"
