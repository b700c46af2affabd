"""
Which requests are legal in which phase, from whom, and who answers each: one row a message.

In DRAINING the reply to any other request is STOP, in HANDING_OVER it has none; else it is refused. SEED is legal in
SERVING, because two workers may both try to seed: the later one learns that its weights were not needed.
"""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ps_common.protocol import messages
from ps_common.protocol.messages import ToServer
from ps_server.machine import admission, operator_requests, worker_requests
from ps_server.machine.ending import Phase, is_fenced_by
from ps_server.machine.parts import Parts, Request, Sender
from ps_server.state.effects import Effect
from ps_server.state.guards import Denied


class Who(enum.Enum):
    ANYBODY = "anybody"
    MEMBER = "member"  # a worker that has sent HELLO on this connection, and no GOODBYE
    ADMIN = "admin"  # whoever has an admin's key, where keys are asked for


@dataclass(frozen=True)
class Row:
    phases: frozenset[Phase]
    who: Who
    handler: Callable[[Parts, Request[Any]], list[Effect]]  # raises Denied


OVER = frozenset({Phase.EMPTY, Phase.SERVING, Phase.DRAINING})  # the run may be over
BEGUN = frozenset({Phase.EMPTY, Phase.SERVING})  # it is not, and there may be no weights yet
SERVING = frozenset({Phase.SERVING})
LEAVING = frozenset({Phase.HANDING_OVER})

REQUESTS: dict[type[ToServer], Row] = {
    messages.Hello: Row(BEGUN, Who.ANYBODY, admission.hello),
    messages.Seed: Row(BEGUN, Who.MEMBER, worker_requests.seed),
    messages.Push: Row(SERVING, Who.MEMBER, worker_requests.push),
    messages.CreditRequest: Row(SERVING, Who.MEMBER, worker_requests.credit_request),
    messages.Pull: Row(OVER | LEAVING, Who.ANYBODY, worker_requests.pull),
    messages.Heartbeat: Row(BEGUN, Who.MEMBER, worker_requests.heartbeat),
    messages.Report: Row(OVER, Who.MEMBER, worker_requests.report),
    messages.Frame: Row(BEGUN, Who.MEMBER, worker_requests.frame),
    messages.Goodbye: Row(OVER, Who.ANYBODY, worker_requests.goodbye),
    messages.StatusRequest: Row(frozenset(Phase), Who.ANYBODY, operator_requests.status_request),
    messages.Subscribe: Row(OVER, Who.ANYBODY, operator_requests.subscribe),
    messages.Watch: Row(OVER, Who.ANYBODY, operator_requests.watch),
    messages.Evaluation: Row(SERVING, Who.ANYBODY, operator_requests.evaluation),
    messages.RunRequest: Row(BEGUN, Who.ANYBODY, operator_requests.run_request),  # of an ending it takes an admin
    messages.Adjust: Row(BEGUN, Who.ADMIN, operator_requests.adjust),
    messages.CheckpointRequest: Row(OVER, Who.ADMIN, operator_requests.checkpoint_request),
    messages.StopRequest: Row(OVER, Who.ADMIN, operator_requests.stop_request),
    messages.Promote: Row(SERVING, Who.ADMIN, operator_requests.promote),
    messages.Follow: Row(SERVING, Who.ADMIN, operator_requests.follow),
    messages.Followed: Row(SERVING | LEAVING, Who.ADMIN, operator_requests.followed),
    messages.Fence: Row(OVER | LEAVING, Who.ADMIN, operator_requests.fence),
}


def takes_an_admin(message: ToServer) -> bool:
    """Whether this request takes an admin's key, where keys are asked for."""
    is_ending = isinstance(message, messages.RunRequest) and message.ending != ""
    return is_ending or REQUESTS[type(message)].who is Who.ADMIN


def reply(parts: Parts, request: Request[ToServer], sender: Sender) -> list[Effect]:
    """The reply to a request and what it changes. Raises Denied, with the reason for a refusal."""
    message, phase, row = request.message, parts.phase, REQUESTS[type(request.message)]
    is_legal = phase in row.phases
    if not is_legal and phase is Phase.DRAINING:
        return parts.ending.reply(request.peer, message, parts.run, parts.lineage, now=request.now)
    if request.member is None and row.who is Who.MEMBER:
        raise Denied("unknown_worker", "send HELLO first, on this connection")
    if not sender.is_admin and takes_an_admin(message):
        raise Denied("not_admin", "adjusting, saving, stopping and following the run takes an admin's key")
    parts.first_shard.check(message, parts.run)
    if not operator_requests.gives_way(parts, message) and is_fenced_by(message, parts.run):
        return operator_requests.fenced(parts, request, message)
    if not is_legal and phase is Phase.HANDING_OVER:
        return []  # the worker sends it again, to the standby
    if not is_legal and parts.ending.fenced:
        raise Denied("fenced", parts.ending.fenced)
    if not is_legal:
        raise Denied("no_weights", "the run has no weights yet; send SEED first")
    if row.who is Who.ADMIN:
        parts.newest_status = None  # whoever changes something sees it in the next status
    return row.handler(parts, request)
