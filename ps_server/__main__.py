"""`python -m ps_server` is `ps-server`."""

from ps_server.cli import main

main()
