"""What a push changes and a checkpoint keeps; and the effects, the machine's actions. Pure: `now` is an argument."""
