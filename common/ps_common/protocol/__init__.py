"""The wire protocol: messages, tensors, codecs and names. Pure: no sockets, files or clocks."""
