"""Measuring speed as a share of what this machine can do, and beside llama.cpp."""
