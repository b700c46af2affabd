"""
Frames of a worker's own first game for those who watch it: screen, score, value estimate, action probabilities.

The game is the one that is learned from; nothing is played for show. While nobody watches, a decision costs one look at
a flag. A picture is the environment's screen where it can be drawn at any time, else what the agent sees.
"""

import io
import logging
import time
from collections.abc import Callable

import torch
from PIL import Image
from torch import Tensor

from ps_common.protocol.messages import MOST_IMAGE_BYTES, Frame
from ps_common.protocol.names import as_text
from rl_agent.algorithms.algorithm import Algorithm, Prediction
from rl_agent.environments.interface import Environments, Screen
from rl_agent.environments.spaces import DiscreteActions
from rl_agent.rollouts import Decision, State

FRAME_SECONDS = 0.2  # between two frames
MOST_SIDE = 320  # pixels: larger screens are reduced
LEAST_SIDE = 160  # smaller ones are enlarged: JPEG blurs pictures of few pixels
MOST_SHOWN = 18  # actions: those of a full Atari joystick
QUALITIES = (85, 50, 20)  # of a JPEG: the next where it is too large

log = logging.getLogger("rl-worker")


class LiveGame:
    """`send` gets at most five frames a second while `is_watched` returns True."""

    def __init__(
        self,
        agent: Algorithm,
        environments: Environments,
        *,
        is_watched: Callable[[], bool],
        send: Callable[[Frame], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._agent = agent
        self._environments = environments
        self._is_watched = is_watched
        self._send = send
        self._clock = clock
        self._due = 0.0
        self._has_screen, self._has_failed = True, False

    def decided(self, observations: Tensor, state: State, starts: Tensor, decision: Decision, score: float) -> None:
        """The agent has decided on these observations; `score` is that of the first environment so far."""
        if self._has_failed or not self._is_watched() or (now := self._clock()) < self._due:
            return
        self._due = now + FRAME_SECONDS
        try:
            prediction = self._agent.predict(observations[:1], tuple(part[:1] for part in state), starts[:1])
            frame = self._frame(prediction, decision, score)
        except Exception as error:  # of a custom algorithm: nobody's training ends because somebody watches
            self._has_failed = True
            log.warning("this game cannot be watched: its prediction fails: %s: %s", type(error).__name__, error)
            return
        self._send(frame)

    def _frame(self, prediction: Prediction, decision: Decision, score: float) -> Frame:
        value, image, space = float(prediction.values[0]), self._image(), self._environments.actions
        if prediction.probabilities is None or not isinstance(space, DiscreteActions):
            taken = " ".join(f"{float(part):+.2f}" for part in decision.actions[0][:MOST_SHOWN])
            return Frame(image=image, score=score, value=value, taken=taken)
        shares = prediction.probabilities[0]
        shown = torch.topk(shares, min(MOST_SHOWN, len(shares))).indices.sort().values.tolist()
        return Frame(
            image=image,
            score=score,
            value=value,
            actions=tuple(_name(space, action) for action in shown),
            probabilities=tuple(float(shares[action]) for action in shown),
            taken=_name(space, int(decision.actions[0])),
        )

    def _image(self) -> bytes:
        """The picture of now; empty for a game that has none. A screen that cannot be drawn does not end training."""
        if not self._has_screen:
            return b""
        try:
            return encoded(self._environments.screen())
        except Exception as error:  # of the environment's own code
            self._has_screen = False
            log.warning("this game is watched without a picture: %s: %s", type(error).__name__, error)
            return b""


def encoded(screen: Screen) -> bytes:
    """A screen, in colour or gray, as JPEG; empty if that is too large at any quality."""
    side = max(screen.shape[:2])
    picture = Image.fromarray(screen.squeeze()).reduce(-(-side // MOST_SIDE))
    if side < LEAST_SIDE:
        larger = -(-LEAST_SIDE // side)
        picture = picture.resize((larger * picture.width, larger * picture.height), Image.Resampling.NEAREST)
    for quality in QUALITIES:
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=quality, subsampling=0)
        if file.tell() <= MOST_IMAGE_BYTES:
            return file.getvalue()
    return b""


def _name(space: DiscreteActions, action: int) -> str:
    return as_text(space.names[action] if space.names else str(action))
