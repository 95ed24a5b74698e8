"""Farthing: serves open-weight language models on the CPUs people already own."""
