"""`rl-worker`: reads the flags, and works for the server that they name."""

import logging
from collections.abc import Sequence

from ps_common.program.flags import parse_with_run
from ps_common.program.output import log_as
from ps_common.program.run_program import quick_imports
from ps_common.release import release
from rl_agent.trial.run_check import custom_settings
from rl_worker.settings import WorkerSettings

PROGRAM = "rl-worker"

log = logging.getLogger(PROGRAM)


def work(argv: Sequence[str] | None = None) -> int:
    """Run the program. Raises PsRlError for what the user can mend."""
    flags = parse_with_run(WorkerSettings, argv, prog=PROGRAM, custom_settings=custom_settings)
    settings = flags.program
    with quick_imports():  # torch, which --help and mistakes in flags need not wait for
        from ps_client.shell.shard_connections import name_of_this_process
        from rl_worker.joining import work_for_server
    name = settings.name or name_of_this_process()
    log_as(name)
    log.info("this is ps-rl %s", release())
    if flags.remark:
        log.info(flags.remark)
    work_for_server(flags, name)
    return 0
