"""
The record of a run: what a checkpoint, and the state transfer to a standby, hold beside the vectors. JSON outside.

Everything is typed and has bounds, and is checked here alone: whoever holds a Record need not ask what is in it. A
record has the number of its format; those of earlier formats are brought up to date by a pure function each.
"""

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import msgspec
from torch import Tensor

from ps_common.errors import DamagedCheckpoint, OtherFormat, SchemaMismatch, SettingsError
from ps_common.protocol.lineage import Lineage
from ps_common.protocol.messages import MOST_ENVIRONMENTS, AdjustmentsRecord, Code, Run
from ps_common.protocol.names import Count, Minutes, Name, Sequence, Signed, Text, as_text, check_address
from ps_common.protocol.status import STALENESS_BOUNDS, Histogram
from ps_common.protocol.tensors import Schema, TensorSpec
from ps_common.release import beside, is_newer

KIND, FORMAT, OLDEST = "checkpoint", 4, 3
MOST_BYTES = 2**26  # of a record: 200,000 workers
EPISODES_IN_MEAN = 100
MOST_STEPS = 10**9  # of one push, however long an unroll: T has to stay a number that a message can carry
WEIGHTS, TARGET, SLOT = "weights", "target", "optimizer."  # names of vectors; each slot has its own after the dot


