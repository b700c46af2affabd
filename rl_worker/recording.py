"""A game on video: the agent sees what it sees in training, the viewer sees the screen."""

from pathlib import Path
from typing import Any

import imageio.v2
import torch

from common.errors import SettingsError
from common.run_spec import Environment
from rl_worker.algorithms.algorithm import Algorithm
from rl_worker.environments import make_environments

SCREENS_PER_SECOND = 30
MOST_SCREENS = 20_000  # a game that never ends must not fill the disk


def record_game(agent: Algorithm, settings: Environment, folder: Path, *, greedy: bool, seed: int) -> Path:
    """Play one full game into FOLDER/GAME.mp4. Raises SettingsError when that cannot be written."""
    path = folder / f"{settings.id.replace('/', '-')}.mp4"
    environments = make_environments(settings, count=1, with_screen=True)
    observations = environments.reset(seed)
    state, starts = agent.initial_state(1), torch.ones(1, dtype=torch.bool)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Typed as a reader by its own stubs; what `get_writer` returns appends.
        video: Any
        with imageio.v2.get_writer(path, fps=SCREENS_PER_SECOND, macro_block_size=2) as video:
            for _ in range(MOST_SCREENS):
                video.append_data(environments.screen())
                decision = agent.act(torch.from_numpy(observations), state, starts, greedy=greedy)
                stepped = environments.step(decision.actions.cpu().numpy())
                observations, state, starts = stepped.observations, decision.state, torch.zeros(1, dtype=torch.bool)
                if (stepped.terminated | stepped.truncated)[0]:
                    break
    except OSError as error:
        raise SettingsError(f"--video {folder}: cannot be written: {error}") from error
    finally:
        environments.close()
    return path
