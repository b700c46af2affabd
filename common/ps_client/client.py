"""
`ParameterServerClient`: a parameter server for anything that has parameters, as tensors by name.

The client speaks through the machine, the sockets and the resend buffer of a worker. It knows no games, networks or
gradients' origins.
"""

import atexit
import contextlib
import operator
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from msgspec.structs import replace
from torch import Tensor

from ps_client.named_tensors import flat, float32
from ps_client.shell.newest import Newest
from ps_client.shell.remote_parameters import RemoteParameters
from ps_client.shell.shard_connections import ShardConnections, name_of_this_process
from ps_common.errors import RunEnded, SettingsError
from ps_common.program.number_flags import LEAST_SECONDS, MOST_MIB, MOST_SECONDS, check_number
from ps_common.protocol.messages import Settlement
from ps_common.protocol.names import check_name
from ps_common.protocol.record import MOST_STEPS
from ps_common.protocol.status import MOST_METERS
from ps_common.protocol.tensors import Schema, TensorSpec
from ps_common.run_folder.endpoint_file import check_server
from ps_common.settings.overrides import wire_of
from ps_common.settings.run_settings import keywords_of, run_for_peers, run_from_dict, with_keywords
from ps_common.settings.run_spec import RunSpec
from ps_common.sockets.curve import client_keys