class Account(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """
    One process's pushes. Invariant: every member of `early` is in (through + 1, through + window].

    A change replaces the account, so that two records of a run share those that have not changed between.
    """

    incarnation: Count
    proof: Name  # a hash of the process's secret
    key: Text  # public key that the worker id is bound to; "" on a server without access control
    number: Count  # 0, 1, 2, … in order of joining; kept by later processes of the worker id
    through: Count = 0  # every push up to here is settled
    early: frozenset[Sequence] = frozenset()  # settled beyond a gap
    durable: Count = 0  # `through` at the newest completed checkpoint
    reported: Count = 0  # every report up to here is counted
    environments: Annotated[int, msgspec.Meta(ge=1, le=MOST_ENVIRONMENTS)] = 1
    unplayed: Signed = 0  # steps of settled pushes minus those of games
    left: bool = False  # the process has said GOODBYE


class ProgressRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The counters of a run, through all its epochs."""

    global_steps: Count  # T
    updates: Count
    episodes: Count
    returns: Annotated[tuple[float, ...], msgspec.Meta(max_length=EPISODES_IN_MEAN)]  # of the newest games
    best_mean: float | None
    best_saved: float | None
    staleness_sum: Count
    staleness_counts: Annotated[Histogram, msgspec.Meta(min_length=len(STALENESS_BOUNDS) + 1)]
    minutes: Minutes
    minutes_to_target: Minutes | None = None  # when the target was reached
    evaluated: Count = 0  # version of the weights of the newest evaluation
    evaluation: float | None = None  # its mean return
    best_evaluation: float | None = None  # the highest mean return of an evaluation
    saved_evaluation: float | None = None  # that of the best checkpoint; None: it is the best by another measure


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One run at one moment. `run` is checked by run_from_dict, which knows the settings."""

    format: int = FORMAT
    release: Text = ""  # of the program that wrote it
    lineage: Lineage
    first_shard: Text
    standby: Text  # HOST:PORT of the newest standby of this server, or ""
    primary: Text  # HOST:PORT of the server that this one replaced, or ""
    version: Sequence
    target_version: Sequence
    run: Run
    schema: tuple[TensorSpec, ...]  # of the whole vector
    ledger: dict[Name, Account]
    superseded: Count  # no process up to this incarnation may come back under a name that the ledger has forgotten
    progress: ProgressRecord
    adjustments: AdjustmentsRecord
    code: dict[Text, Code]
    is_last: bool = False  # of a server that ended in order: it admitted nobody after this moment
    is_followed: bool = False  # the standby followed then, so it may have been promoted since

    def own_schema(self) -> Schema:
        """The schema of the range that the server of this record holds. Raises SchemaMismatch."""
        return Schema(self.schema, shard=self.lineage.shard.number, shards=self.lineage.shard.of)

    def check(self) -> None:
        """Raises SchemaMismatch, SettingsError or ValueError for values that cannot stand beside each other."""
        shards = [part for address in self.lineage.shard.addresses for part in address.split(",")]
        for address in (*shards, self.standby, self.primary, self.lineage.replaced_by):
            if address:
                check_address("the address", address)
        self.own_schema()
        if self.target_version > self.version:
            raise ValueError(f"its target is of version {self.target_version}, and its weights of {self.version}")
        # Before learning starts, steps are counted without an update.
        most = max(1, self.progress.updates) * MOST_STEPS * max(1, len(self.ledger))
        if self.progress.global_steps > most:
            raise ValueError(f"{self.progress.updates} updates cannot count {self.progress.global_steps} steps")


def record_to_json(record: Record) -> bytes:
    """The record as JSON."""
    return msgspec.json.encode(record)


class RecordWriter:
    """Writes one record of a run after another: an account is encoded, and checked, when it has changed."""

    def __init__(self) -> None:
        self._accounts: dict[str, Account] = {}  # of the newest record
        self._encoded: dict[str, msgspec.Raw] = {}  # the same, as JSON

    def json(self, record: Record) -> bytes:
        """The record as JSON. Raises DamagedCheckpoint for one that could not be read again."""
        accounts = record.ledger
        changed = {name: one for name, one in accounts.items() if self._accounts.get(name) is not one}
        try:
            record.check()
            msgspec.json.decode(record_to_json(msgspec.structs.replace(record, ledger=changed)), type=Record)
        except UNREADABLE as error:
            raise _unreadable(error) from error
        self._encoded.update((name, msgspec.Raw(msgspec.json.encode(one))) for name, one in changed.items())
        self._accounts = accounts
        if len(self._encoded) > len(accounts):  # some were forgotten
            self._encoded = {name: self._encoded[name] for name in accounts}
        # A raw account stands for an account; only msgspec's encoder sees it.
        content = record_to_json(msgspec.structs.replace(record, ledger=self._encoded))
        _check_size(content)
        return content


def record_from_json(content: bytes) -> Record:
    """The record in JSON of any known format. Raises DamagedCheckpoint or OtherFormat, which say why."""
    _check_size(content)
    try:
        number = msgspec.json.decode(content, type=_Numbered).format
        check_format(f"ps-rl {KIND} {number}", KIND, release=release_in(content))
        if number == FORMAT:
            record = msgspec.json.decode(content, type=Record)
        else:
            plain = msgspec.json.decode(content, type=dict[str, Any])
            for older in range(number, FORMAT):
                plain = MIGRATIONS[older](plain)
            record = msgspec.convert(plain, Record)
        record.check()
    except KeyError as error:
        raise DamagedCheckpoint(as_text(f"is damaged, because its record has no {error}")) from error
    except UNREADABLE as error:
        newer = beside("its writer", said) if is_newer(said := release_in(content)) else ""
        raise _unreadable(error, newer) from error
    return record


UNREADABLE = (ValueError, TypeError, AttributeError, RecursionError, SchemaMismatch, SettingsError)


def _unreadable(error: Exception, newer: str = "") -> DamagedCheckpoint:
    why = as_text(f"is damaged, because its record cannot be read: {error}")  # it quotes the file
    return DamagedCheckpoint(f"{why}{newer}")


def _check_size(content: bytes) -> None:
    if len(content) > MOST_BYTES:
        raise DamagedCheckpoint(f"is damaged, because its record takes more than {MOST_BYTES} bytes")


def release_in(content: bytes) -> str:
    """The release that wrote this JSON of a record, whatever its format; "" where it does not say one."""
    try:
        return msgspec.json.decode(content, type=_Numbered).release
    except (ValueError, RecursionError):
        return ""


def check_format(said: str, kind: str, *, newest: int = FORMAT, oldest: int = OLDEST, release: str = "") -> None:
    """
    `said` is "ps-rl KIND NUMBER", written by this `release` if that is known. Raises DamagedCheckpoint when it is of no
    `kind`, and OtherFormat when this version of ps-rl does not read its number.
    """
    match = re.fullmatch(rf"ps-rl {kind} ([0-9]{{1,9}})", said)
    if match is None:
        raise DamagedCheckpoint(f"is not a {kind} of ps-rl")
    if not oldest <= (number := int(match[1])) <= newest:
        whose = "a later" if number > newest else "an earlier"
        known = f"{oldest} to {newest}" if oldest < newest else f"{newest} alone"
        what = beside("its writer", release) if release else ""
        raise OtherFormat(f"is a {kind} of format {number}, of {whose} version of ps-rl; this one reads {known}{what}")


def check_vectors(vectors: Mapping[str, Tensor], record: Record) -> None:
    """
    Raises DamagedCheckpoint unless these may be the vectors of this record: finite float32, of its schema's size.

    An optimizer's slots are single numbers, or as long as the weights without statistics.
    """
    schema = record.own_schema()
    for name in {WEIGHTS, *vectors}:
        if name not in vectors:
            raise DamagedCheckpoint(f"is damaged, because it has no {name}")
        vector, is_slot = vectors[name], name.startswith(SLOT)
        shape, wanted = list(vector.shape), [schema.weights if is_slot else schema.size]
        if not is_slot and name not in (WEIGHTS, TARGET):
            raise DamagedCheckpoint(as_text(f"is damaged, because no checkpoint has a tensor {name!r}"))
        if shape != wanted and not (is_slot and shape == []):
            raise DamagedCheckpoint(f"is damaged, because its {name} have the shape {shape}, not {wanted}")
        if vector.dtype.itemsize != 4 or not vector.dtype.is_floating_point:
            raise DamagedCheckpoint(f"is damaged, because its {name} are {vector.dtype}, not float32")
        if not is_finite(vector):
            raise DamagedCheckpoint(f"is damaged, because its {name} hold NaN or Inf")


def is_finite(vector: Tensor) -> bool:
    """In one pass: a sum is finite only if every element is. (Overflow would take elements that guards refuse.)"""
    return bool(vector.sum().isfinite())


class _Numbered(msgspec.Struct):
    """The number of the format and the release alone."""

    format: int = 0
    release: Text = ""


def _from_3(plain: dict[str, Any]) -> dict[str, Any]:
    """Format 3 forgot no worker, and had checksums of vectors, and two styles of summaries."""
    run = {section: settings for section, settings in plain["run"].items() if section not in ("records", "wire")}
    if "records" in plain["run"]:
        kept = {name: value for name, value in plain["run"]["records"].items() if name != "summary_every_updates"}
        run["records"] = kept | {"summaries": "none" if kept.get("summaries") == "none" else "perf"}
    if "wire" in plain["run"]:
        run["wire"] = {name: value for name, value in plain["run"]["wire"].items() if name != "checksums"}
    return plain | {"format": 4, "superseded": 0, "run": run}


# From each format to the next.
MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {3: _from_3}
