"""Self-play: agents of a PettingZoo game are rows of a vector environment, and one policy plays them all."""
