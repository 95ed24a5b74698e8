"""What a checkpoint knows about its tokenizer, as plain data. Imports nothing that costs time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class GgufVocabulary:
    """The ``tokenizer.*`` metadata of a GGUF file.

    ``tokens[id]`` is the vocabulary string (byte-level alphabet for ``model == "gpt2"``),
    ``token_types[id]`` its ``tokenizer.ggml.token_type`` (1 normal, 2 unknown, 3 control, 4 user
    defined, 5 unused, 6 byte), empty if the file has none; ``merges`` are pairs joined by one
    space, best first; ``scores[id]`` is what ``model == "llama"`` has instead (empty for others).
    ``add_bos`` and ``add_space_prefix`` are None if the file does not say. ``other_eos_ids`` are
    further ids that end an answer (``eot_token_id``, ``eom_token_id``). ``rstrip_control``: control
    tokens take the white space after them, which no key says. ``file`` is for messages.
    """

    model: str
    pre: str
    tokens: Sequence[str]
    token_types: Sequence[int]
    merges: Sequence[str]
    bos_id: int | None = None
    eos_id: int | None = None
    add_bos: bool | None = None
    add_eos: bool = False
    other_eos_ids: tuple[int, ...] = ()
    unknown_id: int | None = None
    scores: Sequence[float] = ()
    add_space_prefix: bool | None = None
    remove_extra_whitespaces: bool = False
    rstrip_control: bool = False
    file: Path | str = "GGUF metadata"


@dataclass(frozen=True, slots=True)
class JsonTokenizerFile:
    """A ``tokenizer.json`` and what stands beside it in a Hugging Face directory.

    ``config`` is ``tokenizer_config.json`` ({} if absent); ``eos_token_ids`` the ids of
    ``generation_config.json`` or ``config.json`` (empty if neither has any).
    """

    path: Path
    config: Mapping[str, object] = field(default_factory=dict)
    eos_token_ids: tuple[int, ...] = ()


TokenizerSource = GgufVocabulary | JsonTokenizerFile
