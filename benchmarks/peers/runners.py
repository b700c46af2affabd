"""
The programs that are compared, and their command lines: ps-rl and its peers on Pong and Hopper, with two cores each.

Each program leaves rows with the fields of metrics.jsonl in the folder of its run.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

from ps_common.run_folder.paths import METRICS

CORES = 2  # workers of ps-rl; threads of a peer, for its network and for EnvPool
PROGRAMS = Path(__file__).parent


@dataclass(frozen=True)
class Runner:
    """A program that trains. `typed` is what its users type; `program` is an interpreter, and what it runs."""

    name: str
    typed: str
    program: tuple[str, ...]
    is_ours: bool = False

    def command(self, folder: Path, *, sticky: float | None, seed: int) -> list[str]:
        """
        The command line, with the folder of the run. `sticky`: the probability that a frame repeats the last action,
        or None where an environment has no frames.
        """
        line = [*self.program, "--seed", str(seed)]
        if sticky is not None:
            line += ["--sticky-actions" if self.is_ours else "--sticky", str(sticky)]
        if self.is_ours:
            return [*line, "--run-dir", str(folder)]
        return [*line, "--threads", str(CORES), "--rows", str(folder / METRICS)]


def ours(name: str, *flags: str) -> Runner:
    flags = (*flags, "--workers", str(CORES))
    program = (sys.executable, "-P", "-m", "rl_cluster", *flags, "--until-return", "None", "--no-web")
    return Runner(f"ps-rl, {name}", f"rl-cluster {' '.join(flags)}", program, is_ours=True)


def peers(venvs: Path) -> dict[str, Runner]:
    """The peers by a short name; `venvs` has their virtual environments."""

    def peer(name: str, typed: str, venv: str, program: str, algorithm: str) -> Runner:
        return Runner(name, typed, (str(venvs / venv / "bin" / "python"), str(PROGRAMS / program), algorithm))

    zoo = "rl_zoo3 train --env PongNoFrameskip-v4 --algo"
    cleanrl = "python cleanrl/ppo_atari_envpool.py --env-id Pong-v5"
    return {
        "a2c": peer("Stable-Baselines3 A2C, 16 games", f"{zoo} a2c", "sb3", "sb3_atari.py", "a2c"),
        "ppo": peer("Stable-Baselines3 PPO, 8 games", f"{zoo} ppo", "sb3", "sb3_atari.py", "ppo"),
        "envpool": peer("CleanRL's PPO settings on EnvPool, 8 games", cleanrl, "envpool", "envpool_ppo.py", "ppo"),
        "sac": peer("Stable-Baselines3 SAC", "rl_zoo3 train --env Hopper-v5 --algo sac", "sb3", "sb3_hopper.py", "sac"),
    }


def same_network(venvs: Path) -> list[Runner]:
    """Ours first: the Nature CNN of 1.69 M parameters, 4×84×84, 8 games, unroll 128, 4 passes, batches of 256."""
    flags = "--preset atari --preprocessing atari84 --network nature84 --normalization none --envs 4 --epochs 4"
    others = peers(venvs)
    return [ours("`atari` with their network", *flags.split(), "--minibatches", "2"), others["envpool"], others["ppo"]]


def pong_as_recommended(venvs: Path) -> list[Runner]:
    """Each with the settings that its authors recommend."""
    others = peers(venvs)
    return [
        ours("`pong`", "--preset", "pong"), ours("`atari`", "--preset", "atari"),
        others["a2c"], others["ppo"], others["envpool"],
    ]  # fmt: skip


def hopper_as_recommended(venvs: Path) -> list[Runner]:
    """The same for MuJoCo's Hopper-v5, by SAC."""
    return [ours("`hopper-sac`", "--preset", "hopper-sac"), peers(venvs)["sac"]]
