"""Every run tries the same examples: a change is judged by what it changes. `make explore` tries new ones."""

import signal

from hypothesis import settings

# A shell ignores SIGINT for its background jobs, and children inherit that: tests of Ctrl-C would have none.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("same", max_examples=30, derandomize=True, deadline=None)
settings.register_profile("explore", max_examples=2000, deadline=None)
settings.load_profile("same")
