"""The ``farthing`` command: one file per verb."""
