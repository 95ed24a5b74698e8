"""LoRA adapters (Hu et al. 2021) as the ``peft`` library saves them, played beside a base model."""

from farthing.models.adapter.directory import Adapter, open_adapter
from farthing.models.adapter.low_rank import AdaptedProgram, FactorSource, apply_adapter

__all__ = ["AdaptedProgram", "Adapter", "FactorSource", "apply_adapter", "open_adapter"]
