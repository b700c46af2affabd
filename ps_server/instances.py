"""
Which process may speak as a worker.

A process draws a secret when it starts, and shows it in each HELLO. The server gives the processes of a worker id
numbers, their incarnations, in order of joining, and keeps of a secret no more than what it takes to know it again:
neither a checkpoint nor a standby's copy tells it. A name belongs to the process that joined last. It goes to another
process when the lease of that one has ended, and then the first one is superseded. Where keys are asked for, a name
stays with the key that was the first to use it.
"""

import hashlib

from common.messages import Hello
from ps_server.denied import Denied
from ps_server.ledger import Account

# A server that was restored may know less than a worker was told: a higher incarnation is believed, up to so many more.
# A claim without a bound would leave no higher one for those who come later.
FURTHEST = 1000


def proof_of(secret: str) -> str:
    """What is kept of a secret: half of its SHA-256, in hexadecimal digits."""
    return hashlib.sha256(secret.encode()).hexdigest()[:32]


def incarnation_of(hello: Hello, account: Account | None, *, key: str, owner_lives: bool) -> int:
    """
    The incarnation of the process that says HELLO as this worker. Raises Denied when the name is another's.

    `account` is that of the newest process of this worker id; `owner_lives`: the lease of that process may be running.
    """
    if account is None:
        return min(max(1, hello.incarnation), FURTHEST)
    name = hello.worker_id
    if key and account.key and key != account.key:
        raise Denied("not_yours", f"the name {name} belongs to a worker with another key; take another --name")
    if account.proof == proof_of(hello.secret):
        return account.incarnation
    if 0 < hello.incarnation <= account.incarnation:
        raise Denied("superseded", f"a newer process named {name} has joined; give each worker its own --name")
    if owner_lives:
        reason = f"a process named {name} has joined and may be alive; this one can take its place when its lease has"
        raise Denied("name_taken", f"{reason} ended. Give each worker its own --name")
    return max(account.incarnation + 1, min(hello.incarnation, account.incarnation + FURTHEST))
