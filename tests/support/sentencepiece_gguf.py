"""A GGUF file of a tiny Llama whose vocabulary is of SentencePiece's making."""

from __future__ import annotations

import string
from itertools import islice, product
from pathlib import Path

from farthing.tokenization import GgufVocabulary
from support.tiny_gguf import write_gguf
from support.tiny_models import make_tiny_model
from support.tiny_tokenizer import TOKENIZER_SIZE

UNKNOWN, CONTROL, BYTE, NORMAL = 2, 3, 6, 1
SPECIAL = ("<unk>", "<s>", "</s>")
BYTES = [f"<0x{i:02X}>" for i in range(256)]


def tiny_vocabulary() -> GgufVocabulary:
    """Bytes, letters with and without a space before them, and pairs of letters."""
    pairs = map("".join, product(string.ascii_lowercase, repeat=2))
    pieces = ["▁", *string.ascii_lowercase, *("▁" + each for each in string.ascii_lowercase)]
    pieces += islice(pairs, TOKENIZER_SIZE - len(SPECIAL) - len(BYTES) - len(pieces))
    others = len(SPECIAL) + len(BYTES)
    return GgufVocabulary(
        model="llama",
        pre="default",
        tokens=[*SPECIAL, *BYTES, *pieces],
        token_types=[UNKNOWN, CONTROL, CONTROL, *[BYTE] * len(BYTES), *[NORMAL] * len(pieces)],
        merges=[],
        bos_id=1,
        eos_id=2,
        unknown_id=0,
        scores=[0.0] * others + [-float(i) for i in range(len(pieces))],
    )


def make_sentencepiece_gguf(folder: Path) -> Path:
    """Writes such a file into ``folder``, with a context of 256 tokens; returns its path."""
    source = make_tiny_model("llama-mha", folder / "source")
    file = folder / "sentencepiece.gguf"
    return write_gguf("llama-mha", source, file, vocabulary=tiny_vocabulary())
