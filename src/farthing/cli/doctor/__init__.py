"""``farthing doctor``: what this machine is, and whether the kernels are right on it."""
