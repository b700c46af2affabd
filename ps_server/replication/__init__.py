"""The run at a second server: what the primary forwards, and how its standby takes over. Pure: `now` is an argument."""
