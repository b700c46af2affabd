import os
from multiprocessing import Pipe

import pytest

from ps_bench import cli
from ps_bench.processes import Push, _Process
from ps_bench.settings import LoadSettings
from ps_common.errors import PsRlError, SettingsError
from tests.rows import row


def test_workers_are_spread_over_processes_by_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(cli, "most_descriptors", lambda: 10**6)
    assert cli.process_count(LoadSettings(server="10.0.0.1:5", workers=100)) == 1
    assert cli.process_count(LoadSettings(server="10.0.0.1:5", workers=1000)) == 4
    assert cli.process_count(LoadSettings(server="10.0.0.1:5", workers=20_000)) == 8
    assert cli.process_count(LoadSettings(server="127.0.0.1:5", workers=20_000)) == 7, "the server has a core"


def test_a_limit_of_descriptors_that_is_too_low_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "most_descriptors", lambda: 1024)
    with pytest.raises(SettingsError, match=r"needs 2064 descriptors, and may have 1024.*ulimit -Hn 2064"):
        cli.process_count(LoadSettings(server="10.0.0.1:5", workers=1000, processes=1))


def test_numbers_and_names_that_make_no_sense_are_refused() -> None:
    for flags in [{"workers": 0}, {"seconds": 0.0}, {"compute_seconds": -1.0}, {"processes": 0}, {"name": "no blanks"}]:
        with row(flags), pytest.raises(SettingsError, match=f"--{next(iter(flags)).replace('_', '-')}"):
            LoadSettings(server="a:1", **flags)  # type: ignore[arg-type]


def test_a_process_that_is_dead_when_it_is_told_to_push_is_named_with_its_cause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_Process, "end", lambda *_, **__: None)
    monkeypatch.setattr(_Process, "cause_of_death", lambda _: "killed by SIGKILL")
    process = object.__new__(_Process)
    process.connection, theirs = Pipe()
    theirs.close()
    with pytest.raises(PsRlError, match="a process of the load test has failed: killed by SIGKILL"):
        process.tell(Push(1.0))
