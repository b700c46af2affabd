"""
Who a worker says that it is, and which server it believes to be that of its run.

A worker is one process: the secret that it shows is drawn when it starts. What else HELLO says of it, the newest
WELCOME has told. It goes back to no earlier life of a server of its run, and to another run only when the server there
takes it for one that goes on with its own.
"""

from typing import Any

from common.protocol import messages
from common.protocol.codecs import CODECS
from common.protocol.messages import Hello, Welcome


class Introduction:
    """What one process says in each HELLO. `proposed_run` is the run, should none be decided yet."""

    def __init__(
        self,
        *,
        worker_id: str,
        secret: str,
        overrides: dict[str, Any],
        proposed_run: dict[str, Any],
        host: str,
        environments: int,
    ) -> None:
        self._who: dict[str, Any] = {
            "worker_id": worker_id,
            "secret": secret,
            "protocols": (messages.PROTOCOL_VERSION, messages.PROTOCOL_VERSION),
            "codecs": tuple(CODECS),
            "host": host,
            "environments": environments,
            "overrides": overrides,
        }
        self._proposed_run = proposed_run
        self._run_id = ""
        self._incarnation = 0
        self._latest_epoch = 0
        self._epoch_proof = ""

    def hello(self, *, request: int, oldest: int) -> Hello:
        """To be said now."""
        return Hello(
            request=request,
            **self._who,
            proposed_run=self._proposed_run,
            oldest=oldest,
            run_id=self._run_id,
            incarnation=self._incarnation,
            latest_epoch=self._latest_epoch,
            epoch_proof=self._epoch_proof,
        )

    def objection(self, welcome: Welcome) -> str:
        """Why this is not the server of the run any more; "" when it is."""
        if welcome.run_id != self._run_id or welcome.epoch >= self._latest_epoch:
            return ""
        return f"the server there is of epoch {welcome.epoch}, and the run is in epoch {self._latest_epoch}"

    def believe(self, welcome: Welcome) -> bool:
        """Be a member of this run. Returns whether it is another one than before, which goes on with that."""
        is_another = self._run_id not in ("", welcome.run_id)
        self._run_id = welcome.run_id
        self._incarnation = welcome.incarnation
        self._latest_epoch, self._epoch_proof = welcome.epoch, welcome.epoch_proof
        self._proposed_run = welcome.run
        return is_another
