"""How weights are stored with few bits."""

from farthing.quantization.schemes import SCHEMES, SCHEMES_BY_GGUF_TYPE, Scheme, scheme

__all__ = ["SCHEMES", "SCHEMES_BY_GGUF_TYPE", "Scheme", "scheme"]
