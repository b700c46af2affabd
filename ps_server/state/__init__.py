"""The state that a push changes and a checkpoint keeps. Pure: `now` is an argument."""
