"""
The flags of `rl-eval`, and which of them fit together.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from common.errors import SettingsError
from common.program.number_flags import check_number
from common.program.output_file import check_output
from common.protocol.addresses import check_address
from common.sockets.curve import CurveFlags

MOST_EPISODES = 10**9
MOST_SEED = 10**9  # as in training; seed plus environment number must fit into 31 bits (ALE)


@dataclass(frozen=True, kw_only=True)
class EvaluationSettings(CurveFlags):
    """Play full games with trained weights and print their true scores. Give --checkpoint, --server or --verify."""

    checkpoint: Path | None = None
    """a checkpoint file, or a run folder: its best checkpoint, or the newest sound one if there is no sound best"""
    server: str | None = None
    """HOST:PORT of a running ps-server"""
    verify: Path | None = None
    """a receipt: replay its actions without any weights; the exit status is 1 unless each score comes out again"""
    imports: Annotated[tuple[str, ...], arg(name="import")] = ()
    """modules to import first because they register environments; a run that needs another module is refused, unless
    its server is known by --curve-server-key"""
    episodes: int = 100
    """full games to play"""
    greedy: bool = False
    """take the most probable action instead of sampling the policy"""
    seed: int = 1_000_000
    """seed of the games; the default is far from training's seeds"""
    receipt: Path | None = None
    """file for the receipt of the games: seeds, environment, every action and score; --verify replays it"""
    video: Path | None = None
    """file for an MP4 of one more whole game"""
    gif: Path | None = None
    """file for a GIF of the first minute of one more game"""
    overlay: bool = False
    """draw the score, the value estimate and the action probabilities beside the frames of --video and --gif"""
    contact_sheet: Path | None = None
    """file for a PNG with pictures of the best game"""
    json: Path | None = None
    """file for the result"""

    def __post_init__(self) -> None:
        given = [source for source in (self.checkpoint, self.server, self.verify) if source is not None]
        if len(given) != 1:
            raise SettingsError("give one of --checkpoint PATH, --server HOST:PORT and --verify RECEIPT")
        if self.verify is not None and any((self.receipt, self.video, self.gif, self.contact_sheet, self.json)):
            raise SettingsError("--verify: replays games and writes no files; leave the flags of files out")
        if self.overlay and self.video is None and self.gif is None:
            raise SettingsError("--overlay: draws into recordings; add --video FILE or --gif FILE")
        if self.server is not None:
            check_address("--server", self.server)
        check_number("--episodes", self.episodes, least=1, most=MOST_EPISODES)
        check_number("--seed", self.seed, least=0, most=MOST_SEED)

    def check_outputs(self) -> None:
        """Raises SettingsError unless every output file can be written."""
        check_output("--receipt", self.receipt)
        check_output("--video", self.video, suffix=".mp4")
        check_output("--gif", self.gif, suffix=".gif")
        check_output("--contact-sheet", self.contact_sheet, suffix=".png")
        check_output("--json", self.json)
