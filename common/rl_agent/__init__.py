"""Acts and learns: environments, networks, unrolls and algorithms. It knows no socket."""
