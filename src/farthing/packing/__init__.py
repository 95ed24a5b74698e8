"""Writing packed directories, what ``farthing quantize`` does, and verifying them.

The format: ``docs/decisions/packed-directories.md``.
"""

from farthing.packing.quantize import PackedModel, PackOptions, quantize_model
from farthing.packing.verification import Verified, verify_packed

__all__ = ["PackOptions", "PackedModel", "Verified", "quantize_model", "verify_packed"]
