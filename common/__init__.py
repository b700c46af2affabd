"""What ps-server and rl-worker say to each other: messages, tensors, codecs, the run specification."""
