"""Which address a worker connects to next."""

from pathlib import Path

from ps_common.run_folder.endpoint_file import LOOK_SECONDS, ServerAddress, write_endpoint

HERE, THERE = "10.0.0.1:5555", "10.0.0.2:40001"


def test_of_two_typed_addresses_each_is_next_in_turn() -> None:
    address = ServerAddress(f"{HERE},{THERE}")
    tried = [address.current]
    for _ in range(3):
        assert not address.has_moved(now=100.0)
        address.advance()
        tried.append(address.current)
    assert tried == [HERE, THERE, HERE, THERE]
    assert set(address.known) == {HERE, THERE}


def test_the_address_of_a_file_is_taken_when_it_is_there_and_kept_when_the_file_goes(tmp_path: Path) -> None:
    path = tmp_path / "endpoint"
    address = ServerAddress(str(path))
    assert (address.current, list(address.known)) == ("", [])
    write_endpoint(path, HERE)
    assert address.has_moved(now=100.0)
    address.advance()
    assert (address.current, list(address.known)) == (HERE, [HERE])
    write_endpoint(path, THERE)
    assert not address.has_moved(now=100.0 + LOOK_SECONDS / 2)
    assert address.has_moved(now=100.0 + LOOK_SECONDS)
    address.advance()
    path.unlink()
    assert not address.has_moved(now=200.0)
    assert (address.current, str(address)) == (THERE, THERE)
