"""``farthing bench``: speed as a share of this machine's limits, and beside llama.cpp."""
