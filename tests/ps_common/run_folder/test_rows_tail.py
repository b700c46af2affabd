from pathlib import Path

import msgspec
import pytest

from ps_common.run_folder.run_rows import RowsTail


class Row(msgspec.Struct):
    number: int


def numbers(tail: RowsTail[Row]) -> tuple[list[int], bool]:
    rows, anew = tail.read()
    return [row.number for row in rows], anew


def test_each_row_is_read_once_when_its_line_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    tail = RowsTail(path, Row)
    path.write_bytes(b'{"number": 1}\n{"number"')
    assert numbers(tail) == ([1], True)
    with path.open("ab") as file:
        file.write(b': 2}\nthis is no row\n{"number": 3}\n')
    assert numbers(tail) == ([2, 3], False)
    assert numbers(tail) == ([], False)


def test_a_file_that_was_thinned_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.write_bytes(b'{"number": 1}\n{"number": 2}\n{"number": 3}\n')
    tail = RowsTail(path, Row)
    tail.read()
    (tmp_path / "thinned").write_bytes(b'{"number": 2}\n{"number": 3}\n')
    (tmp_path / "thinned").replace(path)
    assert numbers(tail) == ([2, 3], True)


@pytest.mark.parametrize("old_number", [True, False], ids=["its inode again", "another inode"])
def test_of_each_file_that_took_the_place_of_another_all_rows_are_read(tmp_path: Path, old_number: bool) -> None:
    """Of two thinnings in a row the second may get the inode that the first has freed; the file may be longer, too."""
    path = tmp_path / "rows"
    path.write_bytes(b"".join(b'{"number": %d}\n' % number for number in range(300)))
    tail = RowsTail(path, Row)
    tail.read()
    for first in (150, 300, 1000):
        content = b"".join(b'{"number": %d}\n' % number for number in range(first, first + 500))
        if old_number:
            path.write_bytes(content)
        else:
            (tmp_path / "thinned").write_bytes(content)
            (tmp_path / "thinned").replace(path)
        assert numbers(tail) == (list(range(first, first + 500)), True)
        with path.open("ab") as file:
            file.write(b'{"number": -1}\n')
        assert numbers(tail) == ([-1], False)


def test_of_a_long_file_rows_spread_evenly_are_read_and_the_newest(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    tail = RowsTail(path, Row, most_rows=100)
    count = 5 * 100 + 3
    path.write_bytes(b"".join(b'{"number": %d}\n' % number for number in range(count)))
    rows, anew = numbers(tail)
    assert anew
    assert rows == list(range(count))[::-1][::6][::-1]
    with path.open("ab") as file:
        file.write(b'{"number": -1}\n')
    assert numbers(tail) == ([-1], False)
