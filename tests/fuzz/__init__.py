"""Mutation fuzzing of model files."""
