"""A GGUF file as a checkpoint."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from farthing.config import ModelConfig
from farthing.errors import ModelFormatError, UnsupportedArchitectureError
from farthing.models.checkpoint import limits
from farthing.models.checkpoint.checkpoint import EMBEDDING, AnyTensor, Checkpoint, Description
from farthing.models.checkpoint.fields import Fields
from farthing.models.checkpoint.gguf_config import metadata_fields, read_config
from farthing.models.checkpoint.gguf_file import GgufFile, read_gguf
from farthing.models.checkpoint.gguf_names import canonical_name
from farthing.models.checkpoint.gguf_tokenizer import read_tokenizer
from farthing.models.checkpoint.tensor import TensorSource
from farthing.models.family import Family, GgufDialect


def open_gguf(path: Path, families: Collection[Family]) -> Checkpoint:
    """Opens a GGUF file of one of ``families``.

    Raises :class:`UnsupportedArchitectureError` naming the architecture and the supported ones,
    and :class:`ModelFormatError` for a file that is not as GGUF demands, has impossible numbers or
    holds a tensor that cannot be read.
    """
    file = read_gguf(path)
    fields = metadata_fields(file)
    family, dialect = find_family(fields, families)
    tensors = _tensors(file, dialect)
    description = read_description(fields, family, dialect, tensors)
    config = description.config
    if dialect.interleaved_rope:
        tensors = {name: _half_split(name, t, config) for name, t in tensors.items()}
    return Checkpoint(
        path=path,
        format="gguf",
        config=config,
        tensors=MappingProxyType(dict(dialect.tensors(config, tensors))),
        tokenizer=description.tokenizer,
        chat_template=description.chat_template,
    )


def read_description(
    fields: Fields, family: Family, dialect: GgufDialect, tensors: Mapping[str, AnyTensor]
) -> Description:
    """All that the metadata says of a model with ``tensors``, by canonical name.

    Raises :class:`ModelFormatError` naming the key that is missing or impossible.
    """
    embedding = tensors.get(EMBEDDING)
    title = "token_embd.weight" if embedding is None else embedding.name
    if embedding is None or len(embedding.shape) != 2:
        raise ModelFormatError(
            fields.file,
            "a matrix is needed",
            field=f"tensor {title}",
            offset=None if embedding is None else embedding.offset,
        )
    vocab_size = embedding.shape[0]
    if not 1 <= vocab_size <= limits.MAX_VOCABULARY:
        raise ModelFormatError(
            fields.file,
            f"has {vocab_size} rows, outside 1 to {limits.MAX_VOCABULARY}",
            field=f"tensor {title}",
            offset=embedding.offset,
        )
    tokenizer = read_tokenizer(fields, vocab_size)
    return Description(
        config=read_config(fields, family, dialect, vocab_size, tensors, tokenizer),
        tokenizer=tokenizer,
        chat_template=fields.optional_text("tokenizer.chat_template"),
    )


def half_split_order(num_heads: int, head_dim: int, rope_dim: int) -> npt.NDArray[np.intp]:
    """Row i of a half-split q or k projection is row ``order[i]`` of an interleaved one.

    Interleaved rope rotates the neighbours (2i, 2i + 1) of a head together, half-split rope
    (i, i + rope_dim / 2); a head's dimensions past ``rope_dim`` stay where they are.
    """
    head = np.arange(head_dim, dtype=np.intp)
    head[:rope_dim] = head[:rope_dim].reshape(-1, 2).T.reshape(-1)
    return (np.arange(num_heads, dtype=np.intp)[:, None] * head_dim + head).reshape(-1)


def find_family(fields: Fields, families: Collection[Family]) -> tuple[Family, GgufDialect]:
    """The family that the metadata names, and its dialect; raises as :func:`open_gguf`."""
    kind = fields.optional_text("general.type") or "model"
    if kind == "adapter":
        fields.fail(
            "general.type",
            "is 'adapter'; only a whole model can be opened, and with it an adapter that is a "
            "directory as peft saves it (adapter_config.json and safetensors)",
        )
    if kind != "model":
        fields.fail("general.type", f"is {kind[:40]!r}; only a whole model can be opened")
    parts = fields.optional_integer("split.count", 0, 1 << 16) or 1
    if parts > 1:
        fields.fail("split.count", f"is one of {parts} parts; join them with gguf-split --merge")
    architecture = fields.text("general.architecture")
    known = {f.gguf.architecture: (f, f.gguf) for f in families if f.gguf is not None}
    described = repr(architecture[:80])
    experts = fields.optional_integer(f"{architecture}.expert_count", 0, (1 << 32) - 1) or 0
    served = architecture in known and (experts == 0 or known[architecture][1].experts)
    if experts and not served:
        described += f" with a mixture of {experts} experts"
    if not served:
        raise UnsupportedArchitectureError(
            f"{fields.file}: architecture {described} is not supported in GGUF files; "
            f"supported: {', '.join(sorted(known))}"
        )
    return known[architecture]


def _tensors(file: GgufFile, dialect: GgufDialect) -> dict[str, TensorSource]:
    tensors: dict[str, TensorSource] = {}
    for tensor in file.tensors:
        field = f"tensor {tensor.name}"
        if tensor.scheme.reading == "refused":
            raise ModelFormatError(
                file.path,
                f"is stored as {tensor.scheme.name}, which cannot be read as weights",
                field=field,
                offset=tensor.entry_offset,
            )
        name = canonical_name(tensor.name, dialect.names)
        if name in tensors:
            raise ModelFormatError(
                file.path,
                f"is a duplicate: tensor {tensors[name].name} stands for {name} too",
                field=field,
                offset=tensor.entry_offset,
            )
        tensors[name] = TensorSource(
            name=tensor.name,
            reader=file.reader,
            shape=tensor.shape,
            stored_dtype=tensor.scheme.name,
            offset=tensor.offset,
            nbytes=tensor.nbytes,
        )
    return tensors


def _half_split(name: str, tensor: TensorSource, config: ModelConfig) -> TensorSource:
    """``tensor`` with the row order of half-split rope, if it is a q or k projection."""
    if ".self_attn.q_proj." in name:
        num_heads = config.num_heads
    elif ".self_attn.k_proj." in name:
        num_heads = config.num_kv_heads
    else:
        return tensor
    if tensor.shape[:1] != (num_heads * config.head_dim,):
        return tensor  # misshapen, and reported by check_tensors
    if len(tensor.shape) == 1 and tensor.stored.block_cols != 1:
        raise ModelFormatError(
            tensor.file,
            f"is a bias stored as {tensor.stored_dtype}; f32, f16 or bf16 is needed",
            field=f"tensor {tensor.name}",
            offset=tensor.offset,
        )
    return TensorSource(
        name=tensor.name,
        reader=tensor.reader,
        shape=tensor.shape,
        stored_dtype=tensor.stored_dtype,
        offset=tensor.offset,
        nbytes=tensor.nbytes,
        row_order=half_split_order(num_heads, config.head_dim, config.rope.dim),
    )
