"""A Hugging Face model directory as a checkpoint."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from farthing.errors import FarthingError, ModelFormatError, ModelNotFoundError
from farthing.files.reader import FileReader
from farthing.models.checkpoint.checkpoint import Checkpoint, Description
from farthing.models.checkpoint.huggingface_config import find_family, read_config
from farthing.models.checkpoint.json_file import MAX_JSON, read_json_fields, read_json_object
from farthing.models.checkpoint.packed_manifest import MANIFEST, METADATA, WRITTEN_BY
from farthing.models.checkpoint.safetensors_file import (
    SafetensorsFile,
    SafetensorsTensor,
    read_safetensors,
)
from farthing.models.checkpoint.tensor import TensorSource
from farthing.models.family import Family
from farthing.tokenization.source import JsonTokenizerFile

_DTYPES = {"F32": "f32", "F16": "f16", "BF16": "bf16"}
MAX_TENSORS = 1 << 17  # of all shards; the largest mixtures of experts have a little less
_WHOLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_SHARD = re.compile(r"model-([0-9]{5})-of-([0-9]{5})\.safetensors")


def open_huggingface(path: Path, families: Collection[Family]) -> Checkpoint:
    """Opens a directory with ``config.json`` and safetensors, whole or sharded, of ``families``.

    Raises :class:`UnsupportedArchitectureError` naming the architecture and the supported ones,
    :class:`ModelNotFoundError` for a directory that is not such a model and
    :class:`ModelFormatError` for a file in it that is missing or not what it must be.
    """
    description, family = read_description(path, families)
    tensors = family.hugging_face.tensors(description.config, _tensors(path))
    return Checkpoint(
        path=path,
        format="huggingface",
        config=description.config,
        tensors=MappingProxyType(tensors),
        tokenizer=description.tokenizer,
        chat_template=description.chat_template,
    )


def read_description(path: Path, families: Collection[Family]) -> tuple[Description, Family]:
    """All that the directory says but for its tensors; raises as :func:`open_huggingface`."""
    config_path = path / "config.json"
    if not _exists(config_path):
        raise ModelNotFoundError(_no_config(path))
    generation_path = path / "generation_config.json"
    generation = None
    if _exists(generation_path):
        generation = read_json_fields(generation_path)
    fields = read_json_fields(config_path)
    family = find_family(fields, families)
    fields = fields.with_defaults(family.hugging_face.section, family.hugging_face.defaults)
    config = read_config(fields, generation, family)
    tokenizer_config: Mapping[str, object] = MappingProxyType({})
    if _exists(path / "tokenizer_config.json"):
        tokenizer_config = MappingProxyType(read_json_object(path / "tokenizer_config.json"))
    tokenizer = None
    if _exists(path / "tokenizer.json"):
        tokenizer = JsonTokenizerFile(
            path / "tokenizer.json", tokenizer_config, config.eos_token_ids
        )
    return Description(config, tokenizer, _chat_template(path, tokenizer_config)), family


def _exists(path: Path) -> bool:
    """Whether there is a file; a broken link or an unreadable directory is an error, not False."""
    try:
        path.stat()
    except FileNotFoundError:
        if path.is_symlink():
            raise ModelFormatError(path, "is a link to a file that does not exist") from None
        return False
    except OSError as error:
        raise FarthingError(f"{path}: cannot be read: {error.strerror}") from error
    return True


def _no_config(path: Path) -> str:
    message = f"{path}: has no config.json, so it is not a Hugging Face model directory"
    if _exists(path / METADATA):
        return _no_manifest(path)
    if _exists(path / "adapter_config.json"):
        return f"{message} but an adapter; name the model it was made for, and it with --adapter"
    try:
        gguf = sorted(item.name for item in path.glob("*.gguf"))
    except OSError:
        gguf = []
    if gguf:
        message += f"; to open a GGUF file in it, name the file: {path / gguf[0]}"
    return message


def _tensors(path: Path) -> dict[str, TensorSource]:
    def refuse_packed(file: SafetensorsFile) -> None:
        if file.format == WRITTEN_BY:
            raise ModelNotFoundError(_no_manifest(path))

    shards = read_shards(path, refuse_packed)
    return {entry.name: tensor_source(reader, entry) for reader, entry in shards}


def _no_manifest(path: Path) -> str:
    return (
        f"{path}: has no {MANIFEST}, without which a directory that 'farthing quantize' made "
        "cannot be read; put it back, or pack the model again"
    )


def read_shards(
    path: Path, check: Callable[[SafetensorsFile], None] = lambda file: None
) -> Iterator[tuple[FileReader, SafetensorsTensor]]:
    """The directories of all safetensors files in ``path``, entry by entry.

    ``check`` sees each file before its entries. Raises :class:`ModelFormatError` where they and
    the index contradict each other.
    """
    found: dict[str, Path] = {}
    shards, index = _shards(path)
    for shard in shards:
        file = read_safetensors(shard)
        check(file)
        for entry in file.tensors:
            if entry.name in found:
                raise ModelFormatError(
                    shard,
                    f"is a duplicate: it is in {found[entry.name].name} too",
                    field=f"tensor {entry.name}",
                    offset=entry.offset,
                )
            if index is not None and index.get(entry.name) != shard.name:
                raise ModelFormatError(
                    shard,
                    f"is not listed for this file in {_INDEX}",
                    field=f"tensor {entry.name}",
                    offset=entry.offset,
                )
            found[entry.name] = shard
            yield file.reader, entry
        if len(found) > MAX_TENSORS:
            raise ModelFormatError(
                shard, f"brings the model to {len(found)} tensors, more than {MAX_TENSORS}"
            )
    for name, shard_name in (index or {}).items():
        if name not in found:
            raise ModelFormatError(
                path / shard_name,
                f"is missing, though {_INDEX} says it is here",
                field=f"tensor {name}",
            )


def tensor_source(reader: FileReader, entry: SafetensorsTensor) -> TensorSource:
    """Where the tensor's rows are; raises :class:`ModelFormatError` for a dtype not served."""
    if entry.dtype not in _DTYPES:
        raise ModelFormatError(
            reader.path,
            f"dtype {entry.dtype} is not supported yet; supported: {', '.join(_DTYPES)}",
            field=f"tensor {entry.name}",
            offset=entry.offset,
        )
    return TensorSource(
        name=entry.name,
        reader=reader,
        shape=entry.shape,
        stored_dtype=_DTYPES[entry.dtype],
        offset=entry.offset,
        nbytes=entry.nbytes,
    )


