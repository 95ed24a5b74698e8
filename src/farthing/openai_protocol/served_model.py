"""What requests are held against and answered with."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from farthing.openai_protocol.names import ModelNames

if TYPE_CHECKING:
    from farthing.tokenization.prompt_encoder import PromptEncoder


@dataclass(frozen=True, slots=True)
class ServedModel:
    """The model as far as requests and responses know it; its weights may be elsewhere."""

    names: ModelNames
    encoder: PromptEncoder
    context_length: int  # tokens of one sequence
    system_fingerprint: str
    request_timeout: float | None = None  # seconds that an answer may take


def system_fingerprint(numerics: str, kv_cache_dtype: str) -> str:
    """The API's ``system_fingerprint``: where it is equal, a request and its seed have equal bits.

    ``numerics``: :func:`farthing.program.numerics.fingerprint` of the weights.
    """
    return "fp_" + hashlib.sha256(f"{numerics} {kv_cache_dtype}".encode()).hexdigest()[:12]