class ParameterServerClient:
    """
    One worker of a parameter server, for parameters of any kind.

        with ParameterServerClient("127.0.0.1:5555", optimizer="adam", learning_rate=1e-3) as server:
            weights = server.seed(dict(module.named_parameters()))
            while True:
                module.load_state_dict(weights, strict=False)
                ...
                weights = server.push_pull({name: p.grad for name, p in module.named_parameters()}, steps=len(batch))

    The server steps its optimizer against each gradient, once, however often the network or a restart repeats it. A
    server that is restarted, or a standby that is promoted, gets again what it lacks; calls wait meanwhile. All calls
    belong to one thread at a time. They raise `RunEnded` when the run is over or its workers were asked to leave,
    `ServerUnreachable` after `patience_seconds` without a server, and `RequestRefused` when the server refuses. A
    forked process cannot use its parent's client, and makes one of its own.

    Every client counts as a worker. One that only pulls keeps the pushes of all others waiting, unless `consistency` is
    "async".

    `settings` are those of the run, by the names of their flags: `optimizer="adam"`, `learning_rate=1e-3`,
    `consistency="sync"`, `max_steps=10**6`. They decide the run if nothing has decided it yet, which then has no
    environment unless they name one. A run that has been decided refuses settings that contradict it.
    """

    _is_closed = False
    _parameters: RemoteParameters | None = None  # from `seed` or the first pull on
    _schema: Schema | None = None  # of the parameters
    _weights: Tensor | None = None  # [P] of the last reply that had any; no caller gets this memory
    _newest: Newest | None = None  # the version of the last reply
    _settlement: Settlement | None = None

    def __init__(
        self,
        server: str,
        *,
        name: str | None = None,
        curve_server_key: str | Path | None = None,
        curve_secret: str | Path | None = None,
        patience_seconds: float = 1800.0,
        resend_mib: float = 256.0,
        **settings: Any,
    ) -> None:
        """
        Join a run, which the server may have already; it may also be started later.

        `server` is HOST:PORT, HOST:PORT,HOST:PORT with a standby, or the path of the file `endpoint` in a run folder;
        a server in shards is named by any of them. `name` is this worker's, which no other process of the run may have;
        HOST-PID-RANDOM when not given. The keys are the files that `rl-worker --curve-server-key --curve-secret`
        takes. `resend_mib` is the memory for gradients that are in no checkpoint yet.

        Raises SettingsError for settings that make no sense, RequestRefused, and ServerUnreachable.
        """
        self.name = name or name_of_this_process()
        _check(server, self.name, patience_seconds=patience_seconds, resend_mib=resend_mib)
        proposed, overrides = with_keywords(RunSpec(), settings, source="ParameterServerClient")
        self._connections = ShardConnections(
            self.name,
            server,
            proposed_run=run_for_peers(proposed),
            overrides=overrides,
            keys=client_keys(curve_server_key, curve_secret),
            patience_seconds=patience_seconds,
            resend_mib=resend_mib,
        )
        self._pid = os.getpid()
        atexit.register(self.close)
        self._join(f"the server at {server}", overrides)

    def _join(self, source: str, overrides: Mapping[str, Any]) -> None:
        try:
            self._welcome = self._connections.join()
            self._run = run_from_dict(self._welcome.run, source=source)
            self._wire = wire_of(self._run, overrides)
        except BaseException:
            self._leave("could not join")
            raise

    @property
    def settings(self) -> dict[str, Any]:
        """All settings of the run that this client joined, by the names of their flags."""
        return keywords_of(self._run)

    @property
    def number(self) -> int:
        """The number of this worker in its run: 0, 1, 2, … in the order of joining."""
        return self._welcome.number

    @property
    def version(self) -> int:
        """How many updates the weights of the last reply have; with shards the sum over them."""
        return self._newest.version if self._newest else 0

    @property
    def steps(self) -> int:
        """The steps that all workers have counted, as of the last reply."""
        return self._newest.global_steps if self._newest else 0

    @property
    def settlement(self) -> Settlement | None:
        """
        The outcome of the last push that has its reply: `verdict` ("applied", "discarded" or "duplicate"), `staleness`
        in versions, and of a discarded one `reason`.
        """
        return self._settlement

    def seed(self, parameters: Mapping[str, Any]) -> dict[str, Tensor]:
        """
        Offer first weights, and return those of the run: the ones offered, or those that it has already.

        `parameters` are tensors or arrays of any shape, by name, in the order in which every worker of the run gives
        them; they travel as float32. Raises SchemaMismatch when the run trains others.
        """
        tensors = {name: float32(name, value) for name, value in parameters.items()}
        schema = Schema([TensorSpec(name, tuple(tensor.shape)) for name, tensor in tensors.items()])
        self._use(schema).seed(flat(schema, tensors))
        return self.pull()

    def pull(self) -> dict[str, Tensor]:
        """
        The newest weights by name, float32 tensors of the shapes that they were seeded with.

        The tensors are copies, which the caller may change. Before `seed`, those of a run that has weights; else raises
        SettingsError.
        """
        _, parameters = self._in_use()
        self._keep(parameters.pull(self._newest))
        return self._copies()

    def push_pull(self, gradients: Mapping[str, Any], *, steps: int = 1) -> dict[str, Tensor]:
        """
        Push a gradient, computed on the weights of the last reply, and return the newest weights.

        `gradients` are tensors or arrays of the parameters' names and shapes; None counts as zeros. `steps`, such as
        the examples in the batch, are added to the run's count. A gradient that is not finite is discarded, as
        `settlement` shows; after twenty in a row that count steps RequestRefused is raised. Raises SchemaMismatch for
        other tensors.
        """
        self._push(gradients, steps, pulls=True)
        return self._copies()

    def push(self, gradients: Mapping[str, Any], *, steps: int = 1) -> Settlement | None:
        """
        The same without weights, which stay those of the last reply; returns the settlement.

        None is returned with the setting `prefetch`, under which a push need not be settled yet.
        """
        self._settlement = None
        self._push(gradients, steps, pulls=False)
        return self._settlement

    def report(self, **meters: float) -> None:
        """Report numbers, such as a loss, that `ps-ctl status` and TensorBoard show; at most twice a second."""
        _, parameters = self._in_use()
        check_number("report: the number of meters", len(meters), least=0, most=MOST_METERS - 1)  # a worker adds one
        for name in meters:
            check_name("report", name)
        parameters.report((), {name: float(value) for name, value in meters.items()})

    def close(self) -> None:
        """Wait until what was pushed is settled, and leave the run. A second call does nothing."""
        if not self._is_closed and self._parameters is not None and self._pid == os.getpid():
            try:
                with contextlib.suppress(RunEnded):
                    self._parameters.finish()
            except BaseException:
                self._leave("failed to finish")  # a member that is silent would keep others waiting
                raise
        self._leave("")

    def __enter__(self) -> "ParameterServerClient":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, traceback: object) -> None:
        if kind is None:
            self.close()
        else:
            self._leave(f"failed: {kind.__name__}")

    def _leave(self, reason: str) -> None:
        """Leave the run; in a forked process nothing happens, since the client is its parent's."""
        if not self._is_closed and self._pid == os.getpid():
            self._is_closed = True
            atexit.unregister(self.close)
            self._connections.close(reason, failed=bool(reason))

    def _use(self, schema: Schema) -> RemoteParameters:
        self._schema = schema
        self._parameters = self._connections.parameters(schema, self._wire)
        return self._parameters

    def _in_use(self) -> tuple[Schema, RemoteParameters]:
        """The parameters; before `seed` those that the run had when this client joined."""
        if self._parameters is None:
            if not self._welcome.schema:
                raise SettingsError("this run had no weights when this client joined: call seed first")
            schema = Schema(self._welcome.schema)
            parameters = self._use(schema)
            parameters.seed(torch.zeros(0))  # is not sent: the run has weights of this schema
        assert self._schema is not None, "it is set with the parameters"
        assert self._parameters is not None, "set above"
        return self._schema, self._parameters

    def _push(self, gradients: Mapping[str, Any], steps: int, *, pulls: bool) -> None:
        schema, parameters = self._in_use()
        if self._newest is None:
            raise SettingsError("a gradient is computed on weights: call seed or pull first")
        try:
            steps = operator.index(steps)
        except TypeError as error:
            raise SettingsError(f"steps {steps!r}: must be a whole number") from error
        check_number("steps", steps, least=0, most=MOST_STEPS)
        parameters.adjusted_algorithm()  # raises RunEnded when the run is drained
        gradient = flat(schema, gradients)
        self._keep(parameters.push_pull(gradient, computed_on=self._newest, steps=steps, pulls=pulls))

    def _keep(self, newest: Newest) -> None:
        """Keep what a reply brought."""
        if newest.weights is not None:
            self._weights = newest.weights.clone()
        self._settlement = newest.settled or self._settlement
        self._newest = replace(newest, weights=None, settled=None)

    def _copies(self) -> dict[str, Tensor]:
        """The weights of the last reply that had any, for the caller."""
        schema, _ = self._in_use()
        assert self._weights is not None, "the first reply has weights"
        return schema.views(self._weights.clone())


def _check(server: str, name: str, *, patience_seconds: float, resend_mib: float) -> None:
    """Raises SettingsError that names the first argument that makes no sense."""
    check_server("server", server)
    check_number("patience_seconds", patience_seconds, least=LEAST_SECONDS, most=MOST_SECONDS)
    check_number("resend_mib", resend_mib, least=0, most=MOST_MIB)
    check_name("name", name)
