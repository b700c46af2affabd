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
from ps_common.run_folder.object_store import check_folder, is_url
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
      --json FILE              scores, mean, deviation, interval
      --video FILE             one more whole game as MP4; with --overlay, score, value and probabilities beside it
      --contact-sheet FILE     pictures of the best game
      --film FILE              the learning of the run, game by game
    """

    checkpoint: str | None = None
    """a checkpoint file, or a run folder or object store (s3://BUCKET/NAME): its best checkpoint, or the newest sound
    one if there is no sound best"""
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
    """file for a GIF of the first minute of one more game; or a folder, which gets game-T.gif"""
    overlay: bool = False
    """draw the score, the value estimate and the action probabilities beside the frames of --video and --gif"""
    contact_sheet: Path | None = None
    """file for a PNG with pictures of the best game"""
    film: Path | None = None
    """file for a GIF or MP4 of the learning of the run in --checkpoint, in place of scores; it shows up to nine of
    the run's GIFs, or of games with each kept checkpoint"""
    side_by_side: bool = False
    """show the games of the film side by side instead of in a row"""
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
        of_games = any((self.receipt, self.video, self.gif, self.contact_sheet, self.export, self.json))
        if self.follow is not None and (of_games or self.film is not None or self.baselines):
            raise SettingsError(
                "--follow: prints and reports scores alone; leave --baselines and the flags of files out"
            )
        if self.epsilon is not None and self.greedy:
            raise SettingsError(f"--epsilon {self.epsilon:g}: --greedy has no random actions; leave one of them out")
        if self.baselines and (self.verify is not None or self.film is not None):
            raise SettingsError("--baselines: belongs to scored games; leave --verify and --film out")
        if self.max_episode_steps is not None and self.verify is not None:
            raise SettingsError("--max-episode-steps: a receipt has the limit of its games; leave --verify out")
        if self.verify is not None and (of_games or self.film is not None):
            raise SettingsError("--verify: replays games and writes no files; leave the flags of files out")
        if self.film is not None and of_games:
            raise SettingsError("--film: takes the place of scored games; leave the flags of other files out")
        if self.film is None and self.side_by_side:
            raise SettingsError("--side-by-side: belongs to a film; add --film FILE")
        if self.overlay and self.video is None and self.gif is None:
            raise SettingsError("--overlay: draws into recordings; add --video FILE or --gif FILE")
        if self.film is not None and (self.checkpoint is None or is_url(self.checkpoint)):
            raise SettingsError("--film: is made of a run's folder; add --checkpoint RUN_DIR")
        if self.onnx and self.export is None:
            raise SettingsError("--onnx: belongs to an exported policy; add --export DIR")
        check_folder("--checkpoint", self.checkpoint)
        if self.server is not None:
            check_address("--server", self.server)

    def check_outputs(self) -> None:
        """Raises SettingsError unless every output file can be written."""
        check_output("--receipt", self.receipt)
        check_output("--video", self.video, suffix=".mp4")
        check_output("--gif", None if self.gif is not None and self.gif.is_dir() else self.gif, suffix=".gif")
        check_output("--contact-sheet", self.contact_sheet, suffix=".png")
        is_video = self.film is not None and self.film.suffix.lower() == ".mp4"
        check_output("--film", self.film, suffix=".mp4" if is_video else ".gif")
        check_output("--json", self.json)
        if self.export is not None and (self.export.exists() or not self.export.absolute().parent.is_dir()):
            raise SettingsError(f"--export {self.export}: must be a new folder in an existing one")
