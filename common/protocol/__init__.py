"""What is said on the wire: messages, tensors, codecs and names. Pure: no sockets, files or clocks."""
