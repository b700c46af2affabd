"""What a setting may do is read from the line where it stands."""

import shutil
import subprocess
import sys
from pathlib import Path

from ps_common.settings import run_spec
from ps_common.settings.kinds import Kinds
from ps_common.settings.run_settings import flat_settings, with_settings
from ps_common.settings.run_spec import ALGORITHM_SETTINGS, OPTIMIZER_SETTINGS, RunSpec
from ps_common.settings.table import TABLE, kinds_of, rows_of

REPOSITORY = Path(run_spec.__file__).parents[3]
BESIDE = "    max_episodes: NotNegative = 0\n"
NEW = '    max_naps: Annotated[NotNegative, ADJUSTABLE, KEPT, needs(*SLACK)] = 7\n    """most naps"""\n' + BESIDE
EVERYWHERE = """
import dataclasses, io, contextlib
from ps_common.errors import SettingsError
from ps_common.program.flags import parse_with_run
from ps_common.settings import adjustable, overrides
from ps_common.settings.run_settings import run_from_dict, with_keywords
from ps_common.settings.run_spec import RunSpec
from docs.extension.settings_tables import settings

@dataclasses.dataclass(frozen=True)
class Program:
    'A program.'

def refusal(call, *arguments, **more):
    try:
        call(*arguments, **more)
    except SettingsError as error:
        return str(error)

printed = io.StringIO()
with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
    parse_with_run(Program, ["--help"], prog="p")
assert "--max-naps" in printed.getvalue() and "most naps" in printed.getvalue()
flags = parse_with_run(Program, ["--max-naps", "3"], prog="p")
assert flags.overrides == {"budget.max_naps": 3} and flags.run.budget.max_naps == 3
typed = ["--preset", "pong", "--max-naps=3"]
assert "--max-naps: has no effect here" in refusal(parse_with_run, Program, typed, prog="p")
run = run_from_dict({"budget": {"max_naps": 5}}, source="a file")
assert "max_naps = 5" in run.to_toml()
assert "--max-naps" in refusal(run_from_dict, {"budget": {"max_naps": -1}}, source="a file")
assert with_keywords(run, {"max_naps": 4}, source="train")[0].budget.max_naps == 4
assert adjustable.settings_in(["max_naps=2"]) == {"budget.max_naps": 2}
assert overrides.contradiction(run, {"budget.max_naps": 6}).startswith("--max-naps 6 contradicts")
assert "a resumed run keeps 5" in refusal(overrides.resumed_run, run, {"budget.max_naps": 6})
assert "|`--max-naps`|" in settings()
"""


def test_a_setting_that_is_added_in_one_line_shows_up_everywhere(tmp_path: Path) -> None:
    for package in ("common/ps_common", "docs/extension"):
        shutil.copytree(REPOSITORY / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    scratch = tmp_path / Path(run_spec.__file__).relative_to(REPOSITORY)
    source = scratch.read_text()
    assert source.count(BESIDE) == 1
    scratch.write_text(source.replace(BESIDE, NEW))
    environment = {"PYTHONPATH": f"{tmp_path}:{tmp_path / 'common'}", "COLUMNS": "100"}
    done = subprocess.run(
        [sys.executable, "-c", EVERYWHERE], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_every_setting_of_every_run_has_a_row_and_its_kinds() -> None:
    for algorithm in ALGORITHM_SETTINGS:
        for optimizer in OPTIMIZER_SETTINGS:
            named = {"algorithm.name": algorithm, "optimizer.name": optimizer}
            assert flat_settings(with_settings(RunSpec(), named, source="a test").to_dict()).keys() <= TABLE.keys()
    rows = list(rows_of(RunSpec))
    for name, row in rows:
        assert TABLE[name].kinds == row.kinds, f"{name} is of other kinds in another algorithm or optimizer"


def test_kinds_of_a_section_hold_for_its_settings_unless_they_say_otherwise() -> None:
    assert kinds_of("network.hidden") == Kinds(kept=True, built_in=True)
    assert kinds_of("environment.envs") == Kinds(each_workers=True, built_in=True)
    assert kinds_of("algorithm.entropy_weight") == Kinds(adjustable=True)
    assert kinds_of("algorithm.name").kept
    assert kinds_of("algorithm.a_setting_of_a_custom_algorithm") == Kinds(built_in=True)
    assert kinds_of("unknown") == Kinds()


def test_what_may_be_adjusted_is_no_difference_that_a_worker_is_refused_for() -> None:
    assert [name for name, setting in TABLE.items() if setting.kinds.adjustable and setting.kinds.built_in] == []
