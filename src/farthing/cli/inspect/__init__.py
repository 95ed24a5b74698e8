"""``farthing inspect``: what few bits do to a model's numbers."""
