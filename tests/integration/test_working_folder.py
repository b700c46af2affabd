"""The working folder: an environment of one's own is found there, and nothing in it breaks a program."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.processes import Program, Programs, programs_in, status_of, wait_for
from tests.rl_agent.custom_environments import LINE

# Names of ours, of an installed package and of the standard library.
TAKEN = ["common/__init__.py", "torch.py", "zmq/__init__.py", "random.py", "statistics.py"]
ENVIRONMENT = ("--environment", "myenvs:Line-v0")
SHADOW = "raise RuntimeError(f'{__name__} of the working folder was imported')"


@pytest.fixture
def anew(tmp_path: Path) -> Iterator[Programs]:
    """Programs that import everything in the folder that they are started in."""
    with programs_in(tmp_path, import_anew=True) as started:
        yield started


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder with an environment, and with modules whose names are taken."""
    here = tmp_path / "here"
    here.mkdir()
    (here / "myenvs.py").write_text(LINE)
    for name in TAKEN:
        (here / name).parent.mkdir(exist_ok=True)
        (here / name).write_text(SHADOW)
    return here


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run whose environment is a module of its user's."""
    here = tmp_path_factory.mktemp("elsewhere")
    (here / "myenvs.py").write_text(LINE)
    with programs_in(here) as programs:
        flags = ["--environment", "myenvs:Line-v0", "--max-steps", "400", "--workers", "1", "--run-dir", "run"]
        succeeds(programs.start("rl-cluster", *flags, folder=here))
    return here / "run"


def succeeds(program: Program) -> str:
    assert program.wait() == 0, program.output
    return program.output


def test_an_environment_in_the_working_folder_is_trained_and_played(anew: Programs, folder: Path) -> None:
    cluster = anew.start(
        "rl-cluster", *ENVIRONMENT, "--max-steps", "400", "--workers", "1", "--run-dir", "run", folder=folder
    )
    assert "rl-eval --checkpoint run --import myenvs" in succeeds(cluster), "what to type next"
    evaluation = anew.start(
        "rl-eval",
        *["--checkpoint", "run", "--import", "myenvs", "--episodes", "2", "--video", "game.mp4"],
        folder=folder,
    )
    assert "myenvs:Line-v0: mean" in succeeds(evaluation)


@pytest.mark.parametrize(
    ("program", "path"),
    [
        ("rl-cluster", "."),
        ("ps_server", ""),
    ],
)
def test_no_name_in_the_working_folder_breaks_a_program(anew: Programs, folder: Path, program: str, path: str) -> None:
    """`ps_server` is run with `python -m`, which puts the working folder first."""
    variables = {"PYTHONPATH": path} if path else {}
    assert "usage" in succeeds(anew.start(program, "--help", folder=folder, variables=variables))


def test_a_folder_that_bears_the_name_of_a_package_of_ours_hides_none_of_its_files(
    anew: Programs, tmp_path: Path
) -> None:
    (tmp_path / "rl_worker").mkdir()
    start = anew.start("rl_worker", "--server", "127.0.0.1:9", "--preset", "pnog", folder=tmp_path)
    assert start.wait() == 2
    assert "--preset pnog" in start.output


@pytest.mark.parametrize(
    "flags",
    [
        ["rl-eval", "--checkpoint", "run"],
        ["rl-cluster", "--resume", "run"],
        ["rl-cluster", "--config", "run/run.toml"],
        ["rl-worker", "--server", "127.0.0.1:9", "--config", "run/run.toml"],
    ],
    ids=" ".join,
)
def test_no_module_is_imported_on_the_word_of_a_file(
    programs: Programs, finished_run: Path, tmp_path: Path, flags: list[str]
) -> None:
    """A run folder that came from elsewhere, with a module beside it."""
    here, sprung = tmp_path / "downloaded", tmp_path / "sprung"
    shutil.copytree(finished_run, here / "run")
    (here / "myenvs.py").write_text(f"open({str(sprung)!r}, 'w')\n{LINE}")
    program = programs.start(*flags, folder=here)
    assert program.wait() == 2, program.output
    assert "trains myenvs:Line-v0" in program.output
    assert "add --import myenvs" in program.output
    assert "Traceback" not in program.output
    assert not sprung.exists()
    assert [entry.name for entry in here.iterdir() if entry.name not in ("run", "myenvs.py")] == []


def test_no_module_is_imported_on_the_word_of_a_stranger(programs: Programs, folder: Path, tmp_path: Path) -> None:
    """The first worker has decided on an environment whose module would be found here, too."""
    trap, sprung = tmp_path / "trap", tmp_path / "sprung"
    trap.mkdir()
    (trap / "myenvs.py").write_text(f"open({str(sprung)!r}, 'w')\n{LINE}")
    server, endpoint = programs.start_server("--max-steps", "100000000")
    programs.start("rl-worker", "--server", endpoint, "--environment", "myenvs:Line-v0", folder=folder)
    wait_for(lambda: status_of(endpoint).version > 1, program=server)
    honest = [
        programs.start("rl-worker", "--server", endpoint, "--name", "honest", folder=trap),
        programs.start("rl-eval", "--server", endpoint, "--episodes", "1", folder=trap),
    ]
    for program in honest:
        assert program.wait() == 2, program.output
        assert "trains myenvs:Line-v0" in program.output
        assert "add --import myenvs" in program.output
        assert "Traceback" not in program.output
    assert not sprung.exists()
    succeeds(programs.start("rl-eval", "--server", endpoint, "--episodes", "1", "--import", "myenvs", folder=trap))
    assert sprung.exists()
