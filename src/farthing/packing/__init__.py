"""Writing packed directories: what ``farthing quantize`` does.

The format: ``docs/decisions/packed-directories.md``.
"""

from farthing.packing.quantize import PackedModel, PackOptions, quantize_model

__all__ = ["PackOptions", "PackedModel", "quantize_model"]
