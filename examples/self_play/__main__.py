"""Train light cycles by self-play, then play against each earlier checkpoint: `python -m examples.self_play`."""

import argparse
from pathlib import Path

import numpy as np

from examples.self_play import light_cycles as game
from examples.self_play.agents_as_rows import AgentsAsRows
from ps_rl import evaluate, load_policy, train

GAMES = 400  # against each in the end


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("runs/self-play"), help="of the run, a new one")
    parser.add_argument("--steps", type=int, default=500_000, help="of all agents together")
    args = parser.parse_args()
    pool = f"{args.folder.absolute()}/checkpoints/episodes-*.safetensors"
    kept = {"max_steps": args.steps, "checkpoint_every_episodes": args.steps // 100, "keep_checkpoints": 1000}
    train(environment=game.light_cycles, environment_kwargs={"pool": pool}, envs=64, run_dir=args.folder, **kept).wait()
    policy = load_policy(args.folder, newest=True, imports=[game.__name__])
    checkpoints = sorted(args.folder.glob("checkpoints/episodes-*.safetensors"))
    for checkpoint in checkpoints[:: 1 + len(checkpoints) // 10]:
        rows = AgentsAsRows(game.LightCycles, 16, str(checkpoint), imports=[game.__name__], against=1.0)
        scores = np.array(evaluate(policy, rows, episodes=GAMES).scores)
        won, drawn, lost = (f"{np.mean(scores == score):.0%}" for score in (1, 0, -1))
        print(f"{GAMES} games against {checkpoint.stem}: {won} won, {drawn} drawn, {lost} lost", flush=True)


if __name__ == "__main__":
    main()
