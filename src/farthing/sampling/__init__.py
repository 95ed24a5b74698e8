"""Sampling: parameters of a request and the choice of its tokens."""
