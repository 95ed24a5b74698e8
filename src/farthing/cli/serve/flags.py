"""The flags of ``farthing serve``: one table for command line, environment and config file.

Spellings are vLLM's first, llama-server's beside them.
"""

from __future__ import annotations

from farthing.cli.serve.model_flags import EngineFlags, ModelFlags
from farthing.cli.serve.network_flags import AccessFlags, NetworkFlags
from farthing.cli.serve.operation_flags import LifeFlags, ObservationFlags, QueueFlags
from farthing.cli.serve.signature import parameters_of
from farthing.cli.serve.spellings import Spellings

GROUPS = (
    ModelFlags,
    EngineFlags,
    NetworkFlags,
    AccessFlags,
    QueueFlags,
    LifeFlags,
    ObservationFlags,
)
FLAGS = parameters_of(*GROUPS)
SPELLINGS = Spellings.of(FLAGS)
SECRET = frozenset({"api_key"})
"""Flags whose values are shown nowhere."""
