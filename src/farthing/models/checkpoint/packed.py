"""A packed directory as a checkpoint: what ``farthing quantize`` writes.

Its safetensors hold matrices as bytes in the kernels' layout, vectors as float32, all under the
names and in the order that programs ask for. ``farthing.json`` says which scheme each matrix has;
configuration, tokenizer and chat template are those of the source, unchanged.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from types import MappingProxyType

from farthing.errors import ModelFormatError
from farthing.models.checkpoint import gguf, huggingface
from farthing.models.checkpoint.checkpoint import AnyTensor, Checkpoint, Description
from farthing.models.checkpoint.gguf_config import metadata_fields
from farthing.models.checkpoint.gguf_file import read_gguf
from farthing.models.checkpoint.huggingface import read_shards, tensor_source
from farthing.models.checkpoint.packed_manifest import (
    ALIGNMENT,
    MANIFEST,
    METADATA,
    Manifest,
    PackedEntry,
    read_manifest,
)
from farthing.models.checkpoint.packed_tensor import PackedTensor
from farthing.models.family import Family
from farthing.program.weights import packed_shape


def is_packed(path: Path) -> bool:
    """Whether the directory is a packed one."""
    try:
        return (path / MANIFEST).is_file()
    except OSError:
        return False  # the reader of other directories says why it cannot be read


def open_packed(path: Path, families: Collection[Family]) -> Checkpoint:
    """Opens the packed directory of a model of one of ``families``.

    Reads manifest and headers, no weight: sizes, offsets, types and names are checked against each
    other, and the fingerprint. Whether the bytes are those that were written is told by
    :func:`farthing.packing.verify_packed`.

    Raises :class:`ModelFormatError` naming file and field for anything that is missing, of another
    version, truncated or not what the manifest says, and as the readers of its source's format do.
    """
    manifest = read_manifest(path / MANIFEST)
    tensors = _tensors(path, manifest)
    manifest.check_fingerprint(path / MANIFEST)
    description = _description(path, manifest, tensors, families)
    return Checkpoint(
        path=path,
        format="packed",
        config=description.config,
        tensors=MappingProxyType(tensors),
        tokenizer=description.tokenizer,
        chat_template=description.chat_template,
        manifest=manifest,
    )


def _description(
    path: Path, manifest: Manifest, tensors: dict[str, AnyTensor], families: Collection[Family]
) -> Description:
    if manifest.source_format == "huggingface":
        return huggingface.read_description(path, families)[0]
    file = read_gguf(path / METADATA)
    if file.tensors:
        raise ModelFormatError(
            file.path,
            "the metadata of a packed directory has no tensors",
            field=f"tensor {file.tensors[0].name}",
            offset=file.tensors[0].entry_offset,
        )
    fields = metadata_fields(file)
    return gguf.read_description(fields, *gguf.find_family(fields, families), tensors)


def _tensors(path: Path, manifest: Manifest) -> dict[str, AnyTensor]:
    tensors: dict[str, AnyTensor] = {}
    for reader, entry in read_shards(path):
        packed = manifest.matrices.get(entry.name)
        problem = None
        if packed is None:
            if entry.dtype != "F32" or len(entry.shape) != 1:
                problem = f"is neither a vector of F32 nor a matrix that {MANIFEST} lists"
        elif entry.dtype != "U8":
            problem = f"is a packed matrix of dtype {entry.dtype}; U8 is needed"
        elif entry.offset % ALIGNMENT:
            problem = f"a packed matrix must start at a multiple of {ALIGNMENT} bytes"
        else:
            problem = _wrong_shape(packed, entry.shape)
        if problem is not None:
            raise ModelFormatError(
                reader.path, problem, field=f"tensor {entry.name}", offset=entry.offset
            )
        if packed is None:
            tensors[entry.name] = tensor_source(reader, entry)
        else:
            tensors[entry.name] = PackedTensor(
                name=entry.name,
                reader=reader,
                shape=(packed.rows, packed.cols),
                stored_dtype=packed.carries or packed.scheme,
                dtype=packed.scheme,
                codebook=packed.codebook,
                offset=entry.offset,
                nbytes=entry.nbytes,
            )
    for name in manifest.matrices:
        if name not in tensors:
            raise ModelFormatError(
                path,
                f"is in no safetensors file, though {MANIFEST} lists it",
                field=f"tensor {name}",
            )
    if manifest.checksums is not None and manifest.checksums.tensors.keys() != tensors.keys():
        name = min(manifest.checksums.tensors.keys() ^ tensors.keys())
        problem = "has no checksum" if name in tensors else "has a checksum and is in no file"
        raise ModelFormatError(path / MANIFEST, problem, field=f"tensor {name}")
    return tensors


def _wrong_shape(packed: PackedEntry, shape: tuple[int, ...]) -> str | None:
    """What is wrong with the shape of a matrix's bytes, if anything is."""
    try:
        right = packed_shape(packed.scheme, packed.rows, packed.cols)
    except ValueError as error:  # the scheme has no such matrix
        return str(error)
    if shape == right:
        return None
    return (
        f"a packed {packed.scheme} matrix of {packed.rows} rows and {packed.cols} columns has "
        f"bytes of shape {right}, not {shape}"
    )
