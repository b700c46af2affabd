"""The file that says where a server listens."""

from pathlib import Path

import pytest

from ps_common.errors import SettingsError
from ps_common.run_folder.endpoint_file import address_of, read_endpoint, remove_endpoint, write_endpoint
from ps_common.run_folder.paths import ENDPOINT, METRICS
from tests.rows import row

HERE, THERE = "10.0.0.1:5555", "10.0.0.2:40001"


def test_a_file_without_a_whole_address_reads_as_no_server(tmp_path_factory: pytest.TempPathFactory) -> None:
    for content in [b"", b"\n", b"10.0.0.1", b"10.0.0.1:", b"\xff\xfe", b"run.toml\nof another\n"]:
        with row(content):
            tmp_path = tmp_path_factory.mktemp("row")
            (tmp_path / "endpoint").write_bytes(content)
            assert read_endpoint(tmp_path / "endpoint") == ""


def test_a_run_folder_and_its_endpoint_file_name_the_server(tmp_path: Path) -> None:
    write_endpoint(tmp_path / ENDPOINT, HERE)
    for named in (HERE, str(tmp_path), str(tmp_path / ENDPOINT)):
        assert address_of("--server", named) == HERE


def test_a_folder_of_shards_names_the_first(tmp_path: Path) -> None:
    for number, address in ((1, HERE), (2, THERE)):
        folder = tmp_path / f"shard-{number}-of-2"
        folder.mkdir()
        write_endpoint(folder / ENDPOINT, address)
        (folder / METRICS).touch()
    assert address_of("--server", str(tmp_path)) == HERE


@pytest.mark.parametrize("named", ["localhost", "localhost:http", "runs/none", "."])
def test_an_address_of_no_server_is_refused_with_the_flag(
    named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingsError, match=f"^--server {named}: "):
        address_of("--server", named)


def test_a_server_that_was_replaced_leaves_its_successors_file(tmp_path: Path) -> None:
    path = tmp_path / "endpoint"
    write_endpoint(path, HERE)
    write_endpoint(path, THERE)
    remove_endpoint(path, HERE)
    assert read_endpoint(path) == THERE
    remove_endpoint(path, THERE)
    assert not path.exists()
    remove_endpoint(path, THERE)
