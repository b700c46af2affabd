"""A ps-server whose ledger is wrong from the fifth push of a worker on, as a fault of memory leaves it."""

import sys

from ps_common.program.run_program import run_program
from ps_server import cli
from ps_server.state.ledger import Ledger

settle = Ledger.settle


def bent(ledger: Ledger, worker_id: str, sequence: int) -> None:
    settle(ledger, worker_id, sequence)
    if sequence == 5:
        ledger.change(worker_id, durable=100)


if __name__ == "__main__":
    Ledger.settle = bent  # type: ignore[method-assign]
    run_program(lambda: cli.serve(sys.argv[1:]), "ps-server")
