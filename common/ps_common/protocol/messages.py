"""
Every message between a client (a worker, an admin, a standby) and the server, as a frozen typed struct. PROTOCOL.md
defines what each side must do.

A message that carries a vector (SEED, PUSH, WEIGHTS) names its codec; the bytes follow in frames of their
own, or, for small clients, stand in `inline`. Those of STATE and UPDATE always follow in frames. Every request has a
`request` number that its reply repeats. Every request may be sent again: the server replies again, and does not do the
work twice.
"""

from typing import Annotated, Any, Literal

import msgspec

from ps_common.protocol.lineage import WHOLE, Shard
from ps_common.protocol.names import (
    LONGEST_TEXT,
    MOST,
    Address,
    Count,
    Minutes,
    Name,
    Number,
    Sentence,
    Sequence,
    Text,
    is_text,
)
from ps_common.protocol.status import MOST_METERS, Adjustment, Status
from ps_common.protocol.tensors import MAX_TENSORS, TensorSpec

Secret = Annotated[str, msgspec.Meta(min_length=16, max_length=100, pattern=r"^[!-~]{16,100}\Z")]
# Settings nest no deeper than this: a value that nests without end cannot even be printed.
# `_check_run` checks their texts: msgspec 0.22 crashes on a union of a container and a text with a pattern.
Plain = bool | int | float | str | None
Inner = Plain | tuple[Plain, ...] | dict[str, Plain]
Outer = Plain | tuple[Inner, ...] | dict[str, Inner]
Setting = Plain | tuple[Plain, ...] | dict[str, Outer]  # a table is the keyword arguments of a part
Settings = dict[str, Setting]
PlainSettings = dict[str, Plain | tuple[Plain, ...]]
Run = dict[str, Plain | tuple[Plain, ...] | Settings]

NO_LIMIT = MOST  # bytes
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
# A client renews a lease some times before its end: a shorter one would keep it busy.
Lease = Annotated[float, msgspec.Meta(ge=1, le=1e9)]
MOST_ENVIRONMENTS = 4096  # of one worker: they bound the steps that its pushes may count
MOST_EPISODES = 500  # in one report
MOST_OWN_MODULES = 32
MOST_ADJUSTED = 16  # settings in one message
MOST_ADJUSTMENTS = 100  # of the history, the newest
MOST_IMAGE_BYTES = 48 * 1024  # of a frame of the game, which goes to every watcher
MOST_ACTIONS = 32  # in a frame
PROTOCOL_VERSION = 1  # of the messages; the framing has a version of its own in wire.py


def _check_run(field: str, part: Any) -> None:
    """Raises ValueError when a name or a value in it is no Text."""
    if isinstance(part, str) and not is_text(part):
        raise ValueError(f"{field}: names and values have up to {LONGEST_TEXT} characters of printable ASCII")
    if isinstance(part, dict | tuple):
        for inner in (*part, *part.values()) if isinstance(part, dict) else part:
            _check_run(field, inner)


