"""
HELLO: its contents, when it is sent, what a refusal leads to, and which server's WELCOME the worker accepts.

A worker is one process; its secret is drawn when the process starts. The newest WELCOME gives the rest of HELLO: run
id, incarnation and epoch. The worker rejects a server of another run, and one of its run in an earlier epoch.

HELLO is sent at growing intervals, because a message may be lost before its connection is up. Some refusals are
temporary: a standby is not promoted yet, a server belongs to another run, the name is taken by a process that has
just died. The worker then sends HELLO again, and goes to the next address if it has several.

A server without weights may be a new one, while a standby holds the run. So a worker with several addresses begins no
run before it has tried the others.
"""

from collections.abc import Mapping
from typing import Any

from ps_common.protocol import messages
from ps_common.protocol.codecs import CODEC_NAMES
from ps_common.protocol.lineage import Shard
from ps_common.protocol.messages import Code, Hello, Refused, Welcome
from ps_common.protocol.names import is_import_path
from ps_common.protocol.tensors import Schema
from ps_common.release import release
from ps_common.settings.custom_algorithm import is_adjustable
from ps_common.settings.run_settings import flag_of, flat_settings
from ps_common.settings.table import kinds_of

FIRST_HELLO_SECONDS = 0.05  # until HELLO is sent again; doubles up to the next number
SLOWEST_HELLO_SECONDS = 2.0
REFUSED_HELLO_SECONDS = 0.1  # until HELLO is sent again to a server that will soon serve the run
REFUSED_SECONDS = 1.0  # after this long with nothing but temporary refusals, the next address is tried
BRIEF = {"standby", "lacking", "fenced"}  # refusals of moments: a standby is being promoted
OF_A_RUN = {"lacking", "name_taken", "drained"}  # refusals by a server that has a run: the worker begins no other
TEMPORARY = {*BRIEF, "other_run", "name_taken", "drained"}


class Handshake:
    """The HELLOs of one worker, from one WELCOME to the next."""

    def __init__(self, *, addresses: int, now: float) -> None:
        self.due = now  # when HELLO is to be sent
        self.refusal = ""  # why HELLO was refused last, since the server last served this worker
        self._addresses = addresses
        self._untried: int | None = None  # other addresses, since a server without weights; None before there was one
        self._interval = FIRST_HELLO_SECONDS
        self._first_request = self._last_request = 0  # numbers of HELLOs since the worker has had to join
        self._refused_since: float | None = None  # on this connection

    def begin(self, *, next_request: int, now: float) -> None:
        """The worker has to join. Its HELLOs are numbered from `next_request` on."""
        self._first_request = next_request
        self._send_often_from(now)

    def begin_on_new_connection(self, *, now: float) -> None:
        """The worker has to join on another connection, which will take a moment to be up."""
        self._refused_since = None
        self._untried = self._untried and self._untried - 1
        self._send_often_from(now)

    def sent(self, request: int, *, now: float) -> None:
        """HELLO was sent with this number."""
        self._last_request = request
        self.due = now + self._interval
        self._interval = min(2 * self._interval, SLOWEST_HELLO_SECONDS)

    def completes(self, welcome: Welcome) -> bool:
        """Whether this WELCOME is a reply to a HELLO since `begin`."""
        return welcome.request >= self._first_request

    def is_premature(self, welcome: Welcome) -> bool:
        """Whether the server has no weights, and another address may have the run."""
        if not welcome.schema and self._untried is None:
            self._untried = self._addresses - 1
        return not welcome.schema and self._untried != 0

    def is_refusal(self, message: Refused) -> bool:
        """Whether this refusal is of the newest HELLO."""
        return message.request == self._last_request

    def completed(self) -> None:
        """The worker has joined."""
        self._refused_since = self._untried = None

    def refused(self, code: str, why: str, *, now: float) -> bool:
        """HELLO was refused with a temporary code. Whether it is sent to the next address from now on."""
        self.refusal = why
        if code in OF_A_RUN:
            self._untried = None
        if code in BRIEF:
            self._send_often_from(now + REFUSED_HELLO_SECONDS)
        if self._refused_since is None:
            self._refused_since = now
        is_enough = code == "fenced" or now - self._refused_since > REFUSED_SECONDS
        return is_enough and self._addresses > 1

    def _send_often_from(self, due: float) -> None:
        self._interval, self.due = FIRST_HELLO_SECONDS, due


