"""A process that is killed while it writes: what it had counted is in the file."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np

from rl_agent.replay.step_ring import STEP, Layout, StepRing

LAYOUT = Layout(1, 50, (4, 8, 8), "uint8", (), "int64", frames=4, run="run")
WRITER = """
import sys
from itertools import count
from pathlib import Path
import numpy as np
from rl_agent.replay.step_ring import STEP, StepRing
from tests.rl_agent.replay.test_killed_writer import LAYOUT, observation
ring = StepRing.open(Path(sys.argv[1]), LAYOUT)
for number in count(int(ring.written[0])):
    ring.append(0, STEP, observation(number), number, float(number))
    print(number, flush=True)
"""


def observation(number: int) -> np.ndarray:
    """Frames number, number + 1, … of one long game."""
    frames = (np.arange(number, number + 4) % 251).astype(np.uint8)
    return np.broadcast_to(frames[:, None, None], (4, 8, 8)).copy()


def test_what_a_killed_process_had_counted_is_whole_in_its_file(tmp_path: Path) -> None:
    path = tmp_path / "memory"
    counted = -1
    for life in range(3):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            for line in writer.stdout:
                counted = int(line)
                if counted > 120 * (life + 1):
                    os.kill(writer.pid, signal.SIGKILL)
                    break
        ring = StepRing.open(path, LAYOUT)
        assert ring.written[0] >= counted + 1
        assert ring.lost <= 1  # the row, or its frame, that was being replaced
        rows = [row for row in range(int(ring.oldest[0]), int(ring.written[0])) if ring.kind[0, row % 50] == STEP]
        assert len(rows) >= 48
        for row in rows:
            assert ring.action[0, row % 50] == row
            assert np.array_equal(ring.observations(np.array([0]), np.array([row]))[0], observation(row))
        del ring


def test_a_frame_that_no_row_counts_is_in_no_observation(tmp_path: Path) -> None:
    """The process was killed after it stored the frame and before it counted the row."""
    ring = StepRing.open(tmp_path / "memory", LAYOUT)
    for number in range(20):
        ring.append(0, STEP, observation(number), number, 0.0)
    ring._store(0, observation(20), is_first=False)
    del ring
    ring = StepRing.open(tmp_path / "memory", LAYOUT)
    for number in range(20, 120):
        ring.append(0, STEP, observation(number), number, 0.0)
        kept = np.arange(ring.oldest[0], ring.written[0])
        found = ring.observations(np.zeros(len(kept), np.int64), kept)
        assert np.array_equal(found, np.stack([observation(row) for row in kept]))