class Struct(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", forbid_unknown_fields=True):
    """The common form of all messages: immutable, named fields only, the type in `type`."""


class Request(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    A message to the server. The reply repeats its number.

    Fields that have their default are left out, so that a server that does not know a newer one is not asked for it.
    """

    request: Count


class Reply(Struct, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A message to a client, which ignores the fields that it does not know: a newer server may send more."""

    request: Count  # 0 where the message comes unasked


class Code(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The source of a user's own module on one host."""

    hash: Name  # equal where the source is
    place: Text  # where it is, for people


# -- worker to server ---------------------------------------------------------------------------------------------


class Hello(Request, frozen=True, kw_only=True, tag="HELLO"):
    """A worker joins, at first and after each lost connection. Answered by WELCOME or REFUSED."""

    worker_id: Name  # stays the same across connections
    secret: Secret  # drawn by each process when it starts; only its owner can speak for the process
    incarnation: Count = 0  # of the newest WELCOME; 0 before the first
    run_id: Text = ""  # of the newest WELCOME
    latest_epoch: Count = 0  # the highest of that run that this worker has seen: servers of earlier ones were replaced
    epoch_proof: Text = ""  # of that WELCOME
    protocols: tuple[Count, Count]  # lowest and highest version spoken
    codecs: Annotated[tuple[Name, ...], msgspec.Meta(max_length=32)] = ("float32",)
    host: Text = ""
    # Environments that this worker steps at once; 0: as many as the run has.
    environments: Annotated[int, msgspec.Meta(ge=0, le=MOST_ENVIRONMENTS)] = 0
    overrides: Settings = {}  # settings that the user asked for, flat: {"algorithm.unroll_length": 20}
    proposed_run: Run | None = None  # the run, if none is decided yet
    oldest: Sequence = 1  # no push of this incarnation older than this one will be sent again
    memory: Text = ""  # the name of a segment of shared memory that this worker offers
    first_shard: Text = ""  # `first_shard` in the WELCOME of shard 1; "" before that
    number: Count | None = None  # `number` in it, which all shards give this worker
    # Source of the run's custom parts, by name of the module.
    code: Annotated[dict[Text, Code], msgspec.Meta(max_length=MOST_OWN_MODULES)] = {}
    release: Text = ""  # of the worker's program; "" of a client that is not ps-rl, or does not say
    # How long ago the server of `latest_epoch` served this worker last; None before WELCOME.
    served_seconds: Seconds | None = None
    silent_seconds: Seconds = 0  # for which this worker, awake all the time, has asked that server in vain

    def __post_init__(self) -> None:
        _check_run("overrides", self.overrides)
        _check_run("proposed_run", self.proposed_run or {})


class Seed(Request, frozen=True, kw_only=True, tag="SEED"):
    """First weights of a run; later ones are not needed. Answered by SEEDED or REFUSED."""

    schema: tuple[TensorSpec, ...]
    codec: Name = "float32"
    check: Text = ""  # of release 0.2.0; ignored
    inline: bytes = b""


class Pull(Request, frozen=True, kw_only=True, tag="PULL"):
    """Request the weights. Answered by WEIGHTS, or NOT_MODIFIED when `have_version` of `have_epoch` is the newest."""

    have_version: Count = 0
    have_epoch: Count = 0
    target: bool = False  # the target weights instead; versions are theirs
    codec: Name = "float32"
    checked: bool = False  # of release 0.2.0; ignored


class Push(Request, frozen=True, kw_only=True, tag="PUSH"):
    """
    A gradient, applied at most once for each (worker_id, incarnation, sequence), with an optional request for weights.

    Answered by SETTLED; with `weight_codec` by WEIGHTS or NOT_MODIFIED with `settled`, as PULL is.
    """

    sequence: Sequence  # 1, 2, 3, …; the same in a repetition
    computed_on: Count  # version of the weights that the gradient was computed on
    epoch: Count  # epoch of that version
    schema_hash: Name
    steps: Count = 0  # environment steps that this push adds to T
    codec: Name = "float32"  # of the gradient
    weight_codec: Name | None = None  # of the weights in the reply; None: no weights
    have_version: Count = 0
    have_epoch: Count = 0
    oldest: Sequence = 1  # no push of this incarnation older than this one will be sent again
    norm: float = 0  # of the whole gradient, at each shard that gets a range of it
    # Blocks of the weights that the gradient changes, by name; () means all. The optimizer skips the others.
    blocks: Annotated[tuple[Name, ...], msgspec.Meta(max_length=MAX_TENSORS)] = ()
    check: Text = ""  # of release 0.2.0; ignored
    inline: bytes = b""


class Episode(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One finished full game: the true, unclipped score, its length in steps, and T when it ended, if known."""

    episode_return: float
    length: Count
    global_steps: Count | None = None


class Report(Request, frozen=True, kw_only=True, tag="REPORT"):
    """Games and numbers since a worker's last report. Counted once for each sequence. Answered by NOTED."""

    sequence: Sequence  # 1, 2, 3, …, apart from those of pushes
    episodes: Annotated[tuple[Episode, ...], msgspec.Meta(max_length=MOST_EPISODES)] = ()
    # Newest losses and rates, by name. One whose name has a slash is drawn as a curve of its own.
    meters: Annotated[dict[Name, float], msgspec.Meta(max_length=MOST_METERS)] = {}


class Heartbeat(Request, frozen=True, kw_only=True, tag="HEARTBEAT"):
    """Renew the lease. Answered by ALIVE."""

    save_soon: bool = False  # the resend buffer fills up: write a checkpoint early
    stalled: bool = False  # the trainer has made no step for much longer than ever before: do not wait for it
    waits_elsewhere: bool = False  # nothing is pushed here before another shard replies: do not wait for it


class Frame(Request, frozen=True, kw_only=True, tag="FRAME"):
    """A moment of the worker's first game, sent while somebody watches. It has no reply, and is never sent again."""

    request: Count = 0
    image: Annotated[bytes, msgspec.Meta(max_length=MOST_IMAGE_BYTES)] = b""  # JPEG; empty: the game has no screen
    score: float  # of this episode so far, true and unclipped
    value: float  # the expected return
    actions: Annotated[tuple[Text, ...], msgspec.Meta(max_length=MOST_ACTIONS)] = ()  # names
    # One for each of `actions`; () where actions are real numbers.
    probabilities: Annotated[tuple[float, ...], msgspec.Meta(max_length=MOST_ACTIONS)] = ()
    taken: Text = ""  # the action that was chosen


class CreditRequest(Request, frozen=True, kw_only=True, tag="CREDIT_REQUEST"):
    """Ask for leave to send a push of so many bytes, beyond the credit. Answered by CREDIT_GRANT, in order."""

    bytes: Count


class RunRequest(Request, frozen=True, kw_only=True, tag="RUN_REQUEST"):
    """Send the settings of the run as they are now. Answered by RUN; needs no HELLO."""

    shard: Count = 0  # of the sender, which adopts the settings of shard 1; 0: the sender is a worker
    first_shard: Text = ""  # as in WELCOME, where the sender knows it
    ending: Sentence = ""  # why the sender, a shard, cannot go on: then the run is over


class Goodbye(Request, frozen=True, kw_only=True, tag="GOODBYE"):
    """Leave on purpose. Answered by FAREWELL."""

    reason: Text = ""
    failed: bool = False  # whether the worker leaves because of an error


# -- admin to server; need no HELLO -------------------------------------------------------------------------------


class StatusRequest(Request, frozen=True, kw_only=True, tag="STATUS_REQUEST"):
    """Request the run's status. Answered by STATUS."""


class Subscribe(Request, frozen=True, kw_only=True, tag="SUBSCRIBE"):
    """
    For one lease, send the status once a second and events as they happen. Answered by SUBSCRIBED or REFUSED.

    Sent again before the lease ends, it renews the lease.
    """

    events_after: Count = 0  # of the events so far, those with a higher number are sent too
    epoch: Count = 0  # in which `events_after` was counted; 0: in this one


class Watch(Request, frozen=True, kw_only=True, tag="WATCH"):
    """
    For one lease, send the frames of one worker's game. Answered by WATCHING, or REFUSED when no such worker is alive.

    Sent again it renews the lease, or turns to another worker.
    """

    worker_id: Name


class Adjust(Request, frozen=True, kw_only=True, tag="ADJUST"):
    """Change settings of the running run: all of them, or none. Answered by ADJUSTED or REFUSED."""

    settings: Annotated[PlainSettings, msgspec.Meta(min_length=1, max_length=MOST_ADJUSTED)]  # by dotted name
    by: Text = ""  # what the sender calls itself

    def __post_init__(self) -> None:
        _check_run("settings", self.settings)


class CheckpointRequest(Request, frozen=True, kw_only=True, tag="CHECKPOINT_REQUEST"):
    """Write a checkpoint now. Answered by CHECKPOINT_SAVED when it is on disk."""


class Evaluation(Request, frozen=True, kw_only=True, tag="EVALUATION"):
    """
    Scores of games that were played apart from training, with weights of this run. Answered by EVALUATED or REFUSED.

    It is counted once: not again for the same weights, and not for older ones than those of the newest evaluation.
    """

    run_id: Text
    version: Count  # of the weights
    global_steps: Count  # T of the weights
    minutes: Minutes  # of training, at that T
    games: Sequence
    mean_return: Number  # true, unclipped
    low: Number | None = None  # the bounds of the mean, with 95 % confidence; None: there are none
    high: Number | None = None
    # Means of further numbers of the games, by name.
    metrics: Annotated[dict[Name, Number], msgspec.Meta(max_length=MOST_METERS)] = {}


class StopRequest(Request, frozen=True, kw_only=True, tag="STOP_REQUEST"):
    """End the run: tell the workers, save, exit. Answered by STOPPING."""

    reason: Sentence = "stopped by ps-ctl"
    failed: bool = False  # whether the run has failed: something in it went wrong and will not go away


class Promote(Request, frozen=True, kw_only=True, tag="PROMOTE"):
    """Serve the run in place of a primary that is silent; to a standby. Answered by PROMOTED or REFUSED."""

    reason: Text = ""  # why the primary does not come back, for the log; without it, REFUSED says what may be lost


# -- standby to primary; need no HELLO ----------------------------------------------------------------------------


class Follow(Request, frozen=True, kw_only=True, tag="FOLLOW"):
    """Become this server's standby. Answered by STATE, and UPDATEs after it, or REFUSED."""

    request: Count  # grows with each new state that is asked for; the same in a repetition
    address: Address  # HOST:PORT where the standby listens
    run_id: Text = ""  # of the run that it holds; a server of another one refuses
    release: Text = ""  # of the standby's program
    process: Text = ""  # drawn by each standby when it starts: two may have one address


class Followed(Request, frozen=True, kw_only=True, tag="FOLLOWED"):
    """Acknowledge everything up to a position of the log. Answered by LEADING, unless `request` is 0."""

    follow: Count  # the request of FOLLOW
    number: Count  # that position; 0 before STATE
    durable_through: Count = 0  # as the newest LEADING said


class Fence(Request, frozen=True, kw_only=True, tag="FENCE"):
    """The sender was promoted and serves the run. Answered by REFUSED `fenced`, or LEADING by a later epoch."""

    run_id: Text
    latest_epoch: Count  # in which the run is served now
    epoch_proof: Text  # only a server of that run can make it
    address: Address  # of the server in that epoch


# -- server to worker ---------------------------------------------------------------------------------------------


class Welcome(Reply, frozen=True, kw_only=True, tag="WELCOME"):
    """The worker has joined; this is the run."""

    protocol: Count  # version spoken from now on
    run_id: Name
    epoch: Count  # one life of a server of the run; versions of different epochs do not compare
    epoch_proof: Text  # to be shown to other servers of this run
    incarnation: Count  # one process of this worker id: a process that is started later has a higher one
    number: Count  # 0, 1, 2, … in order of joining; the same for a worker id as long as the run lives
    run: Run
    schema: tuple[TensorSpec, ...]  # empty until the run is seeded
    version: Count  # 0 until the run is seeded
    global_steps: Count
    settled_through: Count  # every push up to this sequence of this incarnation is settled
    reported_through: Count  # every report up to this sequence of this incarnation is counted
    # The worker is taken for dead after so long without a message.
    lease_seconds: Annotated[float, msgspec.Meta(ge=1e-3, le=1e9)]
    codecs: tuple[Name, ...]
    memory: Text = ""  # the proof in the segment that the worker offers, if the server can map it
    credit: Count = NO_LIMIT  # bytes of vectors of unanswered pushes that need no CREDIT_REQUEST
    settings_version: Count = 0  # of `run`: one more with each adjustment
    shard: Shard = WHOLE  # the place of this server among the shards of the run
    first_shard: Text = ""  # the run id that shard 1 had first; all shards of a run agree on it
    drained: bool = False  # as in RUN
    release: Text = ""  # of the server's program

    def __post_init__(self) -> None:
        _check_run("run", self.run)


class Seeded(Reply, frozen=True, kw_only=True, tag="SEEDED"):
    """The run has weights; `accepted` if they are this worker's."""

    accepted: bool
    version: Count


Verdict = Literal["applied", "duplicate", "discarded"]


class Settlement(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a push."""

    sequence: Count
    verdict: Verdict
    version: Count  # of the weights after it
    staleness: Count = 0
    durable: Count = 0  # every push of this worker up to this sequence is inside a completed checkpoint
    credit: Count = NO_LIMIT  # as in WELCOME, from now on
    settings_version: Count = 0  # of the run's settings; when it is not that of the newest RUN or WELCOME, ask for RUN
    watched: bool = False  # somebody watches this worker's game: send FRAMEs
    code: Text = ""  # of a discarded push: why
    reason: Sentence = ""


class Settled(Reply, frozen=True, kw_only=True, tag="SETTLED"):
    """The reply to a PUSH that asks for no weights."""

    epoch: Count
    settlement: Settlement
    global_steps: Count


class Weights(Reply, frozen=True, kw_only=True, tag="WEIGHTS"):
    """The weights of one version, whole."""

    epoch: Count
    version: Count
    global_steps: Count
    target_version: Count = 0
    workers: Count = 0  # that are alive
    recalls: Count = 0  # how often the run went back to a checkpoint in this epoch
    settled: Settlement | None = None
    codec: Name = "float32"
    base: Count = 0  # the version that a delta leads away from: `have_version` of the request
    inline: bytes = b""


class NotModified(Reply, frozen=True, kw_only=True, tag="NOT_MODIFIED"):
    """The worker has the newest version, or the run has no weights yet (version 0)."""

    epoch: Count
    version: Count
    global_steps: Count
    target_version: Count = 0
    workers: Count = 0  # as in WEIGHTS
    recalls: Count = 0  # as in WEIGHTS
    settled: Settlement | None = None


class Noted(Reply, frozen=True, kw_only=True, tag="NOTED"):
    """The reply to REPORT."""

    sequence: Count


class Alive(Reply, frozen=True, kw_only=True, tag="ALIVE"):
    """The reply to HEARTBEAT."""

    epoch: Count
    version: Count
    global_steps: Count
    durable: Count  # every push of this worker up to this sequence is inside a completed checkpoint
    waiting: bool = False  # a push or credit request of this worker has arrived and waits
    credit: Count = NO_LIMIT  # as in WELCOME, from now on
    saving: bool = True  # False: the newest checkpoint could not be written; do not wait for the next
    settings_version: Count = 0  # as in a settlement
    watched: bool = False  # as in a settlement


class CreditGrant(Reply, frozen=True, kw_only=True, tag="CREDIT_GRANT"):
    """The reply to CREDIT_REQUEST: the push may be sent now."""


class AdjustmentsRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The adjustments of a run, and what of them is no part of its specification."""

    version: Count  # how many there ever were
    paused: bool
    drained: bool  # workers leave, and no others are admitted
    checkpoint_seconds: Annotated[float, msgspec.Meta(gt=0, le=MOST)] | None  # None: as the server's flags say
    settings: tuple[Name, ...]  # those of the specification that were changed, sorted
    history: Annotated[tuple[Adjustment, ...], msgspec.Meta(max_length=MOST_ADJUSTMENTS)]  # the newest, in order

    @property
    def stands_still(self) -> bool:
        """Whether minutes do not count."""
        return self.paused or self.drained

    @property
    def holds_pushes(self) -> bool:
        """Whether pushes wait. Those of a drained run are applied, so that its workers leave with nothing in flight."""
        return self.paused and not self.drained


class RunState(msgspec.Struct, frozen=True, kw_only=True):
    """What the other shards of a run adopt from shard 1, besides the settings; and which run and server that is."""

    shard: Shard
    run_id: Text  # of shard 1
    first_shard: Text  # as in WELCOME
    epoch: Count  # of shard 1
    global_steps: Count  # T at shard 1
    adjustments: AdjustmentsRecord  # each with the T from which it holds
    ending: Sentence = ""  # why the run is over; "" while it is not


class RunReply(Reply, frozen=True, kw_only=True, tag="RUN"):
    """The answer to RUN_REQUEST: the run with all that was adjusted. To a shard, `run` is empty before there is one."""

    settings_version: Count
    run: Run
    drained: bool = False  # the worker is to leave when its pushes are settled
    state: RunState | None = None  # for another shard

    def __post_init__(self) -> None:
        _check_run("run", self.run)


class Farewell(Reply, frozen=True, kw_only=True, tag="FAREWELL"):
    """The reply to GOODBYE."""


class Stop(Reply, frozen=True, kw_only=True, tag="STOP"):
    """The run is over: send GOODBYE and exit. Sent unasked, and again as the reply to later requests."""

    reason: Sentence
    request: Count = 0


class Refused(Reply, frozen=True, kw_only=True, tag="REFUSED"):
    """The server has not done what was asked. `request` is 0 when the message could not be read."""

    code: Name
    reason: Sentence


class StatusReply(Reply, frozen=True, kw_only=True, tag="STATUS"):
    """The reply to STATUS_REQUEST."""

    status: Status
    run: Run
    schema: tuple[TensorSpec, ...]

    def __post_init__(self) -> None:
        _check_run("run", self.run)


class Subscribed(Reply, frozen=True, kw_only=True, tag="SUBSCRIBED"):
    """The answer to SUBSCRIBE: STATUS_UPDATE and EVENT come until the lease ends."""

    lease_seconds: Lease
    event: Count  # number of the newest event
    epoch: Count  # in which events are counted so


class StatusUpdate(Reply, frozen=True, kw_only=True, tag="STATUS_UPDATE"):
    """To a subscriber, once a second."""

    status: Status
    request: Count = 0


EventKind = Literal["note", "warning", "checkpoint", "adjustment", "end"]


class Event(Reply, frozen=True, kw_only=True, tag="EVENT"):
    """To a subscriber: something happened that a person watching the run wants to know."""

    number: Count  # 1, 2, 3, … in this epoch
    kind: EventKind
    text: Sentence
    worker_id: Text = ""  # of the worker that it is about; "" when it is about none
    global_steps: Count  # T when it happened
    minutes: Minutes
    missed: Count = 0  # events before this one that the subscriber was too slow for
    request: Count = 0


class Watching(Reply, frozen=True, kw_only=True, tag="WATCHING"):
    """The reply to WATCH: WATCHED_FRAMEs come until the lease ends."""

    lease_seconds: Lease


class WatchedFrame(Reply, frozen=True, kw_only=True, tag="WATCHED_FRAME"):
    """To a peer that watches this worker: its newest frame."""

    worker_id: Name
    frame: Frame
    request: Count = 0


class Adjusted(Reply, frozen=True, kw_only=True, tag="ADJUSTED"):
    """The answer to ADJUST: what was changed; settings that had their value already are left out."""

    adjustments: tuple[Adjustment, ...]


class Evaluated(Reply, frozen=True, kw_only=True, tag="EVALUATED"):
    """The reply to EVALUATION."""

    counted: bool  # false: these weights, or newer ones, have an evaluation already
    best: bool  # these weights are kept as the best checkpoint


class CheckpointSaved(Reply, frozen=True, kw_only=True, tag="CHECKPOINT_SAVED"):
    """The reply to CHECKPOINT_REQUEST."""

    path: Sentence
    version: Count


class Promoted(Reply, frozen=True, kw_only=True, tag="PROMOTED"):
    """The reply to PROMOTE: this server serves the run."""

    epoch: Count
    version: Count
    lost: Sentence  # what may be lost


class Stopping(Reply, frozen=True, kw_only=True, tag="STOPPING"):
    """The reply to STOP_REQUEST: the run is ending."""


# -- primary to standby -------------------------------------------------------------------------------------------


class State(Struct, frozen=True, kw_only=True, tag="STATE"):
    """The whole run at one moment, as a checkpoint holds it: the record as JSON, then the vectors in their order."""

    request: Count  # of FOLLOW
    number: Count  # the position of the run in its log of changes
    record_bytes: Count
    vectors: tuple[TensorSpec, ...]
    check: Text = ""  # of release 0.2.0; ignored


class Opened(Struct, frozen=True, kw_only=True, tag="OPENED", omit_defaults=True):
    """In UPDATE: a process was admitted as this worker."""

    incarnation: Count
    proof: Name  # the hash of its secret
    key: Text  # that the worker id is bound to; "" without CURVE
    oldest: Count
    environments: Count
    number: Count | None = None  # that shard 1 gave to this worker; None: in order of joining
    code: dict[Text, Code] = {}  # as in HELLO
    forgotten: tuple[Name, ...] = ()  # workers whose accounts were dropped before


class HandedOver(Struct, frozen=True, kw_only=True, tag="HANDED_OVER"):
    """In UPDATE, as the last one: the primary leaves, and the standby is to be promoted. Answered by FENCE."""


UpdateMessage = Opened | Push | Report | Adjusted | Evaluation | RunReply | HandedOver


class Update(Struct, frozen=True, kw_only=True, tag="UPDATE"):
    """
    One change of the run: OPENED, a worker's PUSH (with its vector) or REPORT, ADJUSTED, EVALUATION, RUN (at a shard
    that has it from shard 1), or HANDED_OVER.

    Answered by FOLLOWED.
    """

    request: Count  # of FOLLOW
    number: Count  # the position of the run after it
    worker_id: Text  # "" of ADJUSTED, EVALUATION, RUN and HANDED_OVER
    message: UpdateMessage
    more_in_group: bool = msgspec.field(default=False, name="together")  # a push that is settled with the next


class Leading(Struct, frozen=True, kw_only=True, tag="LEADING"):
    """The reply to FOLLOWED, and to FENCE of an earlier epoch: the primary lives."""

    request: Count
    run_id: Name
    epoch: Count
    epoch_proof: Text = ""  # only a server of that run can make it
    # A standby with everything up to here lacks no push that workers know to be durable. 0: there is no such number.
    durable_through: Count = 0
    minutes: Minutes = 0.0  # of training so far


ToServer = (
    Hello | Seed | Pull | Push | Report | Heartbeat | Frame | CreditRequest | RunRequest | Goodbye
    | StatusRequest | Subscribe | Watch | Adjust | CheckpointRequest | StopRequest | Promote | Evaluation
    | Follow | Followed | Fence
)  # fmt: skip
ToWorker = (
    Welcome | Seeded | Settled | Weights | NotModified | Noted | Alive | CreditGrant | RunReply | Farewell | Stop
    | Refused | StatusReply | Subscribed | StatusUpdate | Event | Watching | WatchedFrame | Adjusted | CheckpointSaved
    | Evaluated | Stopping | Promoted | State | Update | Leading
)  # fmt: skip
Message = ToServer | ToWorker

CARRIES_VECTOR = (Seed, Push, Weights, State, Update)


def settlement_of(message: Message) -> Settlement | None:
    """The settlement in a reply; None without one."""
    if isinstance(message, Settled):
        return message.settlement
    return message.settled if isinstance(message, Weights | NotModified) else None
