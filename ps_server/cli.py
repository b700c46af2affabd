"""`ps-server`: reads the flags, and serves the run that they ask for."""

import logging
from collections.abc import Sequence

from ps_common.program.flags import parse_with_run
from ps_common.program.output import log_as
from ps_common.program.run_program import quick_imports
from ps_common.release import release
from ps_server.settings import ServerSettings

PROGRAM = "ps-server"

log = logging.getLogger(PROGRAM)


def serve(argv: Sequence[str] | None = None) -> int:
    """Run the program. Raises PsRlError for errors that the user can fix."""
    log_as(PROGRAM)
    flags = parse_with_run(ServerSettings, argv, prog=PROGRAM)
    log.info("this is ps-rl %s", release())
    if flags.remark:
        log.info(flags.remark)
    with quick_imports():  # torch, which --help and mistakes in flags need not wait for
        from ps_server.serving import serve_run
    follower = serve_run(flags)
    while follower is not None:
        follower = serve_run(follower)
    return 0
