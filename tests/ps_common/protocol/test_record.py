"""The JSON of one record after another: written by changes, it is that of each record written whole."""

from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps_common.protocol.record import Account, RecordWriter, record_from_json, record_to_json
from tests.records import a_record

NAMES = st.sampled_from([f"w{number}" for number in range(6)])
SEQUENCES = st.integers(1, 9)


def an_account(number: int = 0) -> Account:
    return Account(incarnation=1, proof="p", key="", number=number)


@dataclass
class Counted:
    """A writer, and how many accounts it has encoded for the newest record."""

    writer: RecordWriter
    before: dict[str, msgspec.Raw]

    def write(self, ledger: dict[str, Account]) -> int:
        record = a_record(ledger=ledger)
        content = self.writer.json(record)
        assert record_from_json(content) == record
        assert msgspec.json.decode(content) == msgspec.json.decode(record_to_json(record))
        count = sum(self.before.get(name) is not one for name, one in self.writer._encoded.items())
        self.before = dict(self.writer._encoded)
        return count


@given(st.lists(st.tuples(st.sampled_from(["push", "forget", "write"]), NAMES, SEQUENCES), max_size=40))
def test_whatever_changed_each_record_is_written_whole(happened: list[tuple[str, str, int]]) -> None:
    counted, ledger = Counted(RecordWriter(), {}), dict[str, Account]()
    for what, name, sequence in happened:
        if what == "push":
            ledger[name] = msgspec.structs.replace(ledger.get(name, an_account()), through=sequence)
        elif what == "forget":
            ledger.pop(name, None)
        else:
            counted.write(ledger.copy())
    counted.write(ledger)
    assert counted.write(ledger.copy()) == 0, "nothing has changed"


@pytest.mark.parametrize("names", [10, 1000])
def test_accounts_that_have_not_changed_are_not_encoded_again(names: int) -> None:
    counted = Counted(RecordWriter(), {})
    ledger = {f"w{number}": an_account(number) for number in range(names)}
    assert counted.write(ledger) == names
    changed = msgspec.structs.replace(ledger["w3"], through=4, early=frozenset({6}))
    assert counted.write({**ledger, "w3": changed}) == 1
