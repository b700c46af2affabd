"""The integers of messages and files: whole numbers that every language holds exactly."""

from typing import Annotated

import msgspec

MOST = 2**53 - 1  # the largest integer that encoders of doubles write as an integer
Count = Annotated[int, msgspec.Meta(ge=0, le=MOST)]
Sequence = Annotated[int, msgspec.Meta(ge=1, le=MOST)]
Signed = Annotated[int, msgspec.Meta(ge=-MOST, le=MOST)]
# A step's share of a return, either way. The largest rewards of the Atari games are below it, and float32 holds sums of
# the squares of discounted returns of it.
MOST_REWARD = 1e8
