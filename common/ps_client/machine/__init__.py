"""The worker's side of the protocol as decisions. Pure: `now` is an argument."""
