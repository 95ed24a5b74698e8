"""``farthing serve``."""
