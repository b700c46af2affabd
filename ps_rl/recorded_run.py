"""`RecordedRun`: what the folder of a run tells, live or over, and what is made of its weights."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ps_common.program.objects import have
from ps_common.run_folder.checkpoint_folder import checkpoints_of
from ps_common.run_folder.endpoint_file import read_endpoint
from ps_common.run_folder.paths import ENDPOINT, EPISODES, METRICS, records_folder
from ps_common.run_folder.run_rows import (
    EpisodeRow,
    EvaluationRow,
    MetricsRow,
    last_row,
    read_episodes,
    read_evaluations,
    rows_in,
)
from ps_common.settings.run_files import SETTINGS, load_config
from ps_common.settings.run_settings import keywords_of
from ps_rl.cluster_process import run_rl_eval
from ps_rl.custom_objects import pickled
from ps_rl.updates import Curve
from rl_eval.games import Result

if TYPE_CHECKING:
    import pandas

    from rl_eval.policy import Policy


class RecordedRun:
    """A run by its files."""

    folder: Path
    modules: Sequence[str]  # of the parts that this program has named, which may be imported
    objects: Mapping[str, Any]  # parts without an import path, by name

    @property
    def endpoint(self) -> str:
        """HOST:PORT of the server while it serves, else ""; for `load_policy`, `ps-ctl` and workers elsewhere."""
        return read_endpoint(records_folder(self.folder) / ENDPOINT)

    @property
    def settings(self) -> dict[str, Any]:
        """All settings of the run by the names of their flags. Raises SettingsError when they cannot be read."""
        return keywords_of(load_config(records_folder(self.folder) / SETTINGS))

    @property
    def status(self) -> MetricsRow | None:
        """The newest row; None before the first."""
        return last_row(records_folder(self.folder) / METRICS, MetricsRow)

    def checkpoints(self) -> list[Path]:
        """The checkpoints of the run, the newest first; of shard 1 where it has shards."""
        return checkpoints_of(records_folder(self.folder))

    def curve(self) -> Curve:
        """The learning curve so far; empty arrays before the first game has ended."""
        return Curve.of(self._rows())

    def frame(self) -> "pandas.DataFrame":
        """All rows as a data frame, a column for each field. Raises ImportError without pandas."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError("Run.frame needs pandas: pip install pandas; Run.curve does without") from error
        return pandas.DataFrame([msgspec.to_builtins(row) for row in self._rows()])

    def episodes(self) -> list[EpisodeRow]:
        """The games that workers have played, in order; of long runs the older ones as means of several."""
        folder = records_folder(self.folder)
        return read_episodes(folder) if (folder / EPISODES).is_file() else []

    def evaluations(self) -> list[EvaluationRow]:
        """The scores of games that were played apart from training while it went on, in order; [] without any."""
        return read_evaluations(records_folder(self.folder))

    def evaluate(
        self,
        *,
        episodes: int = 100,
        greedy: bool = False,
        epsilon: float | None = None,
        seed: int = 1_000_000,
        max_episode_steps: int | None = None,
        imports: Sequence[str] = (),
    ) -> Result:
        """
        Full games with the best weights (or the newest intact ones), played by a process of `rl-eval`.

        The same seed gives the same games, and those of `ps_rl.evaluate`. `epsilon` is the share of random actions of a
        method of action values, 0.05 where it is None. Games end at `max_episode_steps`, else at the limit of the run
        or of the environment, and where there is none after 27,000 steps. `imports` names modules of custom parts,
        beside those that this program has named to `train`.

        Raises PsRlError with the reason of rl-eval.
        """
        with tempfile.TemporaryDirectory() as place:
            path = Path(place) / "result.json"
            flags = ["--episodes", str(episodes), "--seed", str(seed), "--json", str(path)]
            flags += [*(["--greedy"] if greedy else []), *([] if epsilon is None else ["--epsilon", str(epsilon)])]
            flags += [] if max_episode_steps is None else ["--max-episode-steps", str(max_episode_steps)]
            self._rl_eval(flags, imports)
            return msgspec.json.decode(path.read_bytes(), type=Result)

    def export(
        self, folder: str | Path, *, episodes: int = 100, onnx: bool = False, imports: Sequence[str] = ()
    ) -> Path:
        """
        Write the policy with the best weights into a new folder, which `load_policy` takes; its card has its score in
        so many games. `onnx` adds the network as ONNX. Raises PsRlError with the reason of rl-eval.
        """
        self._rl_eval(["--episodes", str(episodes), "--export", str(folder), *(["--onnx"] if onnx else [])], imports)
        return Path(folder)

    def policy(self, checkpoint: str | Path = "best", *, imports: Sequence[str] = (), seed: int = 0) -> "Policy":
        """
        The policy with the "best" weights (or the newest intact ones), the "last" ones, or those of a checkpoint.
        `imports` and `seed` are those of `load_policy`, which says what is raised.
        """
        from rl_eval.policy import load_policy

        have(self.objects)  # another run may have taken their names
        path = self.folder if checkpoint in ("best", "last") else checkpoint
        return load_policy(path, imports=self._modules(imports), seed=seed, newest=checkpoint == "last")

    def _rl_eval(self, flags: Sequence[str], imports: Sequence[str]) -> None:
        named = ["--import", *modules] if (modules := self._modules(imports)) else []
        run_rl_eval(["--checkpoint", str(self.folder), *flags, *named], pickled(self.objects))

    def _modules(self, imports: Sequence[str]) -> list[str]:
        return [*self.modules, *([imports] if isinstance(imports, str) else imports)]

    def _rows(self) -> Iterator[MetricsRow]:
        path = records_folder(self.folder) / METRICS
        return rows_in(path, MetricsRow) if path.is_file() else iter(())
