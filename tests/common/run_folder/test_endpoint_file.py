"""The file that says where a server listens."""

from pathlib import Path

import pytest

from common.run_folder.endpoint_file import read_endpoint, remove_endpoint, write_endpoint

HERE, THERE = "10.0.0.1:5555", "10.0.0.2:40001"


def test_what_was_written_is_read_and_leaves_no_other_file(tmp_path: Path) -> None:
    path = tmp_path / "endpoint"
    for address in (HERE, THERE, "[fd00::7]:5555"):
        write_endpoint(path, address)
        assert read_endpoint(path) == address
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("content", [b"", b"\n", b"10.0.0.1", b"10.0.0.1:", b"\xff\xfe", b"run.toml\nof another\n"])
def test_a_file_without_a_whole_address_reads_as_no_server(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "endpoint").write_bytes(content)
    assert read_endpoint(tmp_path / "endpoint") == ""


def test_no_file_and_a_folder_read_as_no_server(tmp_path: Path) -> None:
    assert read_endpoint(tmp_path / "endpoint") == ""
    assert read_endpoint(tmp_path) == ""


def test_a_server_that_was_replaced_leaves_its_successors_file(tmp_path: Path) -> None:
    path = tmp_path / "endpoint"
    write_endpoint(path, HERE)
    write_endpoint(path, THERE)
    remove_endpoint(path, HERE)
    assert read_endpoint(path) == THERE
    remove_endpoint(path, THERE)
    assert not path.exists()
    remove_endpoint(path, THERE)
