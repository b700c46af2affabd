"""
The flags of `rl-eval`, and which of them fit together.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta
from tyro.conf import arg

from ps_common.errors import SettingsError
from ps_common.program.number_flags import check_numbers
from ps_common.protocol.names import check_address
from ps_common.run_folder.object_store import check_folder
from ps_common.run_folder.output_files import check_output
from ps_common.sockets.curve import CurveFlags

MOST_EPISODES = 10**9
MOST_STEPS = 10**9  # of a game, as in training
MOST_SEED = 10**9  # as in training; seed plus environment number must fit into 31 bits (ALE)


@dataclass(frozen=True, kw_only=True)
class EvaluationSettings(CurveFlags):
    """
    Play full games with trained weights and print their true scores. Give --checkpoint, --server, --follow
    or --verify.

      rl-eval --checkpoint RUN_DIR                               the score of a run's best weights
      rl-eval --checkpoint RUN_DIR --episodes 1 --gif game.gif   see it play
      rl-eval --follow RUN_DIR                               its score again and again, while it trains
      rl-eval --checkpoint RUN_DIR --receipt receipt.json        a proof, for rl-eval --verify receipt.json

    The flags that matter first:
      --checkpoint PATH        a run folder, or one checkpoint; --server HOST:PORT takes a live server's weights
      --episodes N             games to play
      --greedy                 always the most probable action, in place of sampling
      --baselines              random play and each action held, beside the score
      --seed N                 of the games
      --receipt FILE           everything that decided the games; --verify FILE plays them again
      --json FILE              scores, mean, standard deviation, interval
      --video FILE             one more whole game as MP4
    """

    checkpoint: str | None = None
    """a checkpoint file, or a run folder or object store (s3://BUCKET/NAME): its best checkpoint, or the newest intact
    one if the best is damaged or missing"""
    server: str | None = None
    """HOST:PORT of a running ps-server"""
    follow: str | None = None
    """a run folder, or HOST:PORT of its server: play the games with each new checkpoint until the run is over, and
    report each score to the server, whose page and records show it"""
    verify: Path | None = None
    """a receipt: replay its actions without any weights; the exit status is 1 unless each score comes out again"""
    imports: Annotated[tuple[str, ...], arg(name="import")] = ()
    """modules to import first: they register environments, or have parts of the run; a run that needs another module
    is refused, unless its server is known by --curve-server-key"""
    episodes: Annotated[int, Meta(ge=1, le=MOST_EPISODES)] = 100
    """full games to play"""
    greedy: bool = False
    """take the most probable action instead of sampling the policy; for action values the best one, as --epsilon 0"""
    max_episode_steps: Annotated[int, Meta(ge=1, le=MOST_STEPS)] | None = None
    """cut games off after this many steps; when not given, they end at the limit of the run or of the environment, and
    where there is none after 27,000 steps"""
    epsilon: Annotated[float, Meta(ge=0, le=1)] | None = None
    """share of random actions of a method that learns action values; 0.05 when not given"""
    baselines: bool = False
    """also play 100 games at random and 30 with each single action held, and print their scores beside this one"""
    seed: Annotated[int, Meta(ge=0, le=MOST_SEED)] = 1_000_000
    """seed of the games; the default is far from training's seeds"""
    receipt: Path | None = None
    """file for the receipt of the games: seeds, environment, every action and score; --verify replays it"""
    video: Path | None = None
    """file for an MP4 of one more whole game"""
    gif: Path | None = None
    """file for a GIF of the first minute of one more game"""
    export: Path | None = None
    """new folder for the policy: weights by name, settings, a model card with these scores, and their receipt"""
    onnx: bool = False
    """add the network as ONNX to --export; needs the extra onnx"""
    json: Path | None = None
    """file for the result"""

    def __post_init__(self) -> None:
        check_numbers(self)
        sources = (self.checkpoint, self.server, self.follow, self.verify)
        if len([source for source in sources if source is not None]) != 1:
            raise SettingsError(
                "give one of --checkpoint PATH, --server HOST:PORT, --follow RUN_DIR and --verify RECEIPT"
            )
        of_games = any((self.receipt, self.video, self.gif, self.export, self.json))
        if self.follow is not None and (of_games or self.baselines):
            raise SettingsError("--follow: only prints and reports scores; remove --baselines and the flags of files")
        if self.epsilon is not None and self.greedy:
            raise SettingsError(f"--epsilon {self.epsilon:g}: --greedy has no random actions; remove one of them")
        if self.baselines and self.verify is not None:
            raise SettingsError("--baselines: belongs to scored games; remove --verify")
        if self.max_episode_steps is not None and self.verify is not None:
            raise SettingsError("--max-episode-steps: a receipt has the limit of its games; remove it or --verify")
        if self.verify is not None and of_games:
            raise SettingsError("--verify: replays games and writes no files; remove the flags of files")
        if self.onnx and self.export is None:
            raise SettingsError("--onnx: belongs to an exported policy; add --export DIR")
        check_folder("--checkpoint", self.checkpoint)
        if self.server is not None:
            check_address("--server", self.server)

    def check_outputs(self) -> None:
        """Raises SettingsError unless every output file can be written."""
        check_output("--receipt", self.receipt)
        check_output("--video", self.video, suffix=".mp4")
        check_output("--gif", self.gif, suffix=".gif")
        check_output("--json", self.json)
        if self.export is not None and (self.export.exists() or not self.export.absolute().parent.is_dir()):
            raise SettingsError(f"--export {self.export}: must be a new folder in an existing one")
