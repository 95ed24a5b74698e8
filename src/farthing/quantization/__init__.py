"""How weights are stored with few bits."""

from farthing.quantization.schemes import (
    SCHEME_ALIASES,
    SCHEMES,
    SCHEMES_BY_GGUF_TYPE,
    Scheme,
    scheme,
)
from farthing.quantization.tensor import QuantizedTensor

__all__ = [
    "SCHEMES",
    "SCHEMES_BY_GGUF_TYPE",
    "SCHEME_ALIASES",
    "QuantizedTensor",
    "Scheme",
    "scheme",
]
