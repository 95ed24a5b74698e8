"""The engine: requests, blocks, schedule, steps."""
