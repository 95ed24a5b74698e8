"""What a model is worth beside another: measured through the kernels and weights that serve it."""
