"""The sockets of the server, and what it shares with peers. The shell carries out the effects of the machine."""
