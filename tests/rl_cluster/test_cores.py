"""Cores that a process may use, where a container may use a part of the host's."""

import os
from pathlib import Path

import pytest

from rl_cluster.cores import usable_cores
from tests.rows import row

HOST = 16


@pytest.fixture(autouse=True)
def a_large_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(HOST)))


def cores_with(folder: Path, membership: str, files: dict[str, str]) -> int:
    """With these control groups."""
    (folder / "membership").write_text(membership)
    for name, text in files.items():
        path = folder / "groups" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return usable_cores(membership=folder / "membership", groups=folder / "groups")


CASES = {
    "no groups": ("", {}, HOST),
    "no limit": ("0::/a\n", {"a/cpu.max": "max 100000"}, HOST),
    "its own": ("0::/a/b\n", {"a/b/cpu.max": "400000 100000"}, 4),
    "one around it": ("0::/a/b\n", {"a/b/cpu.max": "max 100000", "a/cpu.max": "250000 100000"}, 2),
    "in a container": ("0::/docker/123\n", {"cpu.max": "300000 100000"}, 3),
    "part of a core": ("0::/\n", {"cpu.max": "50000 100000"}, 1),
    "more than there are": ("0::/\n", {"cpu.max": "9900000 100000"}, HOST),
    "of version 1": ("5:cpu,cpuacct:/a\n0::/b\n", {"b/cpu.max": "200000 100000"}, 2),
}


def test_the_lowest_limit_counts(tmp_path_factory: pytest.TempPathFactory) -> None:
    for case in CASES:
        with row(case):
            tmp_path = tmp_path_factory.mktemp("row")
            membership, files, cores = CASES[case]
            assert cores_with(tmp_path, membership, files) == cores


def test_a_system_without_control_groups_has_its_cores(tmp_path: Path) -> None:
    assert usable_cores(membership=tmp_path / "nothing", groups=tmp_path) == HOST
