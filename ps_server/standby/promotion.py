"""
Who may promote a standby. The two servers alone cannot tell a dead primary from a broken wire between them, so somebody
else has to say it: a worker that the primary has served (a witness), the arbiter, a program without the run that
listens where the primary did, or an admin.

    what this standby knows        | a witness | a newcomer | the arbiter grants | an admin
    the primary was heard just now | no        | no         | not asked          | no
    promised, when it mattered     | yes       | no         | if nothing lacks   | with a reason
    no promise, or an older one    | no        | no         | if nothing lacks   | with a reason
    another run is served there    | yes       | yes        | if nothing lacks   | with a reason

A promise says that nothing is durable without this standby. It holds for a lease, and it matters at the moment at which
the primary may have served the witness last: a later push of anybody may be durable at the primary alone. A worker that
was served after that, or that has dropped pushes which are not here, proves that the primary went on alone: then no
worker promotes this standby any more before the primary is heard again.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from ps_common.protocol.lineage import Lineage
from ps_common.protocol.messages import Hello
from ps_common.protocol.record import Account, Record
from ps_server.machine.admission import proof_of
from ps_server.replication.replication import LEASE_SECONDS
from ps_server.state.training_run import TrainingRun

RUINED = "finite weights: its own hold NaN or Inf"


@dataclass
class Promise:
    """The newest promise of the primary, that nothing is durable without this standby."""

    through: int = 0  # holds once everything up to this position is applied; 0: there is none
    confirmed: float = -math.inf  # when the newest request was sent that has a reply
    ended: float = math.inf  # when a server without the run was met where the primary was: nothing was durable since

    def renew(self, through: int, *, sent: float) -> None:
        """The primary has replied to a request that was sent then."""
        self.through, self.confirmed, self.ended = through, sent, math.inf

    def holds(self, applied: int, *, at: float) -> bool:
        """Whether every push that was durable then is among those applied, unless the primary took this back."""
        return 0 < self.through <= applied and min(at, self.ended) - self.confirmed < LEASE_SECONDS


@dataclass(frozen=True)
class Testimony:
    """What a HELLO shows of the primary."""

    is_witness: bool  # the primary was silent to this worker, too, ever since the promise held
    lacks: str  # what it shows that this standby lacks; "" for nothing


@dataclass(frozen=True)
class Claim:
    """The reply of the arbiter, of which one server at a time has the run."""

    why: str  # a verb and what follows, such as: "says no: PLACE is in use"
    lineage: Lineage | None = None  # of the run that is granted; None: it is not, or the arbiter cannot be asked
    checkpoint: Record | None = None  # the newest of that run, if there is one


def testimony(
    hello: Hello, run: TrainingRun, holds: Callable[..., bool], *, least_seconds: float, now: float
) -> Testimony:
    """
    What a worker says about the primary of this run, which has been silent here for `least_seconds` or longer.
    `holds` says whether the promise holds that counts `at` a time.
    """
    is_of_run = hello.run_id == run.lineage.run_id and run.lineage.proves(hello.latest_epoch, hello.epoch_proof)
    if is_of_run and hello.latest_epoch > run.epoch:
        return Testimony(False, f"what was done in epoch {hello.latest_epoch}")
    if not holds(at=now):  # else a worker without a resend buffer risks the others
        proof = proof_of(hello.secret)
        dropped = run.ledger.lacking(hello.worker_id, proof, oldest=hello.oldest, is_proven=is_of_run)
        if dropped:
            return Testimony(False, f"{dropped} pushes that {hello.worker_id} has dropped")
    if not is_of_run or hello.latest_epoch < run.epoch or hello.served_seconds is None:
        return Testimony(False, "")
    if not holds(at=now - hello.served_seconds):
        when = f"it served {hello.worker_id} {hello.served_seconds:.1f} s ago"
        return Testimony(False, f"pushes that it may have acknowledged as durable since: {when}")
    was_silent = hello.silent_seconds >= least_seconds
    return Testimony(was_silent and holds(at=now - hello.silent_seconds), "")


def lacks_of(claim: Claim, run: TrainingRun) -> str:
    """What the run that the arbiter grants has, and this one lacks; "" for nothing."""
    if claim.lineage is None or claim.lineage.run_id != run.lineage.run_id:
        return f"the run that {claim.why}"
    if claim.lineage.epoch > run.epoch:
        return f"what was done in epoch {claim.lineage.epoch}"
    saved = claim.checkpoint.ledger if claim.checkpoint is not None else {}
    behind = sorted(name for name, account in saved.items() if not _has(run.ledger.accounts.get(name), account))
    return f"pushes of {', '.join(behind[:3])} that are in the primary's newest checkpoint" if behind else ""


def _has(account: Account | None, saved: Account) -> bool:
    if account is None:
        return not (saved.through or saved.early)
    return account.incarnation > saved.incarnation or (
        account.incarnation == saved.incarnation
        and all(sequence <= account.through or sequence in account.early for sequence in (saved.through, *saved.early))
    )