def _shards(path: Path) -> tuple[list[Path], Mapping[str, str] | None]:
    """The safetensors files of the model and, if there is an index, tensor to file name."""
    if _exists(path / _WHOLE):
        return [path / _WHOLE], None
    if _exists(path / _INDEX):
        index = dict(_weight_map(path / _INDEX))
        shards = [path / name for name in dict.fromkeys(index.values())]
        for shard in shards:
            if not _exists(shard):
                raise ModelFormatError(shard, f"is missing, though {_INDEX} names it")
        return shards, index
    found = sorted(item.name for item in path.glob("model-*-of-*.safetensors"))
    numbered = [match for name in found if (match := _SHARD.fullmatch(name))]
    if not numbered:
        raise ModelNotFoundError(_no_weights(path))
    count = int(numbered[0][2])
    if [(int(m[1]), int(m[2])) for m in numbered] != [(i + 1, count) for i in range(count)]:
        raise ModelFormatError(
            path, f"there are {len(numbered)} of {count} files {numbered[0][0]} and so on"
        )
    return [path / match[0] for match in numbered], None


def _weight_map(path: Path) -> Iterator[tuple[str, str]]:
    fields = read_json_fields(path)
    weight_map = fields.values.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        fields.fail("weight_map", "must be an object, not empty")
    for name, shard in weight_map.items():
        plain = isinstance(shard, str) and not set(shard) & set("/\\\0") and shard.isprintable()
        if not plain or not shard.endswith(".safetensors"):
            raise ModelFormatError(
                path,
                f"{str(shard)[:80]!r} is not a file name",
                field=f"weight_map.{name}",
                offset=fields.offsets["weight_map"],
            )
        yield name, shard


def _no_weights(path: Path) -> str:
    message = f"{path}: has neither {_WHOLE} nor {_INDEX}"
    for pattern in ("pytorch_model*.bin", "*.pth", "*.pt"):
        other = sorted(item.name for item in path.glob(pattern))
        if other:
            return f"{message}; {other[0]} is not read: save the model as safetensors"
    return message


def _chat_template(path: Path, tokenizer_config: Mapping[str, object]) -> str | None:
    """``chat_template.jinja``, or what ``tokenizer_config.json`` has under ``chat_template``."""
    file = path / "chat_template.jinja"
    if _exists(file):
        reader = FileReader(file)
        if reader.size > MAX_JSON:
            raise ModelFormatError(file, f"has {reader.size} bytes, more than {MAX_JSON}")
        try:
            return str(reader.read(0, reader.size), "utf-8")
        except UnicodeDecodeError as error:
            raise ModelFormatError(file, "is not UTF-8", offset=error.start) from None
    source = tokenizer_config.get("chat_template")
    if isinstance(source, list):  # several by name
        named = [item for item in source if isinstance(item, dict)]
        source = next((i.get("template") for i in named if i.get("name") == "default"), None)
    if source is None or isinstance(source, str):
        return source
    raise ModelFormatError(
        path / "tokenizer_config.json", "must be a string", field="chat_template"
    )
