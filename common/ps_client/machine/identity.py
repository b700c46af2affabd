"""
A worker's identity: the contents of HELLO, and which server's WELCOME the worker accepts.

A worker is one process; its secret is drawn when the process starts. The newest WELCOME gives the rest of HELLO: run
id, incarnation and epoch. The worker rejects a server of another run, and one of its run in an earlier epoch.
"""

from collections.abc import Mapping
from typing import Any

from ps_common.protocol import messages
from ps_common.protocol.codecs import CODEC_NAMES
from ps_common.protocol.messages import Code, Hello, Welcome
from ps_common.protocol.shards import Shard
from ps_common.protocol.tensors import Schema
from ps_common.settings.run_settings import flag_of, flat_settings
from ps_common.settings.table import kinds_of


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

    def hello(self, *, request: int, oldest: int) -> Hello:
        """The HELLO of this moment. `oldest` is the lowest sequence that may still be sent."""
        return Hello(
            request=request,
            **self._constant_fields,
            proposed_run=self.run,
            oldest=oldest,
            run_id=self._run_id,
            incarnation=self._incarnation,
            latest_epoch=self._latest_epoch,
            epoch_proof=self._epoch_proof,
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
            return f"{why}; start this worker anew"
        before, after = self._shard, welcome.shard
        if before is not None and (before.number, before.of) != (after.number, after.of):
            if self._run_id:
                return f"the server came back as {after} of the run, and was {before}; start this worker anew"
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
    changed = [key for key in old | new if old.get(key) != new.get(key) and kinds_of(key).built_in]
    return flag_of(changed[0]) if changed else ""
