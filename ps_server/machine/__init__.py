"""The server's decisions: messages in, effects out. Pure: `now` is an argument."""
