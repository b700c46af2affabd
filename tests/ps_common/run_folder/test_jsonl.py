"""Files of JSON lines are read a line at a time, without damaged lines."""

import tracemalloc
from pathlib import Path

import msgspec
import pytest

from ps_common.run_folder.run_rows import TAIL_BYTES, last_row, rows_in
from tests.rows import row


class Row(msgspec.Struct):
    n: int


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_damaged_lines_are_left_out(tmp_path_factory: pytest.TempPathFactory) -> None:
    for content, numbers in [
        (b"", []),
        (b'{"n": 1}\n{"n": 2, "more": []}\n', [1, 2]),
        (b'{"n": 1}\n{"n": 2', [1]),
        (b'{"n": 1}\n{"n": 2}', [1, 2]),
        (b'{"n": 1}\n{"n": null}\n\n\xff\xfe\n3\n{"n": 4}\n', [1, 4]),
    ]:
        with row(content, numbers):
            tmp_path = tmp_path_factory.mktemp("row")
            path = written(tmp_path / "x.jsonl", content)
            assert [row.n for row in rows_in(path, Row)] == numbers
            last = last_row(path, Row)
            assert (last.n if last else None) == (numbers[-1] if numbers else None)


def test_the_last_row_is_found_without_reading_the_others(tmp_path: Path) -> None:
    path = written(tmp_path / "x.jsonl", b"x" * 5 * TAIL_BYTES + b'\n{"n": 8}\n')
    tracemalloc.start()
    last = last_row(path, Row)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert last == Row(8)
    assert most < 3 * TAIL_BYTES