class Identity:
    """One process as its HELLOs describe it."""

    def __init__(
        self,
        *,
        worker_id: str,
        secret: str,
        overrides: dict[str, Any],
        proposed_run: dict[str, Any],
        host: str,
        environments: int,
        shard: Shard | None = None,
        first_shard: Welcome | None = None,
        code: Mapping[str, Code] | None = None,
    ) -> None:
        """
        `secret` is a random text that no other process knows; `overrides` are the settings, flat, that this worker's
        user has set; `proposed_run` is the whole run, for a server that has none yet; `shard` is which shard the server
        is, if that is known; `first_shard` is the WELCOME of shard 1, in HELLO to the others. `code` is that of the
        modules of the run's custom parts, when they are known.
        """
        self._constant_fields: dict[str, Any] = {
            "worker_id": worker_id,
            "secret": secret,
            "protocols": (messages.PROTOCOL_VERSION, messages.PROTOCOL_VERSION),
            "codecs": CODEC_NAMES,
            "host": host,
            "environments": environments,
            "overrides": overrides,
            "code": dict(code or {}),
            "first_shard": first_shard.first_shard if first_shard else "",
            "number": first_shard.number if first_shard else None,
        }
        self.run = proposed_run  # or that of the newest WELCOME or RUN
        self._run_id = ""
        self._incarnation = 0
        self._latest_epoch = 0
        self._epoch_proof = ""
        self._shard = shard  # then that of the newest WELCOME

    def hello(self, request: int, oldest: int, silence: tuple[float, float]) -> Hello:
        """
        The HELLO of this moment. `oldest` is the lowest sequence that may still be sent; `silence` of the server of the
        newest WELCOME is how long ago it served, and for how long this process has asked it in vain.
        """
        has_joined = self._latest_epoch > 0
        return Hello(
            request=request,
            **self._constant_fields,
            proposed_run=self.run,
            oldest=oldest,
            run_id=self._run_id,
            incarnation=self._incarnation,
            latest_epoch=self._latest_epoch,
            epoch_proof=self._epoch_proof,
            release=release(),
            served_seconds=silence[0] if has_joined else None,
            silent_seconds=silence[1] if has_joined else 0,
        )

    def objection(self, welcome: Welcome) -> str:
        """Why this server is rejected; "" if it is not."""
        if self._run_id not in ("", welcome.run_id):
            return f"the server there has run {welcome.run_id}, and this worker is of run {self._run_id}"
        if welcome.epoch >= self._latest_epoch:
            return ""
        return f"the server there is of epoch {welcome.epoch}, and the run is in epoch {self._latest_epoch}"

    def mismatch(self, welcome: Welcome, schema: Schema | None) -> str:
        """Why a worker with this schema cannot train the run of this WELCOME; "" if it can."""
        if self._run_id and (setting := _changed_setting(self.run, welcome.run)):
            why = f"the server came back with another {setting}, which workers have from their start"
            return f"{why}; restart this worker"
        before, after = self._shard, welcome.shard
        if before is not None and (before.number, before.of) != (after.number, after.of):
            if self._run_id:
                return f"the server came back as {after} of the run, and was {before}; restart this worker"
            address = before.addresses[before.number - 1]
            why = f"{address}, which shard 1 names as {before}, is {after}"
            return f"the server at {why}: all servers of a run take the same --shards, in the same order"
        difference = schema.difference(Schema(welcome.schema)) if schema is not None and welcome.schema else ""
        return f"the run trains another network: {difference}" if difference else ""

    def accept(self, welcome: Welcome) -> None:
        """Join the run of this WELCOME."""
        self._run_id = welcome.run_id
        self._incarnation = welcome.incarnation
        self._latest_epoch, self._epoch_proof = welcome.epoch, welcome.epoch_proof
        self.run = welcome.run
        self._shard = welcome.shard


def _changed_setting(before: dict[str, Any], after: dict[str, Any]) -> str:
    """The flag of the first setting that a worker is built from and that has changed; "" without one."""
    old, new = flat_settings(before), flat_settings(after)
    is_custom = is_import_path(str(new.get("algorithm.name"))) and old.get("algorithm.name") == new.get(
        "algorithm.name"
    )
    changed = [
        key
        for key in old | new
        if old.get(key) != new.get(key)
        and kinds_of(key).built_in
        and not (is_custom and key.startswith("algorithm.") and is_adjustable(key, new.get(key)))
    ]
    return flag_of(changed[0]) if changed else ""
